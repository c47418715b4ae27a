"""Drops and thresholds: when the mean quality of a metric is worth a page.

All expressions work on quality (1 is good), so a drop is a drop, whatever the metric's own scale and direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spanscore.model.score import Scale
from spanscore.monitoring import budget, promql
from spanscore.monitoring.alert import (
    Alert,
    Figure,
    Stream,
    labels_of,
    literal,
    recorded_where,
    steady_window,
    streams_of,
    suffix_of,
)
from spanscore.monitoring.wording import EVIDENCE, figures_of, mean_of
from spanscore.protocols import Metric
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = ["DropPlan", "drops", "plans_of", "thresholds"]


@dataclass(frozen=True, slots=True)
class DropPlan:
    """How one metric's drops are watched.

    Attributes:
        scale: of the metric's own values.
        null: baseline − tolerance.
        z: standard errors below it.
        least: effective scores a window needs.
        to_see: effective scores a window needs to see a drop of ``min_drop`` half of the time (pass/fail; others need fewer).
    """

    metric: str
    settings: AlertSettings
    scale: Scale
    null: float
    z: float
    least: int
    to_see: float

    @property
    def binary(self) -> bool:
        """Whether the metric knows only 0 and 1."""
        return self.scale.kind == "binary"

    @property
    def holds(self) -> bool:
        """Whether the stated rate of false alarms holds: it is not shown for continuous metrics below 0.5."""
        return self.binary or self.settings.baseline is None or self.settings.baseline >= 0.5  # noqa: PLR2004


def plans_of(
    alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], shared: MonitoringSettings
) -> list[DropPlan]:
    """Return how the drops of each metric with a baseline are watched; those metrics and all segments share the budget."""
    known = [(metric, alerts[metric.name]) for metric in metrics if metric.name in alerts]
    dropping = [(metric, one) for metric, one in known if one.baseline is not None and metric.scale.range is not None]
    streams = len(dropping) * len(streams_of(shared))
    return [_plan(metric, one, shared, streams) for metric, one in dropping]


def _plan(metric: Metric, alert: AlertSettings, shared: MonitoringSettings, streams: int) -> DropPlan:
    assert alert.baseline is not None  # those without one have no plan
    tolerated = budget.TOLERATED * alert.min_drop
    null = alert.baseline - tolerated
    z = alert.z or budget.critical_z(
        interval_s=shared.interval, windows=len(shared.windows), every_s=alert.false_alarm_every, streams=streams
    )
    return DropPlan(
        metric=metric.name,
        settings=alert,
        scale=metric.scale,
        null=null,
        z=z,
        least=alert.min_scores or budget.least_scores(alert.baseline, binary=metric.scale.kind == "binary"),
        to_see=budget.scores_to_see(alert.min_drop, null=null, tolerated=tolerated, z=z),
    )


def drops(plan: DropPlan, shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts of a plan, by stream and window."""
    alert = plan.settings
    for stream in streams_of(shared):
        for window in map(promql.duration, shared.windows):
            of = promql.Estimate.recorded(window, recorded_where(plan.metric, alert, stream))
            yield Alert(
                name="SpanscoreQualityDrop",
                expression=promql.among(
                    promql.WRITTEN if alert.series else promql.WATCHED,
                    promql.dropped(of, null=f"{plan.null:.6g}", z=plan.z, min_scores=plan.least, binary=plan.binary),
                ),
                labels=labels_of(alert.severity, plan.metric, window, stream),
                summary=f"{literal(plan.metric)} has dropped{suffix_of(stream)}",
                text=f"{mean_of(plan.metric, plan.scale, stream)} is {{value}} over {window}, {{drop}} below its baseline of "
                f"{alert.baseline:g} ({{service}}). {EVIDENCE} {_promise(plan)}",
                figures=_figures(plan, stream, window),
            )


def _figures(plan: DropPlan, stream: Stream, window: str) -> dict[str, Figure]:
    own = promql.Estimate.recorded(window, f"{recorded_where(plan.metric, plan.settings, stream)},{promql.OWN}")
    drop = Figure(f"{plan.settings.baseline:g} - {own.mean}", "%.3f")
    return {"drop": drop, **figures_of(plan.metric, plan.scale, stream, own, window)}


def _promise(plan: DropPlan) -> str:
    every = promql.duration(plan.settings.false_alarm_every)
    if not plan.holds:
        return (
            "The baseline is below 0.5: for a continuous metric false alarms may then be more frequent than configured."
        )
    return f"At most one false alarm in {every}, over all windows, metrics and segments (z = {plan.z:.2f})."


def thresholds(metric: Metric, alert: AlertSettings, shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts on a metric's threshold, by stream."""
    least = alert.min_scores or budget.least_scores(alert.baseline, binary=metric.scale.kind == "binary")
    window = steady_window(shared)
    for stream in streams_of(shared):
        where = recorded_where(metric.name, alert, stream)
        of, own = (promql.Estimate.recorded(window, matchers) for matchers in (where, f"{where},{promql.OWN}"))
        yield Alert(
            name="SpanscoreQualityBelowThreshold",
            expression=promql.among(
                promql.WRITTEN, promql.below(of, threshold=alert.threshold or 0.0, min_scores=least)
            ),
            labels=labels_of(alert.severity, metric.name, window, stream),
            summary=f"{literal(metric.name)} is below {alert.threshold:g}{suffix_of(stream)}",
            text=f"{mean_of(metric.name, metric.scale, stream)} is {{value}} over {window}, below its threshold of "
            f"{alert.threshold:g} ({{service}}). {EVIDENCE}",
            figures=figures_of(metric.name, metric.scale, stream, own, window),
        )

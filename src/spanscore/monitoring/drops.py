"""Drops and thresholds: when the mean quality of a metric is worth a page.

All expressions work on quality (1 is good), so a drop is a drop, whatever the metric's own scale and direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spanscore.monitoring import budget, promql
from spanscore.monitoring.alert import Alert, labels_of, recorded_where, streams_of, suffix_of
from spanscore.protocols import Metric
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = ["DropPlan", "drops", "plans_of", "thresholds"]


@dataclass(frozen=True, slots=True)
class DropPlan:
    """How one metric's drops are watched.

    Attributes:
        null: baseline − tolerance.
        z: standard errors below it.
        least: effective scores a window needs.
        to_see: effective scores a window needs to see a drop of ``min_drop`` half of the time (pass/fail; others need fewer).
    """

    metric: str
    settings: AlertSettings
    binary: bool
    null: float
    z: float
    least: int
    to_see: float

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
    binary = metric.scale.kind == "binary"
    tolerated = budget.TOLERATED * alert.min_drop
    null = alert.baseline - tolerated
    z = alert.z or budget.critical_z(
        interval_s=shared.interval, windows=len(shared.windows), every_s=alert.false_alarm_every, streams=streams
    )
    return DropPlan(
        metric=metric.name,
        settings=alert,
        binary=binary,
        null=null,
        z=z,
        least=alert.min_scores or budget.least_scores(alert.baseline, binary=binary),
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
                labels=labels_of("critical", plan.metric, window, stream),
                summary=f"{plan.metric} has dropped{suffix_of(stream)}",
                text=f"{plan.metric}{suffix_of(stream)} is {{value}} over the last {window}, {{drop}} below its baseline of "
                f"{alert.baseline:g}, from {{scores}} effective scores ({{service}}). {_promise(plan)}",
                scores=of.n_eff,
                drop=f"{alert.baseline:g} - {of.mean}",
            )


def _promise(plan: DropPlan) -> str:
    every = promql.duration(plan.settings.false_alarm_every)
    if not plan.holds:
        return (
            "The baseline is below 0.5: for a continuous metric false alarms may then be more frequent than configured."
        )
    return f"z = {plan.z:.2f}: at most one false alarm in {every}, over all windows, metrics and segments."


def thresholds(metric: Metric, alert: AlertSettings, shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts on a metric's threshold, by stream."""
    least = alert.min_scores or budget.least_scores(alert.baseline, binary=metric.scale.kind == "binary")
    window = promql.duration(shared.windows[0])
    for stream in streams_of(shared):
        of = promql.Estimate.recorded(window, recorded_where(metric.name, alert, stream))
        yield Alert(
            name="SpanscoreQualityBelowThreshold",
            expression=promql.among(
                promql.WRITTEN, promql.below(of, threshold=alert.threshold or 0.0, min_scores=least)
            ),
            labels=labels_of("critical", metric.name, window, stream),
            summary=f"{metric.name} is below {alert.threshold:g}{suffix_of(stream)}",
            text=f"{metric.name}{suffix_of(stream)} is {{value}} over the last {window}, below its threshold of "
            f"{alert.threshold:g}, from {{scores}} effective scores ({{service}}).",
            scores=of.n_eff,
        )

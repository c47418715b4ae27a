"""Drops and thresholds: when the mean quality of a metric is worth a page.

All expressions work on quality (1 is good), so a drop is a drop, whatever the metric's own scale and direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
from spanscore.monitoring.baselines import Baseline, baseline_of
from spanscore.monitoring.canary import CanaryPlan, canary_figures, told_by
from spanscore.monitoring.drop_promql import DROPPED, RECOVERED, alarm, dropped, recovered
from spanscore.monitoring.wording import evidence_of, figures_of, mean_of
from spanscore.protocols import Metric
from spanscore.settings.alerting import AlertSettings, MonitoringSettings

__all__ = ["KEPT", "DropPlan", "drop_records", "drops", "least_of", "plans_of", "thresholds"]

KEPT = 36
"""An alert stays on for this part of its window when it has ended: a mean at the edge comes and goes."""


@dataclass(frozen=True, slots=True)
class DropPlan:
    """How one metric's drops are watched.

    Attributes:
        scale: of the metric's own values.
        baseline: what is normal.
        windows: in s → standard errors below what is tolerated.
        least: effective scores that a window needs.
        canary: of its judge; None = none watches it.
    """

    metric: str
    settings: AlertSettings
    scale: Scale
    baseline: Baseline
    windows: Mapping[float, float]
    least: int
    canary: CanaryPlan | None = None

    @property
    def binary(self) -> bool:
        """Whether the metric knows only 0 and 1."""
        return self.scale.kind == "binary"

    @property
    def tolerated(self) -> float:
        """How far below what is normal the mean may be for good."""
        return budget.TOLERATED * self.settings.min_drop

    @property
    def null(self) -> float:
        """Baseline − tolerance; of a baseline that is recorded, as it is on the whole."""
        return self.baseline.level - self.tolerated

    @property
    def z(self) -> float:
        """That of the window which asks for most."""
        return max(self.windows.values())

    @property
    def to_see(self) -> float:
        """Effective scores a window needs to see a drop of ``min_drop`` half of the time (pass/fail; others need fewer).

        Infinite where the mean strays by as much.
        """
        return self.scores_to_see(self.settings.min_drop, max(self.windows), self.z)

    def scores_to_see(self, drop: float, window_s: float, z: float) -> float:
        """Return the effective scores with which a window of a length sees a drop half of the time."""
        strays = {"slack": self.baseline.slack_of(window_s), "clump": self.baseline.clump}
        return budget.scores_to_see(drop, null=self.null, tolerated=self.tolerated, z=z, **strays)

    @property
    def holds(self) -> bool:
        """Whether the stated rate of false alarms holds: it is not shown for continuous metrics below 0.5."""
        return self.binary or self.baseline.lowest >= 0.5  # noqa: PLR2004


def plans_of(
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: MonitoringSettings,
    canaries: Sequence[CanaryPlan] = (),
) -> list[DropPlan]:
    """Return how the drops of each metric with a baseline are watched; they, all segments and canaries share the budget.

    Raises:
        ConfigurationError: a baseline's file is not there or does not name the metric, or a baseline does not fit the windows.
    """
    known = [(metric, alerts[metric.name]) for metric in metrics if metric.name in alerts]
    dropping = [(metric, one) for metric, one in known if one.baseline is not None and metric.scale.range is not None]
    shares = len(dropping) * len(streams_of(shared)) * len(shared.windows) + len(canaries)
    watched = {one.metric: one for one in canaries}
    return [_plan(metric, one, shared, shares, watched.get(metric.name)) for metric, one in dropping]


def _plan(
    metric: Metric, alert: AlertSettings, shared: MonitoringSettings, shares: int, canary: CanaryPlan | None
) -> DropPlan:
    baseline = baseline_of(metric.name, alert)
    assert baseline is not None  # those without one have no plan
    baseline.refuse_overlap(metric.name, max(shared.windows))
    windows = {window: alert.z or _critical_z(window, alert, shared, shares) for window in shared.windows}
    return DropPlan(
        metric=metric.name,
        settings=alert,
        scale=metric.scale,
        baseline=baseline,
        windows=windows,
        least=least_of(alert),
        canary=canary,
    )


def least_of(alert: AlertSettings) -> int:
    """Return the effective scores that a window of a metric needs before an alert compares its mean."""
    return alert.min_scores or budget.MIN_SCORES


def _critical_z(window_s: float, alert: AlertSettings, shared: MonitoringSettings, shares: int) -> float:
    return budget.critical_z(
        window_s=window_s,
        interval_s=shared.interval,
        every_s=alert.false_alarm_every,
        shares=shares,
    )


def drop_records(plans: Sequence[DropPlan], shared: MonitoringSettings) -> Iterator[dict[str, Any]]:
    """Yield the rules that record where a window sees a drop, of each plan, and where it is over, of all."""
    for plan in plans:
        for length, z in plan.windows.items():
            yield _dropped(plan, length, z)
    windows = [promql.duration(window) for window in sorted(shared.windows)]
    for shorter, window in pairwise(windows) if plans else ():
        expression = recovered(
            window, shorter, z=budget.RECOVERED_Z, min_scores=budget.MIN_SCORES, shortest=shorter == windows[0]
        )
        yield {"record": promql.recorded_as(RECOVERED, window), "expr": expression}


def _dropped(plan: DropPlan, length: float, z: float) -> dict[str, Any]:
    window = promql.duration(length)
    pinned = plan.settings.series
    where = promql.matching({promql.METRIC: plan.metric, **({promql.SERIES: pinned} if pinned else {})})
    of = promql.Estimate.recorded(window, where)
    expression = dropped(
        of,
        null=_null(plan, plan.baseline.normal(window, where)),
        z=z,
        min_scores=plan.least,
        binary=plan.binary,
        strays=plan.baseline.strays(length, where),
    )
    return {
        "record": promql.recorded_as(DROPPED, window),
        "expr": promql.among(promql.WRITTEN if pinned else promql.WATCHED, expression),
        "labels": {promql.METRIC: plan.metric},  # it has it: promtool takes rules of one name and no labels for twins
    }


def drops(plan: DropPlan, shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts of a plan, by stream and window."""
    alert = plan.settings
    for stream in streams_of(shared):
        for length, z in plan.windows.items():
            window, where = promql.duration(length), recorded_where(plan.metric, alert, stream)
            yield Alert(
                name="SpanscoreQualityDrop",
                expression=alarm(window, where, shortest=length == min(plan.windows)),
                labels=labels_of(alert.severity, plan.metric, window, stream),
                summary=f"{literal(plan.metric)} has dropped{suffix_of(stream)}",
                text=f"{mean_of(plan.metric, plan.scale, stream)} is {{value}} over {window}, {{drop}} below "
                f"{plan.baseline.text} ({{service}}). {evidence_of(stream)}{told_by(plan.canary)} {_promise(plan, z)}",
                figures=_figures(plan, stream, window),
                keep_s=length // (KEPT * shared.interval) * shared.interval,
            )


def _figures(plan: DropPlan, stream: Stream, window: str) -> dict[str, Figure]:
    where = f"{recorded_where(plan.metric, plan.settings, stream)},{promql.OWN}"
    own = promql.Estimate.recorded(window, where)
    drop = Figure(f"{plan.baseline.normal(window, where)} - {own.mean}", "%.3f")
    return {
        "drop": drop,
        **figures_of(plan.metric, plan.scale, stream, own, window),
        **canary_figures(plan.canary),
    }


def _null(plan: DropPlan, normal: str) -> str:
    return f"({normal} - {plan.tolerated:.6g})" if plan.baseline.is_recorded else f"{plan.null:.6g}"


def _promise(plan: DropPlan, z: float) -> str:
    every = promql.duration(plan.settings.false_alarm_every)
    if not plan.holds:
        return (
            "The baseline is below 0.5: for a continuous metric false alarms may then be more frequent than configured."
        )
    return f"At most one false alarm in {every}, over all windows, metrics and segments (z = {z:.2f})."


def thresholds(metric: Metric, alert: AlertSettings, shared: MonitoringSettings, *, least: int) -> Iterator[Alert]:
    """Yield the alerts on a metric's threshold, by stream; ``least``: effective scores that a window needs."""
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
            f"{alert.threshold:g} ({{service}}). {evidence_of(stream)}",
            figures=figures_of(metric.name, metric.scale, stream, own, window),
        )

"""Alerts on a drop of a mean and on a threshold, and the smallest drop that is detectable with given traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, prod, sqrt
from statistics import NormalDist
from typing import Any

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.core.score import Scale
from spanscore.monitoring import estimates as budget
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.alert import (
    FOR_SEGMENT,
    OF_METRIC,
    Alert,
    AlertNumber,
    figures_of,
    labels_of,
    listed,
    literal,
    mean_of,
    of_metric,
    streams_of,
)
from spanscore.monitoring.baselines import Baseline, baseline_of
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_check_figures, told_by
from spanscore.protocols import Metric

# All expressions use quality (1 is good), so that a drop has one direction for each scale.

KEPT = 72
"""Share of the longest window for which an alert stays on after the last drop: a mean at the edge goes back and forth."""
_BEFORE_S = 3_600
"""Seconds before a drop that a dashboard link shows."""


@dataclass(frozen=True, slots=True)
class DropPlan:
    """The monitoring of one metric's drops.

    Attributes:
        scale: scale of the metric's values.
        baseline: normal quality.
        windows: length in s → standard errors below the tolerated mean at which the window detects a drop.
        least: effective scores that a window needs.
    """

    metric: str
    settings: AlertSettings
    scale: Scale
    baseline: Baseline
    windows: Mapping[float, float]
    least: int

    @property
    def binary(self) -> bool:
        """Whether the metric's only values are 0 and 1."""
        return self.scale.kind == "binary"

    @property
    def tolerated(self) -> float:
        """Permanent distance below the baseline that is tolerated, in quality."""
        return budget.TOLERATED * self.settings.min_drop

    @property
    def null(self) -> float:
        """Baseline − tolerance; for a baseline that varies with time, from its overall level."""
        return self.baseline.level - self.tolerated

    @property
    def z(self) -> float:
        """Largest number of standard errors that any window requires."""
        return max(self.windows.values())

    @property
    def to_see(self) -> float:
        """Effective scores with which a window detects half of the drops of ``min_drop``; pass/fail, others need fewer.

        Infinite if the mean varies by as much.
        """
        return self.scores_to_see(self.settings.min_drop, max(self.windows), self.z)

    def scores_to_see(self, drop: float, window_s: float, z: float) -> float:
        """Return the effective scores with which a window of a length detects half of the drops."""
        strays = {"baseline_sd": self.baseline.baseline_sd_of(window_s), "design_effect": self.baseline.design_effect}
        return budget.scores_to_see(drop, null=self.null, tolerated=self.tolerated, z=z, **strays)

    @property
    def holds(self) -> bool:
        """Whether the stated rate of false alarms holds; it is not proven for continuous metrics below 0.5."""
        return self.binary or self.baseline.lowest >= 0.5  # noqa: PLR2004


def plans_of(
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring,
    judge_checks: Sequence[JudgeCheckPlan] = (),
) -> list[DropPlan]:
    """Return the monitoring of drops for each metric with a baseline.

    All metrics, judge checks and listed services share the budget of false alarms.

    Raises:
        ConfigurationError: a baseline's file is missing or lacks the metric, or a baseline does not fit the windows.
    """
    known = [(metric, alerts[metric.name]) for metric in metrics if metric.name in alerts]
    dropping = [(metric, alert) for metric, alert in known if alert.baseline is not None and metric.scale.range]
    shares = len(dropping) * len(streams_of(shared)) * len(shared.windows) + len(judge_checks)
    shares *= max(1, len(shared.services))
    plans = []
    for metric, alert in dropping:
        baseline = baseline_of(metric.name, alert)
        assert baseline is not None  # metrics without a baseline were left out above
        baseline.refuse_overlap(metric.name, max(shared.windows))
        every_s = alert.false_alarm_every
        z_of = partial(budget.critical_z, interval_s=shared.interval, every_s=every_s, shares=shares)
        windows = {window: alert.z or z_of(window_s=window) for window in shared.windows}
        plans.append(DropPlan(metric.name, alert, metric.scale, baseline, windows, least_of(alert)))
    return plans


def least_of(alert: AlertSettings) -> int:
    """Return the effective scores that a window of a metric needs before its mean is compared."""
    return alert.min_scores or budget.MIN_SCORES


def plan_records(plans: Sequence[DropPlan], shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the normal quality and the windows that detect a drop; empty without plans."""
    if not plans:
        return
    for plan in plans:
        yield from _numbers(plan)
    for window in shared.windows:
        labels = {recorded.WINDOW: promql.duration(window)}
        yield {"record": recorded.CRITICAL, "expr": "\nor ".join(_critical(plans, window)), "labels": labels}
    pinned = {plan.metric: plan.settings.evaluator_version for plan in plans if plan.settings.evaluator_version}
    yield {"record": recorded.WATCHED, "expr": recorded.watched(promql.duration(max(shared.windows)), pinned)}
    if hourly := [plan.metric for plan in plans if plan.baseline.hours]:
        yield from recorded.normal_by_hour_records(hourly, shared)
    offsets: dict[str, list[str]] = {}
    for plan in plans:
        if plan.baseline.offset_s:
            offsets.setdefault(promql.duration(plan.baseline.offset_s), []).append(plan.metric)
    strays = any(plan.baseline.strays for plan in plans)
    yield from recorded.drop_records(shared.windows, offsets, strays=strays, interval_s=shared.interval)


def _numbers(plan: DropPlan) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the numbers of a plan."""
    baseline, metric = plan.baseline, plan.metric
    yield recorded.constant(recorded.TOLERANCE, plan.tolerated, metric)
    if baseline.hours:
        own = {promql.METRIC: metric}
        yield {"record": recorded.NORMAL_NOW, "expr": recorded.normal_by_hour(baseline.hours), "labels": own}
    elif not baseline.offset_s:
        yield recorded.constant(recorded.BASELINE, baseline.level, metric)
    if baseline.strays:
        yield recorded.constant(recorded.DESIGN_EFFECT, baseline.design_effect - 1, metric)
        for window in plan.windows:
            variance = baseline.baseline_sd_of(window) ** 2
            yield recorded.constant(recorded.BASELINE_VARIANCE, variance, metric, window=promql.duration(window))


def _critical(plans: Sequence[DropPlan], window: float) -> Iterator[str]:
    """Yield z² of a window, once per group of metrics with the same value."""
    by_z: dict[float, list[str]] = {}
    for plan in plans:
        by_z.setdefault(plan.windows[window], []).append(plan.metric)
    for z, metrics in by_z.items():
        where = f"{{{listed(metrics)}}}" if len(by_z) > 1 else ""
        yield f"0 * {recorded.TOLERANCE}{where} + {z * z:.4g}"


def drop(plans: Sequence[DropPlan], shared: Monitoring, judge_checks: Sequence[JudgeCheckPlan] = ()) -> Alert:
    """Return the alert on a drop: one per metric, service, evaluator version and segment, for all windows together."""
    own, lengths = f"{recorded.DROP}{{{promql.OWN}}}", sorted(shared.windows)
    one_of = f"without ({recorded.WINDOW})"
    names = map(promql.duration, lengths)
    seen = {window: f'{recorded.DROP}{{{recorded.WINDOW}="{window}",{promql.OWN}}}' for window in names}
    scales = {plan.metric: plan.scale for plan in plans}
    return Alert(
        name="SpanscoreQualityDrop",
        expression=f"min without ({recorded.WINDOW}) ({recorded.DROP})",
        labels=labels_of(of_metric({plan.metric: literal(plan.settings.severity) for plan in plans}), OF_METRIC),
        summary=f"{OF_METRIC} has dropped{FOR_SEGMENT}",
        text=f"{mean_of(scales)} fell from {{normal}}{of_metric({plan.metric: plan.baseline.text for plan in plans})} to "
        f"{{value}}, since {{since}} UTC, over{''.join(f'{{window_{one}}}' for one in seen)} ({{service}}; {{scores}} scores). "
        f"Check first for a release at that time.{told_by(judge_checks)}{{worst}} "
        f"{of_metric({plan.metric: _promise(plan) for plan in plans})}",
        figures={
            "normal": AlertNumber(f"max {one_of} ({recorded.NORMAL}{{{promql.OWN}}} and {own})"),
            "since": AlertNumber(
                f"{recorded.SINCE}{{{promql.OWN}}}", pipe='humanizeTimestamp | reReplaceAll ":[0-9.]+ .*" ""'
            ),
            **{f"window_{one}": AlertNumber(expression, f" {one}") for one, expression in seen.items()},
            "scores": AlertNumber(f"max {one_of} ({recorded.N_EFF}{{{promql.OWN}}} and {own})", "%.0f"),
            "from": AlertNumber(f"1000 * ({recorded.SINCE}{{{promql.OWN_SERVICE}}} - {_BEFORE_S:g})", "%.0f"),
            **figures_of(scales.values(), f"min {one_of} ({own})", recorded.steady_window(shared)),
            **judge_check_figures(judge_checks),
        },
        keep_s=max(lengths) // (KEPT * shared.interval) * shared.interval,
    )


def _promise(plan: DropPlan) -> str:
    """Return the sentence on the rate of false alarms, and the runbook."""
    every = promql.duration(plan.settings.false_alarm_every)
    where = "of this service" if plan.baseline.is_learned else "if quality does not vary by itself"
    text = f"At most one false alarm in {every}, {where}."
    if not plan.holds:
        text = "Baseline below 0.5: for a continuous metric false alarms may be more frequent than configured."
    return f"{text} Runbook: {literal(plan.settings.runbook)}" if plan.settings.runbook else text


def threshold(metrics: Sequence[Metric], settings: Mapping[str, AlertSettings], shared: Monitoring) -> Alert:
    """Return the alert on metrics below their threshold."""
    window = recorded.steady_window(shared)
    where = f'{{{recorded.WINDOW}="{window}"}}'
    lowest, least = (f"on ({promql.METRIC}) group_left () {name}" for name in (recorded.THRESHOLD, recorded.MIN_SCORES))
    below = f"{recorded.MEAN}{where} < {lowest}\nand {recorded.N_EFF}{where} >= {least}"
    own = f'{{{recorded.WINDOW}="{window}",{promql.OWN}}}'
    named = of_metric({metric.name: f"{settings[metric.name].threshold:g}" for metric in metrics})
    pinned = {metric.name: one for metric in metrics if (one := settings[metric.name].evaluator_version)}
    scales = {metric.name: metric.scale for metric in metrics}
    return Alert(
        name="SpanscoreQualityBelowThreshold",
        expression=recorded.among(recorded.spoken(pinned), below),
        labels=labels_of(
            of_metric({one.name: literal(settings[one.name].severity) for one in metrics}), OF_METRIC, window
        ),
        summary=f"{OF_METRIC} is below {named}{FOR_SEGMENT}",
        text=f"{mean_of(scales)} is {{value}} over {window}, below its threshold of {named} ({{service}}; {{scores}} scores)."
        "{worst}",
        figures={
            "scores": AlertNumber(recorded.N_EFF + own, "%.0f"),
            **figures_of(scales.values(), recorded.MEAN + own, window),
        },
    )


# A window contains a drop of d in the share of its scores that came since: d̄ = d · share. With ``scores_to_see(d̄)``
# scores, a window alerts half of the time; with n scores, with probability Φ(z·√(n ⁄ that number) − z). In a time that
# contains m consecutive windows, the probability is 1 − Π (1 − p). Real windows overlap and are evaluated more often, so a
# drop is detected somewhat sooner.

_HOUR_S = 3_600.0
_HALF = 0.5
_STEPS = 20
"""Bisections of [0, 1]: to 1e-6."""
_normal = NormalDist()
_Looks = Mapping[tuple[float, float], int]
"""Effective scores of a window, and the share of them since the drop → number of such windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestDrop:
    """The smallest drop that alerts within a time, half of the time; None = no drop does.

    Attributes:
        within_s: seconds since the drop began.
        at_best: smallest drop if it begins at the best hour of the traffic profile.
        at_worst: smallest drop if it begins at the worst hour.
    """

    within_s: float
    at_best: float | None
    at_worst: float | None


def smallest_drop(plan: DropPlan, *, scores: Sequence[float], within_s: float) -> SmallestDrop:
    """Return the smallest detectable drop of a pass/fail metric; that of a continuous metric is smaller.

    Args:
        scores: effective scores of each hour; the last hour is followed by the first.
        within_s: seconds since the drop began.
    """
    # Within a whole number of periods the hour of the start does not matter.
    begins = range(1 if within_s % (len(scores) * _HOUR_S) == 0 else len(scores))
    found = [
        _smallest(plan, {window: _looks(scores, window, hour, within_s) for window in plan.windows}) for hour in begins
    ]
    seen = [drop for drop in found if drop is not None]
    return SmallestDrop(
        within_s=within_s,
        at_best=min(seen, default=None),
        at_worst=max(seen) if len(seen) == len(found) else None,
    )


def _smallest(plan: DropPlan, windows: Mapping[float, _Looks]) -> float | None:
    lowest, highest = 0.0, plan.baseline.level  # a mean cannot drop below 0
    if not _is_seen(plan, windows, highest):
        return None
    for _ in range(_STEPS):
        middle = (lowest + highest) / 2
        lowest, highest = (lowest, middle) if _is_seen(plan, windows, middle) else (middle, highest)
    return highest


def _is_seen(plan: DropPlan, windows: Mapping[float, _Looks], drop: float) -> bool:
    return any(1 - prod(_unseen(plan, window, looks, drop)) >= _HALF for window, looks in windows.items())


def _unseen(plan: DropPlan, window_s: float, looks: _Looks, drop: float) -> Iterator[float]:
    """Yield the probability that the windows of a length do not detect a drop."""
    means = 2 if plan.baseline.offset_s else 1  # an offset baseline is a mean with its own error
    z = plan.windows[window_s]
    for (scores, share), times in looks.items():
        if scores >= plan.least:
            half = means * plan.scores_to_see(drop * share, window_s, z)
            yield _normal.cdf(z - z * sqrt(scores / half)) ** times


def _looks(scores: Sequence[float], window_s: float, begin: int, within_s: float) -> _Looks:
    """Return the scores of the consecutive windows since a drop began; of one window that began earlier if none has ended."""
    whole = floor(within_s / window_s)
    if not whole:
        since = _held(scores, begin, begin + within_s / _HOUR_S)
        held = since + _held(scores, begin - (window_s - within_s) / _HOUR_S, begin)
        return {(held, since / held): 1} if held else {}
    hours = window_s / _HOUR_S
    return Counter((_held(scores, begin + i * hours, begin + (i + 1) * hours), 1.0) for i in range(whole))


def _held(scores: Sequence[float], begin: float, end: float) -> float:
    """Return the scores between two times, both in hours."""
    return sum(
        scores[hour % len(scores)] * (min(end, hour + 1) - max(begin, hour)) for hour in range(floor(begin), ceil(end))
    )

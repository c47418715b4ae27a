"""Alerts on a drop of a mean and on a threshold, and the smallest drop that is detectable with given traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, prod, sqrt
from statistics import NormalDist
from typing import Any

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.core.score import PASS_FAIL
from spanscore.monitoring import estimates, promql, recorded
from spanscore.monitoring.alert import (
    FOR_SEGMENT,
    OF_METRIC,
    OF_SHARE,
    Alert,
    AlertNumber,
    figures_of,
    labels_of,
    listed,
    literal,
    mean_of,
    of_metric,
    share_labels,
    worst_share,
)
from spanscore.monitoring.baselines import Baseline, baseline_of
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_check_figures, shares_of_false_alarms
from spanscore.monitoring.watched_means import IS_SHARE, WatchedMean

# All expressions use quality (1 is good), so that a drop has one direction for each scale.

KEPT = 72
"""Share of the longest window for which an alert stays on after the last drop, because a mean near the limit fluctuates."""
_DIGITS = 12
_BEFORE_S = 3_600
"""Seconds before a drop that a dashboard link shows."""


@dataclass(frozen=True, slots=True)
class DropPlan:
    """The monitoring of one metric's drops.

    Attributes:
        watched: the mean: the quality of the metric, or the share of units without a category; of roots or of inner units.
        windows: length in s → standard errors below the tolerated mean at which the window detects a drop.
        least: effective scores that a window needs.
    """

    watched: WatchedMean
    baseline: Baseline
    windows: Mapping[float, float]
    least: int

    @property
    def stated_baseline(self) -> float:
        """The baseline as the configuration states it: the normal quality, or the normal share."""
        return round(1 - self.baseline.level, _DIGITS) if self.watched.category else self.baseline.level

    @property
    def tolerated(self) -> float:
        """Permanent distance below the baseline that is tolerated, in quality."""
        return estimates.TOLERATED * self.watched.settings.least_change

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
        return self.scores_to_see(self.watched.settings.least_change, max(self.windows), self.z)

    def scores_to_see(self, drop: float, window_s: float, z: float) -> float:
        """Return the effective scores with which a window of a length detects half of the drops."""
        strays = {"baseline_sd": self.baseline.baseline_sd_of(window_s), "design_effect": self.baseline.design_effect}
        return estimates.scores_to_see(drop, null=self.null, tolerated=self.tolerated, z=z, **strays)

    @property
    def holds(self) -> bool:
        """Whether the stated rate of false alarms holds. The rate is not proven for continuous metrics below 0.5."""
        return self.watched.scale.kind in PASS_FAIL or self.baseline.lowest >= 0.5  # noqa: PLR2004


def plans_of(
    means: Sequence[WatchedMean], shared: Monitoring, judge_checks: Sequence[JudgeCheckPlan] = ()
) -> list[DropPlan]:
    """Return the monitoring of drops for each mean with a baseline.

    All means, judge checks and listed services share the budget of false alarms.

    Raises:
        ConfigurationError: a baseline's file is missing or lacks the metric, or a baseline does not fit the windows.
    """
    shares = shares_of_false_alarms(means, shared, judge_checks=len(judge_checks))
    plans = []
    for mean in means:
        alert = mean.settings
        baseline = baseline_of(mean.metric, alert) if mean.watches_drops else None
        if baseline is None:
            continue
        baseline.refuse_overlap(mean.metric, max(shared.windows))
        every_s = alert.false_alarm_every
        z_of = partial(estimates.critical_z, interval_s=shared.interval, every_s=every_s, shares=shares)
        windows = {window: alert.z or z_of(window_s=window) for window in shared.windows}
        plans.append(DropPlan(mean, baseline, windows, least_of(alert)))
    return plans


def least_of(alert: AlertSettings) -> int:
    """Return the effective scores that a window of a metric needs before its mean is compared."""
    return alert.min_scores or estimates.MIN_SCORES


def plan_records(plans: Sequence[DropPlan], shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the normal quality and the windows that detect a drop; empty without plans."""
    if not plans:
        return
    for plan in plans:
        yield from _numbers(plan)
    for window in shared.windows:
        labels = {recorded.WINDOW: promql.duration(window)}
        yield {"record": recorded.CRITICAL, "expr": "\nor ".join(_critical(plans, window)), "labels": labels}
    pinned = _pinned_versions(plan.watched for plan in plans)
    watched = recorded.watched(promql.duration(max(shared.windows)), pinned, [plan.watched for plan in plans])
    yield {"record": recorded.WATCHED, "expr": watched}
    if hourly := [plan.watched.name for plan in plans if plan.baseline.hours]:
        yield from recorded.normal_by_hour_records(hourly, shared)
    offsets: dict[str, list[str]] = {}
    for plan in plans:
        if plan.baseline.offset_s:
            offsets.setdefault(promql.duration(plan.baseline.offset_s), []).append(plan.watched.name)
    strays = any(plan.baseline.strays for plan in plans)
    yield from recorded.drop_records(shared.windows, offsets, strays=strays, interval_s=shared.interval)


def _pinned_versions(means: Iterable[WatchedMean]) -> dict[str, str]:
    """Return name → the only evaluator version that is watched, for means with one."""
    return {mean.name: version for mean in means if (version := mean.settings.evaluator_version)}


def _numbers(plan: DropPlan) -> Iterator[dict[str, Any]]:
    """Yield the rules that record the numbers of a plan."""
    baseline, metric = plan.baseline, plan.watched.name
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
        by_z.setdefault(plan.windows[window], []).append(plan.watched.name)
    for z, metrics in by_z.items():
        where = f"{{{listed(metrics)}}}" if len(by_z) > 1 else ""
        yield f"0 * {recorded.TOLERANCE}{where} + {z * z:.4g}"


def drop(plans: Sequence[DropPlan], shared: Monitoring, judge_checks: Sequence[JudgeCheckPlan] = ()) -> Iterator[Alert]:
    """Yield the alert on drops of quality, if a metric has one.

    It fires per metric, service, evaluator version and segment, for all windows together.
    """
    plans = [plan for plan in plans if not plan.watched.category]
    if not plans:
        return
    scales = {plan.watched.name: plan.watched.scale for plan in plans}
    checked = {check.metric for check in judge_checks} & {plan.watched.metric for plan in plans}
    of_judge = judge_check_figures() if checked else {}
    yield Alert(
        name="SpanscoreQualityDrop",
        expression=f'min without ({recorded.WINDOW}) ({recorded.DROP}{{{promql.METRIC}!~"{IS_SHARE}"}})',
        labels=labels_of(
            of_metric({plan.watched.name: literal(plan.watched.settings.severity) for plan in plans}), OF_METRIC
        ),
        summary=f"{OF_METRIC} has dropped{FOR_SEGMENT}",
        text=f"{mean_of(scales)} fell {_story(plans, shared, of_judge)}",
        figures={
            "normal": AlertNumber(f"max {_ONE_OF} ({recorded.NORMAL}{{{promql.OWN}}} and {_OWN_DROP})"),
            **_figures(shared),
            **figures_of(scales.values(), f"min {_ONE_OF} ({_OWN_DROP})", recorded.steady_window(shared)),
            **of_judge,
        },
        keep_s=_kept_s(shared),
    )


def rise(plans: Sequence[DropPlan], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alert on rises of shares, if a share has one. It fires per share, service, evaluator version and segment."""
    plans = [plan for plan in plans if plan.watched.category]
    if not plans:
        return
    value = f"(1 - min {_ONE_OF} ({_OWN_DROP}))"
    yield Alert(
        name="SpanscoreShareRise",
        expression=f'1 - min without ({recorded.WINDOW}) ({recorded.DROP}{{{promql.METRIC}=~"{IS_SHARE}"}})',
        labels=share_labels(of_metric({plan.watched.name: literal(plan.watched.settings.severity) for plan in plans})),
        summary=f"the share of {OF_SHARE} has risen{FOR_SEGMENT}",
        text=f"The share of {OF_SHARE}{FOR_SEGMENT} rose {_story(plans, shared)}",
        figures={
            "normal": AlertNumber(f"1 - max {_ONE_OF} ({recorded.NORMAL}{{{promql.OWN}}} and {_OWN_DROP})"),
            **_figures(shared),
            "worst": worst_share(value, recorded.steady_window(shared)),
        },
        keep_s=_kept_s(shared),
    )


_ONE_OF = f"without ({recorded.WINDOW})"
_OWN_DROP = f"{recorded.DROP}{{{promql.OWN}}}"


def _story(plans: Sequence[DropPlan], shared: Monitoring, of_judge: Iterable[str] = ()) -> str:
    """Return the text on a change from its normal level on."""
    windows = "".join(f"{{window_{promql.duration(length)}}}" for length in sorted(shared.windows))
    judge = "".join(f"{{{figure}}}" for figure in of_judge)
    return (
        f"from {{normal}}{of_metric({plan.watched.name: plan.baseline.text for plan in plans})} to "
        f"{{value}}, since {{since}} UTC, over{windows} ({{service}}; {{scores}} scores). "
        f"Check first for a release at that time.{judge}{{worst}} "
        f"{of_metric({plan.watched.name: _promise(plan) for plan in plans})}"
    )


def _figures(shared: Monitoring) -> dict[str, AlertNumber]:
    """Return the start, windows and scores of a change."""
    seen = {
        window: f'{recorded.DROP}{{{recorded.WINDOW}="{window}",{promql.OWN}}}'
        for window in map(promql.duration, sorted(shared.windows))
    }
    return {
        "since": AlertNumber(
            f"{recorded.SINCE}{{{promql.OWN}}}", pipe='humanizeTimestamp | reReplaceAll ":[0-9.]+ .*" ""'
        ),
        **{f"window_{window}": AlertNumber(expression, f" {window}") for window, expression in seen.items()},
        "scores": AlertNumber(f"max {_ONE_OF} ({recorded.N_EFF}{{{promql.OWN}}} and {_OWN_DROP})", "%.0f"),
        "from": AlertNumber(f"1000 * ({recorded.SINCE}{{{promql.OWN_SERVICE}}} - {_BEFORE_S:g})", "%.0f"),
    }


def _kept_s(shared: Monitoring) -> float:
    return max(shared.windows) // (KEPT * shared.interval) * shared.interval


def _promise(plan: DropPlan) -> str:
    """Return the sentence on the rate of false alarms, and the runbook."""
    every = promql.duration(plan.watched.settings.false_alarm_every)
    where = "of this service" if plan.baseline.is_learned else "if quality does not vary by itself"
    text = f"At most one false alarm in {every}, {where}."
    if not plan.holds:
        text = "Baseline below 0.5: for a continuous metric false alarms may be more frequent than configured."
    return f"{text} Runbook: {literal(plan.watched.settings.runbook)}" if plan.watched.settings.runbook else text


def threshold(means: Sequence[WatchedMean], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alert on metrics below their threshold, if a metric has one."""
    means = [mean for mean in means if mean.settings.threshold is not None]
    if not means:
        return
    window = recorded.steady_window(shared)
    own = f'{{{recorded.WINDOW}="{window}",{promql.OWN}}}'
    named = of_metric({mean.name: f"{mean.settings.threshold:g}" for mean in means})
    scales = {mean.name: mean.scale for mean in means}
    yield Alert(
        name="SpanscoreQualityBelowThreshold",
        expression=_beyond(f"{recorded.MEAN}{{where}} < {{limit}}", recorded.THRESHOLD, means, shared),
        labels=labels_of(of_metric({mean.name: literal(mean.settings.severity) for mean in means}), OF_METRIC, window),
        summary=f"{OF_METRIC} is below {named}{FOR_SEGMENT}",
        text=f"{mean_of(scales)} is {{value}} over {window}, below its threshold of {named} ({{service}}; {{scores}} scores)."
        "{worst}",
        figures={
            "scores": AlertNumber(recorded.N_EFF + own, "%.0f"),
            **figures_of(scales.values(), recorded.MEAN + own, window),
        },
    )


def above_max(means: Sequence[WatchedMean], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alert on shares above their highest acceptable value, if a share has one."""
    means = [mean for mean in means if mean.settings.max is not None]
    if not means:
        return
    window = recorded.steady_window(shared)
    own = f'{{{recorded.WINDOW}="{window}",{promql.OWN}}}'
    named = of_metric({mean.name: f"{mean.settings.max:g}" for mean in means})
    yield Alert(
        name="SpanscoreShareAboveMax",
        expression=_beyond(f"1 - {recorded.MEAN}{{where}} > {{limit}}", recorded.MAX_SHARE, means, shared),
        labels=share_labels(of_metric({mean.name: literal(mean.settings.severity) for mean in means}), window),
        summary=f"the share of {OF_SHARE} is above {named}{FOR_SEGMENT}",
        text=f"The share of {OF_SHARE}{FOR_SEGMENT} is {{value}} over {window}, above its max of {named} ({{service}}; "
        "{scores} scores).{worst}",
        figures={
            "scores": AlertNumber(recorded.N_EFF + own, "%.0f"),
            "worst": worst_share(f"(1 - {recorded.MEAN}{own})", window),
        },
    )


def _beyond(comparison: str, record: str, means: Sequence[WatchedMean], shared: Monitoring) -> str:
    """Return the steady window's means beyond a recorded limit, with enough scores, of the present evaluator versions."""
    where = f'{{{recorded.WINDOW}="{recorded.steady_window(shared)}"}}'
    limit, least = (f"on ({promql.METRIC}) group_left () {name}" for name in (record, recorded.MIN_SCORES))
    beyond = f"{comparison.format(where=where, limit=limit)}\nand {recorded.N_EFF}{where} >= {least}"
    return recorded.among(recorded.spoken(_pinned_versions(means)), beyond)


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

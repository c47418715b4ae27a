"""Alerts on a mean that drops or is below a threshold, and the smallest drop that they detect with given traffic."""

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
    METRIC_NAME,
    SHARE_NAME,
    Alert,
    AlertNumber,
    alert_labels,
    by_metric,
    describe_mean,
    literal,
    match_metrics,
    mean_figures,
    share_labels,
    worst_share,
)
from spanscore.monitoring.baselines import Baseline, baseline_of
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_check_figures, shares_of_false_alarms
from spanscore.monitoring.watched_means import IS_SHARE, WatchedMean

KEEP_DIVISOR = 72
"""An alert stays on for 1 ⁄ 72 of the longest window after the last drop, because a mean near the limit fluctuates."""
_DIGITS = 12
_BEFORE_S = 3_600
"""Seconds before a drop that a dashboard link shows."""


@dataclass(frozen=True, slots=True)
class DropPlan:
    """The monitoring of one mean's drops. The mean is a quality (1 is good), so that a drop is bad on every scale.

    Attributes:
        windows: length in s → number of standard errors below the tolerated mean at which the window detects a drop.
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
        """Distance below the baseline that is no drop, in quality."""
        return estimates.TOLERATED * self.watched.settings.least_change

    @property
    def null(self) -> float:
        """Mean of the null hypothesis, which a drop rejects: baseline − tolerance. A varying baseline counts by its mean."""
        return self.baseline.level - self.tolerated

    @property
    def z(self) -> float:
        """Largest number of standard errors that any window requires."""
        return max(self.windows.values())

    @property
    def to_see(self) -> float:
        """Effective scores with which the longest window detects half of the drops of ``min_drop`` of a pass/fail metric.

        Other metrics need fewer. Infinite if the mean varies by as much without a drop.
        """
        return self.scores_to_see(self.watched.settings.least_change, max(self.windows), self.z)

    def scores_to_see(self, drop: float, window_s: float, z: float) -> float:
        """Return the effective scores with which a window of a length detects half of the drops of this size."""
        return estimates.scores_to_see(
            drop,
            null=self.null,
            tolerated=self.tolerated,
            z=z,
            baseline_sd=self.baseline.baseline_sd_of(window_s),
            design_effect=self.baseline.design_effect,
        )

    @property
    def is_rate_proven(self) -> bool:
        """Whether the configured rate of false alarms is kept for certain; False for a continuous metric below 0.5."""
        return self.watched.scale.kind in PASS_FAIL or self.baseline.lowest >= 0.5  # noqa: PLR2004


def plans_of(
    means: Sequence[WatchedMean], shared: Monitoring, judge_checks: Sequence[JudgeCheckPlan] = ()
) -> list[DropPlan]:
    """Return the monitoring of drops for each mean with a baseline.

    All means, judge checks and listed services share the configured rate of false alarms.

    Raises:
        ConfigurationError: a baseline's file is missing or lacks the metric, or a baseline does not fit the windows.
    """
    shares = shares_of_false_alarms(means, shared, judge_checks=len(judge_checks))
    plans = []
    for mean in means:
        alert = mean.settings
        baseline = baseline_of(mean.subject, alert) if mean.watches_drops else None
        if baseline is None:
            continue
        baseline.refuse_overlap(mean.subject, max(shared.windows))
        every_s = alert.false_alarm_every
        z_of = partial(estimates.critical_z, interval_s=shared.interval, every_s=every_s, shares=shares)
        windows = {window: alert.z or z_of(window_s=window) for window in shared.windows}
        plans.append(DropPlan(mean, baseline, windows, least_of(alert)))
    return plans


def least_of(alert: AlertSettings) -> int:
    """Return the effective scores that a window of a metric needs before its mean is compared with a limit."""
    return alert.min_scores or estimates.MIN_SCORES


def plan_records(plans: Sequence[DropPlan], shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield the recording rules of the plans: the normal quality, and the windows that detect a drop. Empty without plans."""
    if not plans:
        return
    for plan in plans:
        yield from _plan_constants(plan)
    for window in shared.windows:
        labels = {recorded.WINDOW: promql.duration(window)}
        yield {"record": recorded.CRITICAL, "expr": "\nor ".join(_critical_z2(plans, window)), "labels": labels}
    pinned = _pinned_versions(plan.watched for plan in plans)
    watched = recorded.watched_versions(promql.duration(max(shared.windows)), pinned, [plan.watched for plan in plans])
    yield {"record": recorded.WATCHED, "expr": watched}
    if hourly := [plan.watched.name for plan in plans if plan.baseline.hours]:
        yield from recorded.normal_by_hour_records(hourly, shared)
    offsets: dict[str, list[str]] = {}
    for plan in plans:
        if plan.baseline.offset_s:
            offsets.setdefault(promql.duration(plan.baseline.offset_s), []).append(plan.watched.name)
    varies = any(plan.baseline.varies for plan in plans)
    yield from recorded.drop_records(shared.windows, offsets, varies=varies, interval_s=shared.interval)


def _pinned_versions(means: Iterable[WatchedMean]) -> dict[str, str]:
    return {mean.name: version for mean in means if (version := mean.settings.evaluator_version)}


def _plan_constants(plan: DropPlan) -> Iterator[dict[str, Any]]:
    baseline, metric = plan.baseline, plan.watched.name
    yield recorded.constant(recorded.TOLERANCE, plan.tolerated, metric)
    if baseline.hours:
        own = {promql.METRIC: metric}
        yield {"record": recorded.NORMAL_NOW, "expr": recorded.normal_by_hour(baseline.hours), "labels": own}
    elif not baseline.offset_s:
        yield recorded.constant(recorded.BASELINE, baseline.level, metric)
    if baseline.varies:
        yield recorded.constant(recorded.DESIGN_EFFECT, baseline.design_effect - 1, metric)
        for window in plan.windows:
            variance = baseline.baseline_sd_of(window) ** 2
            yield recorded.constant(recorded.BASELINE_VARIANCE, variance, metric, window=promql.duration(window))


def _critical_z2(plans: Sequence[DropPlan], window: float) -> Iterator[str]:
    """Yield expressions of z², one for all metrics with the same value."""
    by_z: dict[float, list[str]] = {}
    for plan in plans:
        by_z.setdefault(plan.windows[window], []).append(plan.watched.name)
    for z, metrics in by_z.items():
        where = f"{{{match_metrics(metrics)}}}" if len(by_z) > 1 else ""
        yield f"0 * {recorded.TOLERANCE}{where} + {z * z:.4g}"


def quality_drop(
    plans: Sequence[DropPlan], shared: Monitoring, judge_checks: Sequence[JudgeCheckPlan] = ()
) -> Iterator[Alert]:
    """Yield the alert on drops of quality; empty without a plan on quality.

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
        labels=alert_labels(
            by_metric({plan.watched.name: literal(plan.watched.settings.severity) for plan in plans}), METRIC_NAME
        ),
        summary=f"{METRIC_NAME} has dropped{FOR_SEGMENT}",
        text=f"{describe_mean(scales)} fell {_describe_change(plans, shared, of_judge)}",
        figures={
            "normal": AlertNumber(f"max {_ONE_OF} ({recorded.NORMAL}{{{promql.OWN}}} and {_OWN_DROP})"),
            **_change_figures(shared),
            **mean_figures(scales.values(), f"min {_ONE_OF} ({_OWN_DROP})", recorded.steady_window(shared)),
            **of_judge,
        },
        keep_s=_keep_s(shared),
    )


def share_rise(plans: Sequence[DropPlan], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alert on rises of shares; empty without a plan on a share.

    It fires per share, service, evaluator version and segment, for all windows together.
    """
    plans = [plan for plan in plans if plan.watched.category]
    if not plans:
        return
    value = f"(1 - min {_ONE_OF} ({_OWN_DROP}))"
    yield Alert(
        name="SpanscoreShareRise",
        expression=f'1 - min without ({recorded.WINDOW}) ({recorded.DROP}{{{promql.METRIC}=~"{IS_SHARE}"}})',
        labels=share_labels(by_metric({plan.watched.name: literal(plan.watched.settings.severity) for plan in plans})),
        summary=f"the share of {SHARE_NAME} has risen{FOR_SEGMENT}",
        text=f"The share of {SHARE_NAME}{FOR_SEGMENT} rose {_describe_change(plans, shared)}",
        figures={
            "normal": AlertNumber(f"1 - max {_ONE_OF} ({recorded.NORMAL}{{{promql.OWN}}} and {_OWN_DROP})"),
            **_change_figures(shared),
            "worst": worst_share(value, recorded.steady_window(shared)),
        },
        keep_s=_keep_s(shared),
    )


_ONE_OF = f"without ({recorded.WINDOW})"
"""Grouping of an aggregation over the windows."""
_OWN_DROP = f"{recorded.DROP}{{{promql.OWN}}}"


def _describe_change(plans: Sequence[DropPlan], shared: Monitoring, of_judge: Iterable[str] = ()) -> str:
    """Return the end of an alert's text about a change: ``from 0.85 … to 0.7, since …``."""
    windows = "".join(f"{{window_{promql.duration(length)}}}" for length in sorted(shared.windows))
    judge = "".join(f"{{{figure}}}" for figure in of_judge)
    return (
        f"from {{normal}}{by_metric({plan.watched.name: plan.baseline.text for plan in plans})} to "
        f"{{value}}, since {{since}} UTC, over{windows} ({{service}}; {{scores}} scores). "
        f"Check first for a release at that time.{judge}{{worst}} "
        f"{by_metric({plan.watched.name: _false_alarm_note(plan) for plan in plans})}"
    )


def _change_figures(shared: Monitoring) -> dict[str, AlertNumber]:
    since = f"{recorded.SINCE}{{{promql.OWN}}}"
    by_window = {
        f"window_{window}": AlertNumber(f'{recorded.DROP}{{{recorded.WINDOW}="{window}",{promql.OWN}}}', f" {window}")
        for window in map(promql.duration, sorted(shared.windows))
    }
    return {
        "since": AlertNumber(since, pipe='humanizeTimestamp | reReplaceAll ":[0-9.]+ .*" ""'),
        **by_window,
        "scores": AlertNumber(f"max {_ONE_OF} ({recorded.N_EFF}{{{promql.OWN}}} and {_OWN_DROP})", "%.0f"),
        "from": AlertNumber(f"1000 * ({recorded.SINCE}{{{promql.OWN_SERVICE}}} - {_BEFORE_S:g})", "%.0f"),
    }


def _keep_s(shared: Monitoring) -> float:
    return max(shared.windows) // (KEEP_DIVISOR * shared.interval) * shared.interval


def _false_alarm_note(plan: DropPlan) -> str:
    every = promql.duration(plan.watched.settings.false_alarm_every)
    where = "of this service" if plan.baseline.is_learned else "if quality does not vary by itself"
    text = f"At most one false alarm in {every}, {where}."
    if not plan.is_rate_proven:
        text = "Baseline below 0.5: for a continuous metric false alarms may be more frequent than configured."
    return f"{text} Runbook: {literal(plan.watched.settings.runbook)}" if plan.watched.settings.runbook else text


def quality_below_threshold(means: Sequence[WatchedMean], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alert on metrics below their threshold; empty if no metric has one."""
    means = [mean for mean in means if mean.settings.threshold is not None]
    if not means:
        return
    window = recorded.steady_window(shared)
    own = f'{{{recorded.WINDOW}="{window}",{promql.OWN}}}'
    limit = by_metric({mean.name: f"{mean.settings.threshold:g}" for mean in means})
    scales = {mean.name: mean.scale for mean in means}
    yield Alert(
        name="SpanscoreQualityBelowThreshold",
        expression=_beyond_limit(f"{recorded.MEAN}{{matchers}} < {{limit}}", recorded.THRESHOLD, means, shared),
        labels=alert_labels(
            by_metric({mean.name: literal(mean.settings.severity) for mean in means}), METRIC_NAME, window
        ),
        summary=f"{METRIC_NAME} is below {limit}{FOR_SEGMENT}",
        text=f"{describe_mean(scales)} is {{value}} over {window}, below its threshold of {limit} "
        "({service}; {scores} scores).{worst}",
        figures={
            "scores": AlertNumber(recorded.N_EFF + own, "%.0f"),
            **mean_figures(scales.values(), recorded.MEAN + own, window),
        },
    )


def share_above_max(means: Sequence[WatchedMean], shared: Monitoring) -> Iterator[Alert]:
    """Yield the alert on shares above their highest acceptable value; empty if no share has one."""
    means = [mean for mean in means if mean.settings.max is not None]
    if not means:
        return
    window = recorded.steady_window(shared)
    own = f'{{{recorded.WINDOW}="{window}",{promql.OWN}}}'
    limit = by_metric({mean.name: f"{mean.settings.max:g}" for mean in means})
    yield Alert(
        name="SpanscoreShareAboveMax",
        expression=_beyond_limit(f"1 - {recorded.MEAN}{{matchers}} > {{limit}}", recorded.MAX_SHARE, means, shared),
        labels=share_labels(by_metric({mean.name: literal(mean.settings.severity) for mean in means}), window),
        summary=f"the share of {SHARE_NAME} is above {limit}{FOR_SEGMENT}",
        text=f"The share of {SHARE_NAME}{FOR_SEGMENT} is {{value}} over {window}, above its max of {limit} ({{service}}; "
        "{scores} scores).{worst}",
        figures={
            "scores": AlertNumber(recorded.N_EFF + own, "%.0f"),
            "worst": worst_share(f"(1 - {recorded.MEAN}{own})", window),
        },
    )


def _beyond_limit(comparison: str, record: str, means: Sequence[WatchedMean], shared: Monitoring) -> str:
    """Return the means of the steady window that are beyond a recorded limit.

    They must have enough scores, and be of an evaluator version that is written now.

    Args:
        comparison: PromQL with the places ``{matchers}`` of the window and ``{limit}``.
        record: name of the recorded limit.
    """
    matchers = f'{{{recorded.WINDOW}="{recorded.steady_window(shared)}"}}'
    limit, least = (f"on ({promql.METRIC}) group_left () {name}" for name in (record, recorded.MIN_SCORES))
    beyond = f"{comparison.format(matchers=matchers, limit=limit)}\nand {recorded.N_EFF}{matchers} >= {least}"
    return recorded.restrict(recorded.present_versions(_pinned_versions(means)), beyond)


_HOUR_S = 3_600.0
_HALF = 0.5
_STEPS = 20
"""Bisections of [0, 1]: to 1e-6."""
_NORMAL = NormalDist()
_Windows = Mapping[tuple[float, float], int]
"""Effective scores of a window, and the share of them since the drop began → number of such windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestDrop:
    """The smallest drops that are detected within a time with probability ½; None = not even the largest drop is.

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

    The mean of a window falls by d̄ = drop · share of its scores since the drop began. With N = ``scores_to_see(d̄)`` scores, the
    window detects the drop with probability ½; with n scores, with p = Φ(z·√(n ⁄ N) − z). Consecutive windows together detect
    it with probability 1 − Π (1 − p). Real windows overlap and are evaluated more often, so they detect a drop somewhat sooner.

    Args:
        scores: effective scores of each hour; the last hour is followed by the first.
        within_s: seconds since the drop began.
    """
    # Within a whole number of periods the hour of the start does not matter.
    starts = range(1 if within_s % (len(scores) * _HOUR_S) == 0 else len(scores))
    drops = [
        _smallest_detected(plan, {window: _windows_since(scores, window, hour, within_s) for window in plan.windows})
        for hour in starts
    ]
    detected = [drop for drop in drops if drop is not None]
    return SmallestDrop(
        within_s=within_s,
        at_best=min(detected, default=None),
        at_worst=max(detected) if len(detected) == len(drops) else None,
    )


def _smallest_detected(plan: DropPlan, windows: Mapping[float, _Windows]) -> float | None:
    lowest, highest = 0.0, plan.baseline.level  # a mean cannot drop below 0
    if not _is_detected(plan, windows, highest):
        return None
    for _ in range(_STEPS):
        middle = (lowest + highest) / 2
        lowest, highest = (lowest, middle) if _is_detected(plan, windows, middle) else (middle, highest)
    return highest


def _is_detected(plan: DropPlan, windows: Mapping[float, _Windows], drop: float) -> bool:
    """Return whether the windows of some length detect a drop with probability ½ or more."""
    return any(1 - prod(_miss_probabilities(plan, length, own, drop)) >= _HALF for length, own in windows.items())


def _miss_probabilities(plan: DropPlan, window_s: float, windows: _Windows, drop: float) -> Iterator[float]:
    """Yield the probabilities that equal windows of this length all miss a drop."""
    means = 2 if plan.baseline.offset_s else 1  # an offset baseline is a mean with its own error
    z = plan.windows[window_s]
    for (scores, share), count in windows.items():
        if scores >= plan.least:
            needed = means * plan.scores_to_see(drop * share, window_s, z)
            yield _NORMAL.cdf(z - z * sqrt(scores / needed)) ** count


def _windows_since(scores: Sequence[float], window_s: float, begin: int, within_s: float) -> _Windows:
    """Return the consecutive windows since a drop began; if the time is shorter than a window, the window that ends it.

    ``begin`` is the hour in which the drop began, ``within_s`` the time since then, in s.
    """
    count, hours = floor(within_s / window_s), window_s / _HOUR_S
    if not count:
        end = begin + within_s / _HOUR_S
        since, in_window = _scores_between(scores, begin, end), _scores_between(scores, end - hours, end)
        return {(in_window, since / in_window): 1} if in_window else {}
    return Counter((_scores_between(scores, begin + i * hours, begin + (i + 1) * hours), 1.0) for i in range(count))


def _scores_between(scores: Sequence[float], begin: float, end: float) -> float:
    return sum(
        scores[hour % len(scores)] * (min(end, hour + 1) - max(begin, hour)) for hour in range(floor(begin), ceil(end))
    )

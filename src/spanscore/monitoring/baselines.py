"""What the mean of a metric is held against: a number, what is normal in an hour of the week, or what was days before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import normal, promql
from spanscore.monitoring.alert import SEGMENT, streams_of
from spanscore.monitoring.baseline_file import read_profile
from spanscore.settings.alerting import AlertSettings, HourOfWeekBaseline, MonitoringSettings, OffsetBaseline
from spanscore.settings.durations import duration

__all__ = ["Baseline", "baseline_of", "baseline_records"]

UNKNOWN = 0.95
"""What is planned with where nobody knows what will have been: near 1, a pass/fail metric needs most scores."""
STEP = 4
"""Evaluations over which a counter's growth is seen at any usual interval of scrapes."""
_RECORDED = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is normal for one metric.

    Attributes:
        level: the quality that is normal: the number, or that of all hours; ``UNKNOWN`` where it is what was before.
        text: what stands behind "below": ``its baseline of 0.85``.
        hours: what is normal in each hour of the week, from Sunday 00:00 UTC on; empty = the same in all.
        offset_s: how long before it was; 0 = it is known.
        slack: length of a window in s → how far its true mean strays by itself, a standard deviation.
        clump: scores that say no more than one.
    """

    level: float
    text: str
    hours: tuple[float, ...] = ()
    offset_s: float = 0.0
    slack: Mapping[float, float] = field(default_factory=dict)
    clump: float = 1.0

    @property
    def is_recorded(self) -> bool:
        """Whether it is another one at other times, which a rule records."""
        return bool(self.hours or self.offset_s)

    @property
    def short(self) -> str:
        """It in a few words: ``0.85``, ``0.82 to 0.87 by hour``, ``that of 7 d before``."""
        if self.offset_s:
            return f"that of {duration(self.offset_s)} before"
        return f"{self.lowest:.3g} to {self.highest:.3g} by hour" if self.hours else f"{self.level:g}"

    @property
    def lowest(self) -> float:
        """What is normal in the worst hour."""
        return min(self.hours, default=self.level)

    @property
    def highest(self) -> float:
        """What is normal in the best hour."""
        return max(self.hours, default=self.level)

    def normal(self, window: str, where: str) -> str:
        """Return the expression of what is normal over a window."""
        return f"{promql.recorded_as(_RECORDED, window)}{{{where}}}" if self.is_recorded else f"{self.level:g}"

    def strays(self, window_s: float, where: str) -> str:
        """Return the variance of what is normal over a window: a number or an expression; empty = none."""
        parts = [f"{slack**2:.4g}"] if (slack := self.slack_of(window_s)) else []
        error = promql.Estimate.recorded(promql.duration(window_s), where).standard_error
        if self.clump > 1:
            parts.append(f"{self.clump - 1:.4g} * {error} ^ 2")
        if self.offset_s:
            parts.append(f"({error} offset {promql.duration(self.offset_s)}) ^ 2")
        return " + ".join(parts)

    def slack_of(self, window_s: float) -> float:
        """Return the slack of windows of a length: that of the longest one that is no longer, as it only falls with length."""
        shorter = [length for length in self.slack if length <= window_s]
        return self.slack[max(shorter, default=min(self.slack))] if self.slack else 0.0

    def refuse_overlap(self, metric: str, longest_s: float) -> None:
        """Refuse an offset shorter than the longest window, which would be held against itself.

        Raises:
            ConfigurationError: it is.
        """
        if 0 < self.offset_s < longest_s:
            raise ConfigurationError(
                f"alerts.{metric}.baseline.offset: {duration(self.offset_s)} is shorter than the window of "
                f"{duration(longest_s)}, which would be held against a part of itself; write a longer one"
            )


def baseline_of(metric: str, alert: AlertSettings) -> Baseline | None:
    """Return what is normal for a metric; None where nobody said.

    Raises:
        ConfigurationError: an hour-of-week baseline's file is not there, or has none of this metric from which it can drop.
    """
    slack = {} if alert.slack is None else {0.0: alert.slack}
    match alert.baseline:
        case None:
            return None
        case HourOfWeekBaseline(hour_of_week=path):
            return _hour_of_week(metric, alert, path, slack)
        case OffsetBaseline(offset=offset_s):
            text = f"what it was {duration(offset_s)} before (so a slow decline goes unseen)"
            return Baseline(level=UNKNOWN, text=text, offset_s=offset_s, slack=slack)
        case level:
            return Baseline(level=level, text=f"its baseline of {level:g}", slack=slack)


def _hour_of_week(metric: str, alert: AlertSettings, path: str, slack: Mapping[float, float]) -> Baseline:
    key = f"alerts.{metric}.baseline.hour_of_week"
    try:
        found = read_profile(path, metric)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None
    text = f"what is normal in these hours ({found.mean:.3g} on the whole)"
    baseline = Baseline(level=found.mean, text=text, hours=found.hours, slack=slack or found.slack, clump=found.clump)
    if baseline.lowest <= alert.min_drop:
        raise ConfigurationError(f"{key}: {baseline.lowest:g}, normal in an hour, cannot drop by {alert.min_drop:g}")
    return baseline


def baseline_records(
    metric: str, baseline: Baseline, least: int, shared: MonitoringSettings
) -> Iterator[dict[str, Any]]:
    """Yield the rules that record what is normal for a metric, over each window; none of a number.

    Args:
        least: effective scores that a window of before needs to be one.
    """
    where = promql.matching({promql.METRIC: metric})
    if baseline.hours:
        yield from _hourly_records(metric, baseline.hours, shared)
    for length in shared.windows if baseline.is_recorded else ():
        window = promql.duration(length)
        if baseline.hours:
            expression = normal.normal_over(window, where, evaluations=length / shared.interval)
        else:
            of = promql.Estimate.recorded(window, where)
            expression = normal.before(of, promql.duration(baseline.offset_s), min_scores=least)
        yield {
            "record": promql.recorded_as(_RECORDED, window),
            "expr": expression,
            "labels": {
                promql.METRIC: metric
            },  # it has that already: for promtool, which takes equal names for one rule
        }


def _hourly_records(metric: str, hours: Sequence[float], shared: MonitoringSettings) -> Iterator[dict[str, Any]]:
    """Yield what is normal now, and how much is scored now, so that a window's normal is of the hours of its scores."""
    own = {promql.METRIC: metric}
    yield {"record": normal.NORMAL, "expr": normal.normal_by_hour(hours), "labels": own}
    step, named = promql.duration(STEP * shared.interval), promql.matching(own)
    for stream in streams_of(shared):
        labels = own | ({SEGMENT: stream.name} if stream.key else {})
        where = ",".join(filter(None, (named, stream.where)))
        weight = promql.increase(semconv.WEIGHT, step, where, promql.BY_SERIES)
        yield {"record": normal.STEP_WEIGHT, "expr": weight, "labels": labels}
    scored = f"{normal.STEP_WEIGHT}{{{named}}} * on ({promql.METRIC}) group_left () {normal.NORMAL}"
    yield {"record": normal.NORMAL_WEIGHT, "expr": scored, "labels": own}

"""What the mean of a metric is held against: a number, what is normal in an hour of the week, or what was days before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanscore.errors import ConfigurationError
from spanscore.monitoring.baseline_file import read_profile
from spanscore.settings.alerting import AlertSettings, HourOfWeekBaseline, OffsetBaseline
from spanscore.settings.durations import duration

__all__ = ["Baseline", "baseline_of"]

UNKNOWN = 0.95
"""What is planned with where nobody knows what will have been: near 1, a pass/fail metric needs most scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is normal for one metric.

    Attributes:
        level: the quality that is normal: the number, or that of all hours; ``UNKNOWN`` where it is what was before.
        text: what stands behind it in an alert, a template.
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
    def is_learned(self) -> bool:
        """Whether it knows how far the mean strays by itself: only with such a one the number of false alarms is held."""
        return bool(self.hours or self.slack)

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

    @property
    def strays(self) -> bool:
        """Whether the normal mean has a variance of its own."""
        return bool(self.slack or self.offset_s or self.clump > 1)

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
            text = f", as {duration(offset_s)} before (a slow decline goes unseen),"
            return Baseline(level=UNKNOWN, text=text, offset_s=offset_s, slack=slack)
        case level:
            return Baseline(level=level, text=" (its baseline)", slack=slack)


def _hour_of_week(metric: str, alert: AlertSettings, path: str, slack: Mapping[float, float]) -> Baseline:
    key = f"alerts.{metric}.baseline.hour_of_week"
    try:
        found = read_profile(path, metric)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None
    text = " (normal in these hours)"
    baseline = Baseline(level=found.mean, text=text, hours=found.hours, slack=slack or found.slack, clump=found.clump)
    if baseline.lowest <= alert.min_drop:
        raise ConfigurationError(f"{key}: {baseline.lowest:g}, normal in an hour, cannot drop by {alert.min_drop:g}")
    return baseline

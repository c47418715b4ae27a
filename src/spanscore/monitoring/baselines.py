"""The baseline of a metric, its normal quality: a number, a mean per hour of the week, or the mean of some days before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanscore.config.monitoring import AlertSettings, HourOfWeekBaseline, OffsetBaseline
from spanscore.core.printable import format_duration
from spanscore.errors import ConfigurationError
from spanscore.monitoring.hour_of_week import read_profile

UNKNOWN = 0.95
"""Assumed level of a baseline that is not known yet: near 1, because a pass/fail metric needs the most scores there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The normal quality of one metric.

    Attributes:
        level: normal quality: the configured number, or the mean over all hours; ``UNKNOWN`` for an offset baseline.
        text: text that follows the baseline in an alert, a template.
        hours: normal quality in each hour of the week, from Sunday 00:00 UTC on; empty = equal in all hours.
        offset_s: age of the window that serves as baseline, in s; 0 = the baseline is known.
        baseline_sd: length of a window in s → standard deviation of its true mean around the baseline.
        design_effect: number of scores that carry the information of one independent score.
    """

    level: float
    text: str
    hours: tuple[float, ...] = ()
    offset_s: float = 0.0
    baseline_sd: Mapping[float, float] = field(default_factory=dict)
    design_effect: float = 1.0

    @property
    def is_recorded(self) -> bool:
        """Whether the baseline varies with time, so that a rule must record it."""
        return bool(self.hours or self.offset_s)

    @property
    def is_learned(self) -> bool:
        """Whether the variation of the mean is known; only then does the configured number of false alarms hold."""
        return bool(self.hours or self.baseline_sd)

    @property
    def short(self) -> str:
        """Short description: ``0.85``, ``0.82 to 0.87 by hour``, ``that of 7 d before``."""
        if self.offset_s:
            return f"that of {format_duration(self.offset_s)} before"
        return f"{self.lowest:.3g} to {self.highest:.3g} by hour" if self.hours else f"{self.level:g}"

    @property
    def lowest(self) -> float:
        """The normal quality of the worst hour."""
        return min(self.hours, default=self.level)

    @property
    def highest(self) -> float:
        """The normal quality of the best hour."""
        return max(self.hours, default=self.level)

    @property
    def strays(self) -> bool:
        """Whether the normal mean has a variance in addition to that of the scores."""
        return bool(self.baseline_sd or self.offset_s or self.design_effect > 1)

    def baseline_sd_of(self, window_s: float) -> float:
        """Return the baseline SD for windows of a length, in s.

        It is that of the longest known window that is not longer, because the SD only falls with length.
        """
        shorter = [length for length in self.baseline_sd if length <= window_s]
        return self.baseline_sd[max(shorter, default=min(self.baseline_sd))] if self.baseline_sd else 0.0

    def refuse_overlap(self, metric: str, longest_s: float) -> None:
        """Refuse an offset that is shorter than the longest window, because the window would be compared with itself.

        Raises:
            ConfigurationError: the offset is too short.
        """
        if 0 < self.offset_s < longest_s:
            raise ConfigurationError(
                f"alerts.{metric}.baseline.offset: {format_duration(self.offset_s)} is shorter than the window of "
                f"{format_duration(longest_s)}, which would be compared with a part of itself; write a longer offset"
            )


def baseline_of(metric: str, alert: AlertSettings) -> Baseline | None:
    """Return the normal quality of a metric; None if the configuration gives no baseline.

    Raises:
        ConfigurationError: the file of an hour-of-week baseline is missing, lacks this metric, or its level is too low to
            drop.
    """
    baseline_sd = {} if alert.baseline_sd is None else {0.0: alert.baseline_sd}
    match alert.baseline:
        case None:
            return None
        case HourOfWeekBaseline(hour_of_week=path):
            return _hour_of_week(metric, alert, path, baseline_sd)
        case OffsetBaseline(offset=offset_s):
            change = "rise" if alert.share_of else "decline"
            text = f", as {format_duration(offset_s)} before (a slow {change} goes undetected),"
            return Baseline(level=UNKNOWN, text=text, offset_s=offset_s, baseline_sd=baseline_sd)
        case level:
            return Baseline(level=level, text=" (its baseline)", baseline_sd=baseline_sd)


def _hour_of_week(metric: str, alert: AlertSettings, path: str, baseline_sd: Mapping[float, float]) -> Baseline:
    key = f"alerts.{metric}.baseline.hour_of_week"
    try:
        profile = read_profile(path, metric)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None
    baseline = Baseline(
        level=profile.mean,
        text=" (normal in these hours)",
        hours=profile.hours,
        baseline_sd=baseline_sd or profile.baseline_sd,
        design_effect=profile.design_effect,
    )
    if baseline.lowest <= alert.min_drop:
        raise ConfigurationError(
            f"{key}: {baseline.lowest:g}, the normal quality of an hour, cannot drop by {alert.min_drop:g}"
        )
    return baseline

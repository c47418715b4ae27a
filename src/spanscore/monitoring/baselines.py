"""The baseline of a metric, its normal quality: a number, a mean per hour of the week, or the mean of some days before.

The means of the hours of the week are learned from scores, and kept in the file of ``spanscore baseline``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, fsum, sqrt
from operator import add
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from spanscore.config.monitoring import AlertSettings, HourOfWeekBaseline, OffsetBaseline
from spanscore.core.printable import format_duration, parse_duration
from spanscore.errors import ConfigurationError
from spanscore.monitoring import estimates, promql
from spanscore.monitoring.estimates import MIN_SCORES, Moments, group_moments

UNKNOWN = 0.95
"""Assumed level of a baseline that is not known yet: near 1, the level at which a pass/fail alert needs the most scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The normal quality of one metric.

    Attributes:
        level: normal quality: the configured number, or the mean over all hours; ``UNKNOWN`` for an offset baseline.
        text: remark (a template) that follows the baseline's number in the text of an alert.
        hours: normal quality in each hour of the week, from Sunday 00:00 UTC on; empty = equal in all hours.
        offset_s: age in s of the earlier window that an alert compares with; 0 = the baseline is ``level`` or ``hours``.
        baseline_sd: length of a window in s → standard deviation of its true mean around the baseline; empty = not known. A
            configured SD has the length 0, so that it holds for every window.
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
    def varies(self) -> bool:
        """Whether the mean of a window normally varies more than the random variation of its scores explains."""
        return bool(self.baseline_sd or self.offset_s or self.design_effect > 1)

    def baseline_sd_of(self, window_s: float) -> float:
        """Return the baseline SD for windows of a length, in s.

        The result is the SD of the longest measured window that is at most as long as this one. The SD falls with the length,
        so the result is at worst too large.
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
        ConfigurationError: the file of an hour-of-week baseline is missing or lacks this metric, or the normal quality of an
            hour is not above ``min_drop``.
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
        baseline = read_baseline(path, metric)
    except ConfigurationError as error:
        raise ConfigurationError(f"{key}: {error}") from None
    if baseline.lowest <= alert.min_drop:
        raise ConfigurationError(
            f"{key}: {baseline.lowest:g}, the normal quality of an hour, cannot drop by {alert.min_drop:g}"
        )
    return replace(baseline, baseline_sd=baseline_sd or baseline.baseline_sd)


# --- learning -----------------------------------------------------------------------------------------------------

STEP_S = 300
HOURS = 168
LENGTHS = (300, 900, 3_600, 21_600, 86_400)
"""Lengths in s of the windows for which the baseline SD is measured."""
LEAST_DAYS = 7
LEAST_BLOCKS = 7
"""Windows of one length that are needed for the baseline SD of that length."""
LEAST_SCORES = 100
"""Effective scores that a window needs to be used for the baseline SD and the autocorrelation."""
DESIGN_EFFECT = 2.0
"""Smallest design effect that is reported, because a smaller value may be chance."""

DAY_S = 86_400
_HOUR_S, _WEEK_S = 3_600, 604_800
_FROM_SUNDAY_S = 4 * DAY_S
"""Seconds added to Unix time so that weeks begin on Sunday; the epoch began on a Thursday."""

Sums: TypeAlias = Mapping[int, Moments]
"""A time span, by its start or its number → the sums of its scores."""


class TooShortError(ValueError):
    """The scores cover too few days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedBaseline:
    """The learned normal quality of one metric.

    Attributes:
        mean: mean of all scores, [0, 1].
        hours: normal mean of each hour of the week, 168 values.
        baseline_sd: length of a window in s → standard deviation of its true mean around the baseline. Random variation of the
            scores and bursts is subtracted. Lengths with too few windows are left out.
        days: number of days with scores.
        scores: effective number of scores.
        explained: share of the variance of hourly means, beyond chance, that the profile explains; below 0 a flat baseline
            is better. None = the means do not vary beyond chance.
        design_effect: number of scores that count as one, because equal answers come in bursts (the design effect; Kish 1965);
            1 = no bursts, or so few that the baseline SD covers them.
        autocorrelation: autocorrelation of the residuals from one hour to the next.
        autocorrelation_error: standard error of ``autocorrelation`` if the true value is 0.
    """

    mean: float
    hours: tuple[float, ...]
    baseline_sd: Mapping[int, float]
    days: int
    scores: float
    explained: float | None
    design_effect: float
    autocorrelation: float
    autocorrelation_error: float

    @property
    def is_autocorrelated(self) -> bool:
        """Whether the residual of an hour predicts that of the next, because the mean drifts, which no profile covers."""
        return self.autocorrelation > 3 * self.autocorrelation_error

    @property
    def min_scores(self) -> int | None:
        """Fewest scores for an alert if equal answers come in bursts: as informative as ``MIN_SCORES`` independent scores.

        None without bursts.
        """
        return ceil(self.design_effect) * MIN_SCORES if self.design_effect > 1 else None


def hour_of_week(time_s: float) -> int:
    """Return the hour since Sunday 00:00 UTC, 0 to 167."""
    return int((time_s + _FROM_SUNDAY_S) % _WEEK_S // _HOUR_S)


def learn_baseline(steps: Sums) -> LearnedBaseline:
    """Return the baseline learned from scores; ``steps``: start of five minutes, in seconds since the epoch → sums.

    The variation around the normal means is measured on each week with the normal means of the other weeks (on days, if there
    are less than two weeks), because the means of the same week would fit it too well.

    Raises:
        TooShortError: the scores cover less than 7 days.
    """
    scored = {start: of for start, of in steps.items() if of.w > 0}
    days = len({start // DAY_S for start in scored})
    if days < LEAST_DAYS:
        raise TooShortError(f"there are scores of {days} days; an hour-of-week baseline needs {LEAST_DAYS}")
    hours, whole = group_moments(scored, lambda start: start // _HOUR_S), sum(scored.values(), Moments())
    spread = estimates.standard_error(whole) ** 2 * estimates.n_eff(whole)
    residuals = _out_of_sample(scored, hours, spread)
    hourly = _windows(residuals, _HOUR_S)
    lag, error = _autocorrelation(hourly)
    measured = _design_effect(residuals, spread)
    design_effect = measured if measured >= DESIGN_EFFECT else 1.0
    baseline_sd = {}
    for length in LENGTHS:
        windows = [(window.size, window.mean) for window in _windows(residuals, length).values()]
        if len(windows) >= LEAST_BLOCKS:
            baseline_sd[length] = sqrt(_beyond_chance(windows, design_effect * spread))
    flat = _beyond_chance([(hour.size, hour.flat / hour.weight) for hour in hourly.values()], spread)
    unexplained = _beyond_chance([(hour.size, hour.mean) for hour in hourly.values()], spread)
    return LearnedBaseline(
        mean=estimates.mean(whole),
        hours=_profile(hours, spread),
        baseline_sd=baseline_sd,
        days=days,
        scores=estimates.n_eff(whole),
        explained=1 - unexplained / flat if flat else None,
        design_effect=design_effect,
        autocorrelation=lag,
        autocorrelation_error=error,
    )


# --- the profile ------------------------------------------------------------------------------------------------


def _profile(hours: Sums, spread: float) -> tuple[float, ...]:
    """Return the shrunk means of the hours of the week, from Sunday 00:00 UTC on, as in ``day_of_week() * 24 + hour()``.

    The mean of an hour of the week is shrunk towards that of its hour of the day, and that towards the overall mean, each by
    b = τ²/(τ²+v) (James & Stein 1961; Efron & Morris 1975). v is the sampling variance of such a mean, τ² the variance beyond
    it. An hour without scores has the mean of its hour of the day.

    Args:
        hours: number of an hour since the epoch → sums.
        spread: variance of one score.
    """
    by_day, by_week = group_moments(hours, lambda hour: hour % 24), group_moments(hours, _of_week)
    chance = spread * _overdispersion(hours, by_week, spread)
    of_day = _shrink(by_day, dict.fromkeys(range(24), estimates.mean(sum(hours.values(), Moments()))), chance)
    return tuple(_shrink(by_week, {hour: of_day[hour % 24] for hour in range(HOURS)}, chance).values())


def _shrink(cells: Sums, towards: Mapping[int, float], chance: float) -> dict[int, float]:
    """Return the mean of each cell, shrunk towards its target by its share of sampling variance; the target without scores."""
    sizes = {key: estimates.n_eff(of) for key, of in cells.items()}
    away = {key: estimates.mean(of) - towards[key] for key, of in cells.items()}
    squares = fsum(sizes[key] * away[key] ** 2 for key in cells)
    between = max(0.0, (squares - chance * len(cells)) / fsum(sizes.values()))
    kept = {key: between / (between + chance / sizes[key]) if between else 0.0 for key in cells}
    return {key: middle + kept.get(key, 0.0) * away.get(key, 0.0) for key, middle in towards.items()}


def _overdispersion(hours: Sums, by_week: Sums, spread: float) -> float:
    """Return the ratio of the week-to-week variance of an hour to its sampling variance, at least 1."""
    freedom = len(hours) - len(by_week)
    if not freedom or not spread:
        return 1.0
    middle = {hour: estimates.mean(of) for hour, of in by_week.items()}
    squares = (estimates.n_eff(of) * (estimates.mean(of) - middle[_of_week(hour)]) ** 2 for hour, of in hours.items())
    return max(1.0, fsum(squares) / (freedom * spread))


def _of_week(hour: int) -> int:
    return hour_of_week(hour * _HOUR_S)


# --- variation around the profile -------------------------------------------------------------------------------


class _Residual(NamedTuple):
    """Sums of some scores minus their normal means."""

    weight: float  # Σw
    weight2: float  # Σw²
    profile: float  # Σw·(score − profile of the other weeks)
    flat: float  # Σw·(score − overall mean of the other weeks)

    @property
    def size(self) -> float:
        """Effective number of scores."""
        return self.weight**2 / self.weight2

    @property
    def mean(self) -> float:
        """Distance of the mean from the profile."""
        return self.profile / self.weight


def _out_of_sample(steps: Sums, hours: Sums, spread: float) -> dict[int, _Residual]:
    """Return start of a step → its residual by the profile of all other weeks, or of all other days."""
    first = min(hours)
    fold = (_WEEK_S if (max(hours) - first) >= 2 * HOURS - 24 else DAY_S) // _HOUR_S
    normal: dict[int, tuple[tuple[float, ...], float]] = {}
    for own in {(hour - first) // fold for hour in hours}:
        others = {hour: of for hour, of in hours.items() if (hour - first) // fold != own}
        normal[own] = _profile(others, spread), estimates.mean(sum(others.values(), Moments()))
    residuals = {}
    for start, of in steps.items():
        profile, flat = normal[(start // _HOUR_S - first) // fold]
        residuals[start] = _Residual(of.w, of.w2, of.wy - profile[hour_of_week(start)] * of.w, of.wy - flat * of.w)
    return residuals


def _windows(residuals: Mapping[int, _Residual], length_s: int, least: float = LEAST_SCORES) -> dict[int, _Residual]:
    """Return number of a window → the residual of its scores; windows with too few scores are left out."""
    windows: defaultdict[int, _Residual] = defaultdict(lambda: _Residual(0.0, 0.0, 0.0, 0.0))
    for start, residual in residuals.items():
        number = start // length_s
        windows[number] = _Residual(*map(add, windows[number], residual))
    return {number: residual for number, residual in windows.items() if residual.size >= least}


def _design_effect(residuals: Mapping[int, _Residual], spread: float) -> float:
    """Return the factor by which bursts inflate the variance, from windows of five minutes and of an hour.

    The inflation by bursts is equal at both lengths; that by a drift grows with the scores of a window.
    """
    (in_short, short_size), (in_long, long_size) = (
        _inflated_variance(_windows(residuals, length, 0.0).values()) for length in (STEP_S, _HOUR_S)
    )
    if not spread or long_size <= short_size:
        return 1.0
    drift = max(0.0, in_long - in_short) * short_size / (long_size - short_size)
    return (in_short - drift) / spread


def _inflated_variance(windows: Collection[_Residual]) -> tuple[float, float]:
    """Return the variance of one score as estimated from windows, and the mean number of scores in the window of a score."""
    weight2 = fsum(window.weight2 for window in windows)
    variance = fsum(window.profile**2 for window in windows) / weight2
    return variance, fsum(window.weight**2 for window in windows) / weight2


def _beyond_chance(means: list[tuple[float, float]], spread: float) -> float:
    """Return the variance of means beyond that of their scores; ``means``: (effective scores, mean − normal mean) pairs."""
    total = fsum(size for size, _ in means)
    return max(0.0, fsum(size * away**2 - spread for size, away in means) / total) if total else 0.0


def _autocorrelation(hours: Mapping[int, _Residual]) -> tuple[float, float]:
    """Return the autocorrelation of residuals from one hour to the next, and its standard error (Box & Jenkins 1970).

    Each residual is divided by its own standard error. The standard error of the autocorrelation is 1/√n for n pairs of hours.
    """
    errors = {hour: sqrt(own.size) * own.mean for hour, own in hours.items()}
    products = [error * errors[hour + 1] for hour, error in errors.items() if hour + 1 in errors]
    squares = fsum(error**2 for error in errors.values()) / max(1, len(errors))
    if not products or not squares:
        return 0.0, 1.0
    return fsum(products) / (len(products) * squares), 1 / sqrt(len(products))


# --- the file ---------------------------------------------------------------------------------------------------

# The file of ``spanscore baseline``, YAML or JSON: metric → mean, baseline SD, and the normal quality in each hour of the
# week (UTC).
#
# faithfulness:
#   mean: 0.8512
#   baseline_sd: {5m: 0.0102, 1h: 0.0071, 1d: 0.0023}
#   design_effect: 10.7       # if equal answers come in bursts
#   hours:
#     sunday: [0.8311, …]     # 24 numbers
#     …

DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""Order as in PromQL's ``day_of_week()``."""
_MADE = "# Normal quality in each hour of the week, UTC. Made by `spanscore baseline`; it changes only if that is run again.\n"
_DIGITS = 4


def profiles_text(learned: Mapping[str, LearnedBaseline]) -> str:
    """Return the text of a file; ``learned``: metric → its baseline."""
    tree = {}
    for metric, own in learned.items():
        rounded = [round(value, _DIGITS) for value in own.hours]
        tree[metric] = {
            "mean": round(own.mean, _DIGITS),
            "baseline_sd": {promql.duration(s): round(value, _DIGITS) for s, value in own.baseline_sd.items()},
            **({"design_effect": round(own.design_effect, 1)} if own.design_effect > 1 else {}),
            "hours": {day: rounded[24 * number : 24 * (number + 1)] for number, day in enumerate(DAYS)},
        }
    return _MADE + yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=140)


def read_baseline(path: str, metric: str) -> Baseline:
    """Return the baseline of a metric in a file.

    Raises:
        ConfigurationError: the file is missing, is not a baseline file, or lacks the metric.
    """
    tree = _tree(path)
    entry = tree.get(metric)
    if entry is None:
        raise ConfigurationError(f"{path} has no baseline of {metric!r}; it has {', '.join(map(str, tree)) or 'none'}")
    try:
        hours = tuple(float(value) for day in DAYS for value in _day(entry["hours"], day))
        baseline_sd = {parse_duration(window): float(value) for window, value in entry.get("baseline_sd", {}).items()}
        baseline = Baseline(
            level=float(entry["mean"]),
            text=" (normal in these hours)",
            hours=hours,
            baseline_sd=baseline_sd,
            design_effect=float(entry.get("design_effect", 1)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fault = f"{error}{' is missing' * isinstance(error, KeyError)}"
        raise ConfigurationError(
            f"{path} is no baseline of {metric!r}: {fault}; make it with `spanscore baseline`"
        ) from None
    qualities = all(0 <= value <= 1 for value in (baseline.level, *hours))
    if not (qualities and all(s >= 0 for s in baseline_sd.values()) and baseline.design_effect >= 1):
        raise ConfigurationError(
            f"{path}: the mean and the hours of {metric!r} must be qualities in [0, 1], its baseline SD at least 0, its "
            "design effect at least 1"
        )
    return baseline


def _day(hours: Any, day: str) -> list[Any]:
    values = hours[day]
    if not isinstance(values, list) or len(values) != 24:  # noqa: PLR2004
        raise ValueError(f"hours.{day} must list 24 numbers")
    return values


def _tree(path: str) -> dict[Any, Any]:
    file = Path(path).expanduser()
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {path}; make it with `spanscore baseline`") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigurationError(f"{path} is not YAML: nested too deep") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path} holds no baselines; make it with `spanscore baseline`")
    return tree

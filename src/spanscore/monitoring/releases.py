"""Compares two releases on the same traffic: the difference of a metric's means, an interval valid at every look, a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from math import hypot, inf, isfinite, log, log1p, sqrt
from typing import Any, Final, NamedTuple, TypeAlias

from spanscore.monitoring.estimates import (
    WORTH_TELLING,
    Interval,
    MeanInterval,
    Moments,
    format_signed,
    group_moments,
    if_best,
    if_worst,
    interval,
    mean,
    missing_share,
    n_eff,
    standard_error,
    unseen_bounds,
)

# --- same traffic ----------------------------------------------------------------------------------------------------

BLOCK_S: Final = 900
"""Length of a block, in s."""
_PER_HOUR: Final = 4
_FEW_BLOCKS: Final = 6.0
"""With n blocks the measured variance is multiplied by 1 + 6/n, because few blocks may show far too little variance. So the
interval of ten blocks holds; without the correction, bursts and conversations make it miss on .06 of the days."""

Blocks: TypeAlias = Mapping[int, Moments]
"""Number of a block → the sums of its scores; blocks 0 to 3 are the first hour."""


class MatchedSums(NamedTuple):
    """The sums of two releases over the hours in which both have scores, with the same weight in each hour.

    Attributes:
        a: sums of the first release; Σw², Σw²y and Σw²y² are multiplied by ``design_effect``.
        b: sums of the second release; Σw², Σw²y and Σw²y² are multiplied by ``design_effect``.
        blocks: number of blocks in shared hours in which a release has scores.
        design_effect: number of dependent scores that have the information of one independent score, at least 1.
    """

    a: Moments
    b: Moments
    blocks: int
    design_effect: float


def match_traffic(a: Blocks, b: Blocks) -> MatchedSums:
    """Return comparable sums of two releases. If the releases share no hour, all sums are empty.

    Each hour gets the same weight in both, and the squares are multiplied by the design effect. docs/explanation/intervals.md
    has the formulas and their sources. ``benchmarks/compare.py`` counts how often the interval of these sums does not contain
    the true difference.

    Args:
        a: blocks of the first release.
        b: blocks of the second release, counted from the same moment.
    """
    hours_a, hours_b = (
        group_moments({number: sums for number, sums in side.items() if sums.w > 0}, lambda number: number // _PER_HOUR)
        for side in (a, b)
    )
    nothing = Moments()
    hours = {}  # hour → the factors of the weights of a and of b, and the middle between their means
    sums_a = sums_b = nothing
    for hour in sorted(hours_a.keys() & hours_b.keys()):
        of_a, of_b = hours_a[hour], hours_b[hour]
        share_a, share_b = of_b.w / (of_a.w + of_b.w), of_a.w / (of_a.w + of_b.w)
        hours[hour] = share_a, share_b, (mean(of_a) + mean(of_b)) / 2
        sums_a, sums_b = sums_a + _weigh_sums(of_a, share_a), sums_b + _weigh_sums(of_b, share_b)
    if not hours:
        return MatchedSums(sums_a, sums_b, 0, 1.0)
    difference = mean(sums_b) - mean(sums_a)
    residuals = {}  # block → its weighted score difference minus the difference of the means
    for number in a.keys() | b.keys():
        of_a, of_b = a.get(number, nothing), b.get(number, nothing)
        if number // _PER_HOUR in hours and of_a.w + of_b.w:
            share_a, share_b, level = hours[number // _PER_HOUR]
            w_a, w_b = share_a * of_a.w, share_b * of_b.w
            apart = share_b * of_b.wy - share_a * of_a.wy
            residuals[number] = apart - level * (w_b - w_a) - difference / 2 * (w_a + w_b)
    independent = sums_a.w**2 * (standard_error(sums_a) ** 2 + standard_error(sums_b) ** 2)
    factor = _design_effect(residuals, independent)
    inflated_a, inflated_b = (
        replace(sums, w2=factor * sums.w2, w2y=factor * sums.w2y, w2y2=factor * sums.w2y2) for sums in (sums_a, sums_b)
    )
    return MatchedSums(inflated_a, inflated_b, len(residuals), factor)


def _weigh_sums(sums: Moments, share: float) -> Moments:
    square = share * share
    return Moments(sums.n, share * sums.w, share * sums.wy, square * sums.w2, square * sums.w2y, square * sums.w2y2)


def _design_effect(residuals: Mapping[int, float], independent: float) -> float:
    """Return the design effect, at least 1.

    Args:
        residuals: number of a block → its residual.
        independent: variance of the sum of the residuals if all scores were independent.
    """
    if not independent:
        return 1.0
    neighbours = sum(residual * residuals.get(number + 1, 0.0) for number, residual in residuals.items())
    measured = sum(residual**2 for residual in residuals.values()) + max(0.0, neighbours)
    return max(1.0, (1 + _FEW_BLOCKS / len(residuals)) * measured / independent)


# --- interval at every look ------------------------------------------------------------------------------------------

LEAST_BLOCKS = 10
"""Quarters of an hour that the first interval needs: fewer do not show how dependent the scores are."""
LEAST_SCORES = 20
"""Effective scores of either side that the first interval needs, because the interval is asymptotic. With two assumed scores it
held from this number on, in every cell of the benchmark."""
PLANNED_SCORES = 500
"""Effective scores of a side for which the interval is nearly as narrow as possible: 3.1 standard errors. At 50 scores the
interval is 43 % wider in standard errors, at 50,000 it is 14 % wider."""
_AT_PLANNED = 5.0
"""ρ²V at ``PLANNED_SCORES``. At level .95 the half-width in standard errors is smallest at 8; at 5 it is 0.7 % wider."""
_UNSEEN = 2
LONGEST_S = 30 * 86_400.0
_HALVINGS = 50


def at_every_look(sums: MatchedSums, *, level: float = 0.95) -> MeanInterval:
    """Return the difference of the means, b − a, [−1, 1], with an interval that is valid at every look.

    Both ends are infinite before ``LEAST_BLOCKS`` and ``LEAST_SCORES``; the mean is NaN without a shared hour.

    If people look once a minute, a usual interval of 95 % will sometimes exclude the true difference. This interval covers it
    at all looks together with probability ``level``, for any number of looks and any rule for stopping:

    S = Σw(y − μ), the scores of one side minus those of the other, is a martingale with variance V = Σw²(y − μ)². So for any λ,
    exp(λS − λ²V ⁄ 2) is a martingale too, asymptotically. Mixed over normal λ of variance ρ² it is

        (1 + ρ²V)^−½ · exp(ρ²S² ⁄ 2(1 + ρ²V))

    which ever exceeds 1 ⁄ α with probability α at most (Ville 1939). So |S| stays below √(2(V + 1/ρ²)(ln 1/α + ½ ln(1 + ρ²V))).
    Source: the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas (*Annals of Statistics* 52,
        2024,
    theorem 2.2), with Robbins' normal mixture (1970). V includes two assumed scores of each release (``_squared_error``),
    because at a mean near 1 few scores contain no failure yet.
    """
    a, b, blocks, _ = sums
    middle = mean(b) - mean(a)
    if blocks < LEAST_BLOCKS or min(n_eff(a), n_eff(b)) < LEAST_SCORES:
        return MeanInterval(middle, -inf, inf)
    x = _AT_PLANNED * 2 / (1 / n_eff(a) + 1 / n_eff(b)) / PLANNED_SCORES
    allowed = log(1 / (1 - level)) + log1p(x) / 2
    half = sqrt(2 * allowed * (1 + 1 / x) * (_squared_error(a) + _squared_error(b)))
    return MeanInterval(middle, max(-1.0, middle - half), min(1.0, middle + half))


def _squared_error(sums: Moments) -> float:
    """Return the squared standard error of a mean, with two assumed scores included.

    Both are as far from the mean as the farther of the worst and the best unseen score.
    """
    worst, best = unseen_bounds(sums)
    distance = max(mean(sums) - worst, best - mean(sums))
    return standard_error(sums) ** 2 + _UNSEEN * (sums.w2 / n_eff(sums)) * distance**2 / sums.w**2


def at_one_look(a: Moments, b: Moments, *, level: float = 0.95) -> MeanInterval:
    """Return the difference of the means, b − a, with the narrower interval that is valid at one look, chosen beforehand.

    Dashboards compute it in PromQL, too (``integrations/grafana/formulas.py``). The distances of the ends of both intervals
    from their means are squared and added (MOVER: Newcombe 1998, method 10; Donner & Zou 2002).
    """
    in_a, in_b, middle = interval(a, level=level), interval(b, level=level), mean(b) - mean(a)
    below = hypot(mean(b) - in_b.low, in_a.high - mean(a))
    above = hypot(in_b.high - mean(b), mean(a) - in_a.low)
    return MeanInterval(middle, max(-1.0, middle - below), min(1.0, middle + above))


def bounds_with_unscored(a: Blocks, b: Blocks, *, level: float = 0.95) -> Interval:
    """Return the bounds of the difference for any scores of the units without a score of the configured judge.

    The bounds are valid at every look, [−1, 1]; infinite before ``LEAST_BLOCKS`` and ``LEAST_SCORES``.
    """
    best_a, worst_a, best_b, worst_b = (
        {number: fill(sums) for number, sums in side.items()} for side in (a, b) for fill in (if_best, if_worst)
    )
    low = at_every_look(match_traffic(best_a, worst_b), level=level).low
    return Interval(low, at_every_look(match_traffic(worst_a, best_b), level=level).high)


def seconds_until(condition: Callable[[MatchedSums], bool], sums: MatchedSums, seconds: float) -> float | None:
    """Return the seconds at this traffic until a condition holds; None if that is over 30 days, or unknown.

    Args:
        condition: condition on the sums of both releases; once true, it stays true as the sums grow.
        seconds: time in which the sums arrived, in s; 0 = no more will arrive.
    """
    if not seconds or not sums.blocks:
        return None

    def later(after: float) -> bool:
        factor = 1 + after / seconds
        a, b = (
            Moments(**{name: getattr(side, name) * factor for name in Moments.__slots__}) for side in (sums.a, sums.b)
        )
        return condition(MatchedSums(a, b, int(sums.blocks * factor), sums.design_effect))

    if not later(LONGEST_S):
        return None
    shortest, longest = 0.0, LONGEST_S
    for _ in range(_HALVINGS):
        middle = (shortest + longest) / 2
        shortest, longest = (shortest, middle) if later(middle) else (middle, longest)
    return longest


# --- comparison ------------------------------------------------------------------------------------------------------

_UNITS: Final = ((60.0, "minutes"), (3_600.0, "hours"), (86_400.0, "days"))
"""Units of a forecast with their lengths in s."""


class ReleaseVerdict(StrEnum):
    """The verdict on the second release.

    Attributes:
        WORSE: the whole interval is below −tolerance.
        NO_WORSE: the whole interval is above −tolerance.
        UNDECIDED: the interval contains −tolerance, or there are too few scores for an interval.
    """

    WORSE = "worse"
    NO_WORSE = "no worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Release:
    """One side of a comparison.

    Attributes:
        name: the compared value, such as ``1.5``.
        blocks: quarter of an hour since the common start → sums of its scores, and of its units without a score of the
            configured judge.
    """

    name: str
    blocks: Blocks

    @property
    def excluded(self) -> float:
        """Share of the sampled units without a score of the configured judge, [0, 1]."""
        return missing_share(sum(self.blocks.values(), Moments()))


@dataclass(frozen=True, kw_only=True)
class ReleaseComparison:
    """The comparison of one metric between two releases.

    Attributes:
        a: the earlier release.
        b: the release that may be worse.
        since_s: start of the comparison, seconds since the epoch.
        end_s: end of the comparison, seconds since the epoch.
        obstacle: reason why no forecast is possible: a release has no scores or no traffic, or the evaluator versions differ.
            Empty if a forecast is possible.
        tolerance: tolerated decrease of the mean quality, [0, 1].
        level: confidence level of the interval.
        notes: further facts about the comparison, a sentence each.
    """

    metric: str
    a: Release
    b: Release
    since_s: int
    end_s: int
    obstacle: str = ""
    tolerance: float = 0.0
    level: float = 0.95
    notes: tuple[str, ...] = ()

    @cached_property
    def sums(self) -> MatchedSums:
        """Sums of both releases over the same hours."""
        return match_traffic(self.a.blocks, self.b.blocks)

    @cached_property
    def scores(self) -> tuple[float, float]:
        """Effective scores of a and of b in the shared hours, divided by the design effect."""
        return n_eff(self.sums.a), n_eff(self.sums.b)

    @cached_property
    def difference(self) -> MeanInterval:
        """Quality of b minus that of a, with the interval of ``at_every_look``."""
        return at_every_look(self.sums, level=self.level)

    @property
    def has_interval(self) -> bool:
        """Whether there are enough scores for an interval."""
        return isfinite(self.difference.low)

    @property
    def verdict(self) -> ReleaseVerdict:
        """The verdict on b."""
        return _verdict(self.difference, self.tolerance)

    @cached_property
    def lost(self) -> Interval | None:
        """Bounds of the difference, as in ``bounds_with_unscored``.

        None if units without a score of the configured judge are less than 1 % of the sampled units of each release.
        """
        if max(self.a.excluded, self.b.excluded) < WORTH_TELLING:
            return None
        return bounds_with_unscored(self.a.blocks, self.b.blocks, level=self.level)

    @property
    def not_before_s(self) -> int | None:
        """Time of the earliest interval if both have scores in each coming quarter of an hour, seconds since the epoch.

        None if there are ten blocks already, or no forecast is possible.
        """
        missing = LEAST_BLOCKS - self.sums.blocks
        if missing <= 0 or self.obstacle:
            return None
        return self.since_s + BLOCK_S * ((self.end_s - self.since_s) // BLOCK_S + missing)

    @cached_property
    def seconds_left(self) -> float | None:
        """Seconds until the verdict if traffic and difference stay; None if over 30 days, or if no forecast is possible."""

        def is_decided(sums: MatchedSums) -> bool:
            return _verdict(at_every_look(sums, level=self.level), self.tolerance) is not ReleaseVerdict.UNDECIDED

        if self.verdict is not ReleaseVerdict.UNDECIDED:
            return 0.0
        return seconds_until(is_decided, self.sums, 0.0 if self.obstacle else self.end_s - self.since_s)

    def __str__(self) -> str:
        unscored = []
        if self.lost is not None:
            a, b = f"{self.a.excluded:.1%}", f"{self.b.excluded:.1%}"
            unscored = [f"{a} and {b} of the sampled units have no score of the configured judge"]
            if self.has_interval:
                low, high = map(format_signed, self.lost)
                unscored[0] += f": for any scores of these units, the difference is within {low} to {high}"
        return "; ".join([self._sentence(), *unscored, *self.notes])

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON types; unknown numbers are null."""
        enough, once = self.has_interval, at_one_look(self.sums.a, self.sums.b, level=self.level)
        not_before = self.not_before_s
        return {
            "metric": self.metric,
            "verdict": self.verdict.value,
            "difference": self.difference.mean if self.sums.blocks else None,
            "interval": [self.difference.low, self.difference.high] if enough else None,
            "interval_of_one_look": [once.low, once.high] if enough else None,
            "interval_if_lost_count": None if self.lost is None or not enough else [*self.lost],
            "level": self.level,
            "tolerance": self.tolerance,
            "a": self._side(self.a, self.sums.a),
            "b": self._side(self.b, self.sums.b),
            "blocks": self.sums.blocks,
            "design_effect": self.sums.design_effect,
            "since": _utc(self.since_s),
            "not_before": None if not_before is None else _utc(not_before),
            "seconds_left": self.seconds_left,
            "notes": [*self.notes],
            "sentence": str(self),
        }

    def _side(self, release: Release, sums: Moments) -> dict[str, Any]:
        return {
            "name": release.name,
            "mean": mean(sums) if sums.n else None,
            "effective_scores": n_eff(sums),
            "missing_share": release.excluded,
            "sums": asdict(sum(release.blocks.values(), Moments())),
        }

    def _sentence(self) -> str:
        by, low, high = self.difference
        if self.sums.blocks < LEAST_BLOCKS:
            blocks = f"there are scores in {self.sums.blocks} of the {LEAST_BLOCKS} quarters of an hour that are needed"
            outlook = f", in hours in which both have scores; {self.obstacle}"
            if self.not_before_s is not None:
                outlook = f"; the first answer is due at {_utc(self.not_before_s)}, if both keep their traffic"
            return f"not yet on {self.metric}: {blocks}{outlook}"
        evidence = "{:,.0f} and {:,.0f} effective scores".format(*self.scores)
        if not self.has_interval:
            return (
                f"too little data on {self.metric}, {evidence}: {LEAST_SCORES} of each are needed; {self._forecast()}"
            )
        evidence = f"from {evidence}"
        if high < 0:
            text = f"{self.b.name} is worse on {self.metric} by {-by:.2f}, {-high:.2f} to {-low:.2f}, {evidence}"
        elif low > 0:
            text = f"{self.b.name} is better on {self.metric} by {by:.2f}, {low:.2f} to {high:.2f}, {evidence}"
        else:
            middle, below, above = map(format_signed, self.difference)
            text = f"{self.b.name} differs on {self.metric} by {middle}, {below} to {above}, {evidence}"
        allowed = f"the tolerance of {self.tolerance:g}"
        if self.verdict is ReleaseVerdict.UNDECIDED:
            return f"{text}: whether it is worse by more than {allowed} is not decided yet; {self._forecast()}"
        is_within = self.verdict is ReleaseVerdict.NO_WORSE and low < 0
        return f"{text}: within {allowed}" if is_within else text

    def _forecast(self) -> str:
        left = self.seconds_left
        if left is not None:
            size, unit = max((step for step in _UNITS if left >= 2 * step[0]), default=_UNITS[0])
            return f"some {max(1.0, left / size):.0f} {unit} more at this traffic should decide it"
        if self.obstacle:
            return self.obstacle
        return "at this traffic that takes over 30 days: set a larger --tolerance, or raise the sampling rate"


def _verdict(difference: MeanInterval, tolerance: float) -> ReleaseVerdict:
    if difference.high < -tolerance:
        return ReleaseVerdict.WORSE
    return ReleaseVerdict.NO_WORSE if difference.low >= -tolerance else ReleaseVerdict.UNDECIDED


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")


# --- scores of a release ---------------------------------------------------------------------------------------------

_QUIET_S: Final = 900
"""Seconds by which a release's last score may be older than the other's while the release still counts as having traffic."""

Steps: TypeAlias = Mapping[int, Moments]
"""Start of a step, in seconds since the epoch → the sums of its scores. A step of 1 or 5 minutes is within one block."""


@dataclass(frozen=True)
class ReleaseScores:
    """The scores of one release.

    Attributes:
        scored: metric → evaluator version → sums by step.
        lost: metric → ``lost`` and ``lost2`` by step, of the sampled units without a score of the configured judge, which
            have no evaluator version.
    """

    name: str
    scored: Mapping[str, Mapping[str, Steps]] = field(default_factory=dict)
    lost: Mapping[str, Steps] = field(default_factory=dict)

    @cached_property
    def span_s(self) -> tuple[int, int] | None:
        """Starts of the first and the last step with a score, seconds since the epoch; None if there is no score."""
        starts = [start for by_version in self.scored.values() for steps in by_version.values() for start in steps]
        return (min(starts), max(starts)) if starts else None

    def release(self, metric: str, evaluator_versions: Iterable[str], pair: ReleasePair) -> Release:
        """Return one side of the comparison of a metric, with the scores of some evaluator versions.

        Only whole blocks since the common start of the pair are included.
        """
        since_s, count = pair.since_s, (pair.end_s - pair.since_s) // BLOCK_S
        blocks: defaultdict[int, Moments] = defaultdict(Moments)
        scored = self.scored.get(metric, {})
        of_versions = (scored[version] for version in evaluator_versions if version in scored)
        for steps in (*of_versions, self.lost.get(metric, {})):
            for start, sums in steps.items():
                number = (start - since_s) // BLOCK_S
                if 0 <= number < count:
                    blocks[number] += sums
        return Release(self.name, blocks)


@dataclass(frozen=True, slots=True)
class ReleasePair:
    """Two releases to compare.

    Attributes:
        a: the earlier release.
        b: the release that may be worse.
        end_s: time until which scores are counted, seconds since the epoch.
        notes: further facts about both releases, a sentence each.
    """

    a: ReleaseScores
    b: ReleaseScores
    end_s: int
    notes: tuple[str, ...] = ()

    @property
    def since_s(self) -> int:
        """Start of the comparison: the first score of the later release. Later looks have the same start."""
        return max((side.span_s[0] for side in (self.a, self.b) if side.span_s), default=self.end_s)

    @property
    def ended(self) -> str:
        """Name of the release without traffic while the other still has traffic; empty if both or neither have traffic."""
        last = {side.name: side.span_s[1] for side in (self.a, self.b) if side.span_s}
        earliest = min(last, key=lambda name: last[name], default="")
        return earliest if earliest and last[earliest] < max(last.values()) - _QUIET_S else ""


def compare_releases(
    metrics: Iterable[str],
    pair: ReleasePair,
    *,
    across_evaluator_versions: bool = False,
    tolerance: float = 0.0,
    level: float = 0.95,
) -> Iterator[ReleaseComparison]:
    """Yield the comparison of each metric, including metrics without scores.

    Args:
        across_evaluator_versions: whether evaluator versions are compared. Otherwise only scores of one evaluator version are
            used, because another judge or prompt measures differently.
        tolerance: tolerated decrease of the mean quality, [0, 1].
        level: confidence level of the intervals.
    """
    a, b = pair.a, pair.b
    for metric in metrics:
        of_a, of_b = (
            {version: n_eff(sum(steps.values(), Moments())) for version, steps in side.scored.get(metric, {}).items()}
            for side in (a, b)
        )
        evaluator_versions = of_a.keys() | of_b.keys() if across_evaluator_versions else _common_version(of_a, of_b)
        left_out = (of_a.keys() | of_b.keys()) - evaluator_versions
        yield ReleaseComparison(
            metric=metric,
            a=a.release(metric, evaluator_versions, pair),
            b=b.release(metric, evaluator_versions, pair),
            since_s=pair.since_s,
            end_s=pair.end_s,
            obstacle=_obstacle(pair, of_a, of_b, evaluator_versions),
            tolerance=tolerance,
            level=level,
            notes=(
                f"of evaluator version {_list_versions(evaluator_versions)} only; {_list_versions(left_out)} left out",
            )
            if evaluator_versions and left_out
            else (),
        )


def _common_version(a: Mapping[str, float], b: Mapping[str, float]) -> Set[str]:
    """Return the evaluator version with the most scores in both; empty if they have none in common."""
    both = sorted(a.keys() & b.keys())
    return {max(both, key=lambda version: min(a[version], b[version]))} if both else set()


def _obstacle(pair: ReleasePair, a: Mapping[str, float], b: Mapping[str, float], evaluator_versions: Set[str]) -> str:
    unscored = [side.name for side, scores in ((pair.a, a), (pair.b, b)) if not scores]
    if unscored:
        return f"no scores yet from {' and '.join(unscored)}"
    if not evaluator_versions:
        return (
            f"{pair.a.name} was scored as {_list_versions(a)} and {pair.b.name} as {_list_versions(b)}, which cannot be "
            "compared: score both with the same metric version and judge"
        )
    return f"{pair.ended} has no traffic any more" if pair.ended else ""


def _list_versions(evaluator_versions: Iterable[str]) -> str:
    return ", ".join(version or "an unknown evaluator version" for version in sorted(evaluator_versions))

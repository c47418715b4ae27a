"""ReleaseComparison: one metric of two releases → whether the second is worse, in a sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from math import isfinite
from typing import Any, Final

from spanscore.monitoring.estimates import WORTH_TELLING, Interval, Moments, mean, missing_share, n_eff
from spanscore.monitoring.matched import BLOCK_S, Blocks, MatchedSums, matched
from spanscore.monitoring.sequential import (
    LEAST_BLOCKS,
    LEAST_SCORES,
    QualityDifference,
    at_every_look,
    at_one_look,
    bounds_of_lost,
    seconds_until,
)

__all__ = ["Release", "ReleaseComparison", "ReleaseVerdict"]

_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0


class ReleaseVerdict(StrEnum):
    """What is known of the second release.

    Attributes:
        WORSE: the whole interval lies below −tolerance.
        NO_WORSE: the whole interval lies above it.
        UNDECIDED: it does neither yet, or there are too few scores for one.
    """

    WORSE = "worse"
    NO_WORSE = "no worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Release:
    """One side.

    Attributes:
        name: the compared value, such as ``1.5``.
        blocks: quarters of an hour since both are counted → sums of its scores, and of what its mean lacks.
    """

    name: str
    blocks: Blocks

    @property
    def excluded(self) -> float:
        """Share of the chosen units that have no score, [0, 1]."""
        return missing_share(sum(self.blocks.values(), Moments()))


@dataclass(frozen=True, kw_only=True)
class ReleaseComparison:
    """One metric of two releases.

    Attributes:
        metric: its name.
        a: the release that was there before.
        b: the release of which is asked.
        since_s: from when on both are counted, seconds since the epoch.
        end_s: until when both are counted, seconds since the epoch.
        obstacle: why nobody knows when more scores come of both; empty if they come.
        tolerance: by how much the mean quality may be worse, [0, 1].
        level: with which the interval holds.
        notes: what else must be known of it.
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
        """The sums of both over the same hours."""
        return matched(self.a.blocks, self.b.blocks)

    @cached_property
    def scores(self) -> tuple[float, float]:
        """Effective scores of a and of b."""
        return n_eff(self.sums.a), n_eff(self.sums.b)

    @cached_property
    def difference(self) -> QualityDifference:
        """How much better b is, with the interval that holds at every look; its ends are infinite for too few scores."""
        return at_every_look(self.sums, level=self.level)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough scores for an interval."""
        return isfinite(self.difference.low)

    @property
    def verdict(self) -> ReleaseVerdict:
        """What is known of b."""
        return _verdict(self.difference, self.tolerance)

    @cached_property
    def lost(self) -> Interval | None:
        """Bounds of the difference, whatever what is lost would have scored; None where no mean lacks anything to speak of."""
        if max(self.a.excluded, self.b.excluded) < WORTH_TELLING:
            return None
        return bounds_of_lost(self.a.blocks, self.b.blocks, level=self.level)

    @property
    def not_before_s(self) -> int | None:
        """When there are enough blocks for an interval, seconds since the epoch; None = there are, or more will not come."""
        missing = LEAST_BLOCKS - self.sums.blocks
        if missing <= 0 or self.obstacle:
            return None
        return self.since_s + BLOCK_S * ((self.end_s - self.since_s) // BLOCK_S + missing)

    @cached_property
    def seconds_left(self) -> float | None:
        """How long it takes at this traffic until it is decided, if the difference stays; None = over 30 days, or unknown."""

        def decided(sums: MatchedSums) -> bool:
            return _verdict(at_every_look(sums, level=self.level), self.tolerance) is not ReleaseVerdict.UNDECIDED

        if self.verdict is not ReleaseVerdict.UNDECIDED:
            return 0.0
        return seconds_until(decided, self.sums, 0.0 if self.obstacle else self.end_s - self.since_s)

    def __str__(self) -> str:
        return "; ".join([self._said(), *self._lacking(), *self.notes])

    def as_json(self) -> dict[str, Any]:
        """Return all of it, numbers of what is not known left out as null."""
        enough, once = self.is_enough, at_one_look(self.sums.a, self.sums.b, level=self.level)
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

    def _side(self, of: Release, sums: Moments) -> dict[str, Any]:
        return {
            "name": of.name,
            "mean": mean(sums) if sums.n else None,
            "effective_scores": n_eff(sums),
            "missing_share": of.excluded,
            "sums": asdict(sum(of.blocks.values(), Moments())),
        }

    def _said(self) -> str:
        by, low, high = self.difference
        if self.sums.blocks < LEAST_BLOCKS:
            return f"not yet on {self.metric}: {self._until_enough_blocks()}"
        if not self.is_enough:
            return f"too little data on {self.metric}, {self._evidence()}: {LEAST_SCORES} of each are needed; {self._time()}"
        evidence = f"from {self._evidence()}"
        if high < 0:
            told = f"{self.b.name} is worse on {self.metric} by {-by:.2f}, {-high:.2f} to {-low:.2f}, {evidence}"
        elif low > 0:
            told = f"{self.b.name} is better on {self.metric} by {by:.2f}, {low:.2f} to {high:.2f}, {evidence}"
        else:
            told = f"{self.b.name} differs on {self.metric} by {_signed(by)}, {_signed(low)} to {_signed(high)}, {evidence}"
        return told + self._against_tolerance()

    def _until_enough_blocks(self) -> str:
        blocks = f"both have {self.sums.blocks} of the {LEAST_BLOCKS} quarters of an hour that are needed"
        if self.not_before_s is None:
            return f"{blocks}, in hours in which both have scores; {self.obstacle}"
        return f"{blocks}; there is an answer from {_utc(self.not_before_s)} on, if both keep their traffic"

    def _against_tolerance(self) -> str:
        allowed = f"the tolerance of {self.tolerance:g}"
        if self.verdict is ReleaseVerdict.UNDECIDED:
            return f": whether it is worse by more than {allowed} is not decided yet; {self._time()}"
        if self.verdict is ReleaseVerdict.NO_WORSE and self.difference.low < 0:
            return f": within {allowed}"
        return ""

    def _evidence(self) -> str:
        a, b = self.scores
        return f"{a:,.0f} and {b:,.0f} effective scores"

    def _time(self) -> str:
        left = self.seconds_left
        if left is not None:
            return f"some {_lasting(left)} more at this traffic should decide it"
        if self.obstacle:
            return self.obstacle
        return "at this traffic that takes over 30 days: allow a larger --tolerance, or score more of it"

    def _lacking(self) -> list[str]:
        if self.lost is None:
            return []
        told = f"{self.a.excluded:.1%} and {self.b.excluded:.1%} of the chosen units have no score"
        if not self.is_enough:
            return [told]
        low, high = (_signed(end) for end in self.lost)
        return [f"{told}: whatever they would have got, the difference lies within {low} to {high}"]


def _verdict(of: QualityDifference, tolerance: float) -> ReleaseVerdict:
    if of.high < -tolerance:
        return ReleaseVerdict.WORSE
    return ReleaseVerdict.NO_WORSE if of.low >= -tolerance else ReleaseVerdict.UNDECIDED


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _lasting(seconds: float) -> str:
    for unit, size in (("days", _DAY_S), ("hours", _HOUR_S)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1.0, seconds / _MINUTE_S):.0f} minutes"

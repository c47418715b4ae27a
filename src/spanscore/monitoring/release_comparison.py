"""ReleaseComparison: one metric of two releases → whether the second is worse, in a sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from math import isfinite
from typing import Any, Final

from spanscore.monitoring.estimates import WORTH_TELLING, Interval, Moments, excluded_share, mean, n_eff
from spanscore.monitoring.sequential import (
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
        sums: of its scores, and of what its mean lacks.
        rate: effective scores a second that come; 0 = there are no more, or that is not known.
    """

    name: str
    sums: Moments
    rate: float = 0.0

    @property
    def scores(self) -> float:
        """Effective scores."""
        return n_eff(self.sums)


@dataclass(frozen=True)
class ReleaseComparison:
    """One metric of two releases.

    Attributes:
        metric: its name.
        a: the release that was there before; ``b``: that of which is asked.
        tolerance: by how much the mean quality may be worse, [0, 1].
        level: with which the interval holds.
        notes: what else must be known of it.
    """

    metric: str
    a: Release
    b: Release
    tolerance: float = 0.0
    level: float = 0.95
    notes: tuple[str, ...] = ()

    @cached_property
    def difference(self) -> QualityDifference:
        """How much better b is, with the interval that holds at every look; its ends are infinite for too few scores."""
        return at_every_look(self.a.sums, self.b.sums, level=self.level)

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
        lacking = max(excluded_share(side.sums) for side in (self.a, self.b))
        return bounds_of_lost(self.a.sums, self.b.sums, level=self.level) if lacking >= WORTH_TELLING else None

    @cached_property
    def seconds_left(self) -> float | None:
        """How long it takes at this traffic until it is decided, if the difference stays; None = over 30 days, or unknown."""

        def decided(a: Moments, b: Moments) -> bool:
            return _verdict(at_every_look(a, b, level=self.level), self.tolerance) is not ReleaseVerdict.UNDECIDED

        if self.verdict is not ReleaseVerdict.UNDECIDED:
            return 0.0
        return seconds_until(decided, *((side.sums, side.rate) for side in (self.a, self.b)))

    def __str__(self) -> str:
        return "; ".join([self._said(), *self._lacking(), *self.notes])

    def as_json(self) -> dict[str, Any]:
        """Return all of it, numbers of what is not known left out as null."""
        enough, once = self.is_enough, at_one_look(self.a.sums, self.b.sums, level=self.level)
        return {
            "metric": self.metric,
            "verdict": self.verdict.value,
            "difference": self.difference.mean if self.a.scores and self.b.scores else None,
            "interval": [self.difference.low, self.difference.high] if enough else None,
            "interval_of_one_look": [once.low, once.high] if enough else None,
            "interval_if_lost_count": None if self.lost is None or not enough else [*self.lost],
            "level": self.level,
            "tolerance": self.tolerance,
            **{side: self._side(of) for side, of in (("a", self.a), ("b", self.b))},
            "seconds_left": self.seconds_left,
            "notes": [*self.notes],
            "sentence": str(self),
        }

    def _side(self, of: Release) -> dict[str, Any]:
        return {
            "name": of.name,
            "mean": mean(of.sums) if of.sums.n else None,
            "effective_scores": of.scores,
            "excluded_share": excluded_share(of.sums),
            "sums": asdict(of.sums),
        }

    def _said(self) -> str:
        by, low, high = self.difference
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

    def _against_tolerance(self) -> str:
        allowed = f"the tolerance of {self.tolerance:g}"
        if self.verdict is ReleaseVerdict.UNDECIDED:
            return f": whether it is worse by more than {allowed} is not decided yet; {self._time()}"
        if self.verdict is ReleaseVerdict.NO_WORSE and self.difference.low < 0:
            return f": within {allowed}"
        return ""

    def _evidence(self) -> str:
        return f"{self.a.scores:,.0f} and {self.b.scores:,.0f} effective scores"

    def _time(self) -> str:
        left = self.seconds_left
        if left is not None:
            return f"some {_lasting(left)} more at this traffic should decide it"
        if not (self.a.rate or self.b.rate) or not self.is_enough:
            return "at which rate they come is not known" if self.a.scores and self.b.scores else "one has none yet"
        return "at this traffic that takes over 30 days: allow a larger --tolerance, or score more of it"

    def _lacking(self) -> list[str]:
        if self.lost is None:
            return []
        shares = " and ".join(f"{excluded_share(side.sums):.1%}" for side in (self.a, self.b))
        told = f"{shares} of the chosen units have no score"
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


def _lasting(seconds: float) -> str:
    for unit, size in (("days", _DAY_S), ("hours", _HOUR_S)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1.0, seconds / _MINUTE_S):.0f} minutes"

"""JudgeComparison: two judges on the same units, pair by pair.

The difference of two means says little where their intervals overlap; that of pairs, in which the units' own spread cancels
out, says whether the judges differ, and by how much.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spanscore.core.printable import format_count
from spanscore.monitoring.estimates import MeanInterval, Moments, interval, mean, moments

__all__ = ["JudgeComparison", "pair"]


@dataclass(frozen=True, slots=True)
class JudgeComparison:
    """The sums of units that both judges gave a quality; ``+`` adds those of others.

    Attributes:
        own: of the metric's own judge.
        shadow: of the second one.
        difference: of (1 + second − own) / 2, which is in [0, 1] as qualities are.
    """

    own: Moments = field(default_factory=Moments)
    shadow: Moments = field(default_factory=Moments)
    difference: Moments = field(default_factory=Moments)

    def __add__(self, other: JudgeComparison) -> JudgeComparison:
        return JudgeComparison(self.own + other.own, self.shadow + other.shadow, self.difference + other.difference)

    @property
    def pairs(self) -> int:
        """Units that are compared."""
        return int(self.difference.n)

    @property
    def gap(self) -> MeanInterval | None:
        """Mean of second − own with its 95 % interval, each in [−1, 1]; None without a pair."""
        if not self.pairs:
            return None
        ends = (mean(self.difference), *interval(self.difference))
        return MeanInterval(*(2.0 * end - 1.0 for end in ends))

    def __str__(self) -> str:
        gap = self.gap
        if gap is None:
            return "no unit has both scores yet"
        told = (
            f"mean {mean(self.shadow):.2f} against {mean(self.own):.2f} on the same {format_count(self.pairs, 'unit')}"
        )
        return f"{told}; difference {_signed(gap.mean)} (95 %: {_signed(gap.low)} to {_signed(gap.high)})"


def pair(own: float, shadow: float, probability: float | None) -> JudgeComparison:
    """Return the sums of one unit: both qualities, [0, 1], and the probability with which it was chosen; None = for certain."""
    share = probability or 1.0
    return JudgeComparison(*(moments([(y, share)]) for y in (own, shadow, (1.0 + shadow - own) / 2.0)))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")

"""Labels beside a judge's verdicts, counted in the four cells of both, and the shares that are made of them."""

from __future__ import annotations

from typing import NamedTuple

from spanscore.monitoring.estimates import Moments

__all__ = ["AnnotatedPair", "Cell", "Proportion"]


class AnnotatedPair(NamedTuple):
    """One sample that a human and a judge have both judged.

    Attributes:
        human: whether the human passed it; ``judge`` likewise.
        probability: with which it was drawn to be labelled, of what was judged, (0, 1]; None = not told.
        weight: how many units of the traffic it stood for when it was judged: 1 / the score's probability.
    """

    human: bool
    judge: bool
    probability: float | None = None
    weight: float = 1.0


class Cell(NamedTuple):
    """The labels of one verdict of the human and one of the judge: how many, Σw and Σw²."""

    n: int = 0
    w: float = 0.0
    w2: float = 0.0

    def plus(self, w: float) -> Cell:
        """Return the cell with one more label of a weight."""
        return Cell(self.n + 1, self.w + w, self.w2 + w * w)

    def unmixed(self, other: Cell, error: float) -> Cell:
        """Return the cell of the truth; ``other``: labels of the same verdict of the judge, and of the other one of humans.

        Σw is that of the truth, and Σw² the variance of its estimate, so that the formulas of labels without errors hold.
        """
        right, wrong = (1.0 - error) / (1.0 - 2.0 * error), error / (1.0 - 2.0 * error)
        w = min(self.w + other.w, max(0.0, right * self.w - wrong * other.w))
        return Cell(self.n, w, right**2 * self.w2 + wrong**2 * other.w2)


class Proportion(NamedTuple):
    """A share, [0, 1], with the variance of its estimate."""

    share: float
    variance: float

    @classmethod
    def of(cls, sums: Moments, more: float, w_one: float, w_zero: float) -> Proportion:
        """Return the share of ones with so many ones and as many zeros more, of these weights: as Lang & Reiczigel have it."""
        w, ones = sums.w + more * (w_one + w_zero), sums.wy + more * w_one
        ones2, zeros2 = sums.w2y + more * w_one**2, sums.w2 - sums.w2y + more * w_zero**2
        share = ones / w
        return cls(share, ((1.0 - share) ** 2 * ones2 + share**2 * zeros2) / w**2)

    def or_at(self, other: float) -> Proportion:
        """Return the share with a further variance: it is ``other`` one standard error of the annotator error away."""
        return Proportion(self.share, self.variance + (other - self.share) ** 2)

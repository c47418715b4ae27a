"""Annotators: how old labels are, how often several people agree on a unit, and how often one of them is wrong.

Two annotators who err independently, each with probability e whatever the truth is, disagree with probability d = 2e(1 − e); so
e = (1 − √(1 − 2d)) / 2 and, by the delta method, Var(e) = Var(d) / (4(1 − 2d)). That is the two-rater case of Dawid & Skene
(1979), *Maximum likelihood estimation of observer error-rates using the EM algorithm*, with one error rate for all.
If the majority of a unit has m votes more than the minority, it is wrong with probability eᵐ / (eᵐ + (1 − e)ᵐ).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import NamedTuple

from spanscore.errors import ConfigurationError

__all__ = ["KNOWN_ERROR", "LEAST_SHARED", "Agreement", "AnnotatorError", "agreement_of"]

LEAST_SHARED = 10
"""Units with two or more named annotators below which no error is measured."""


class AnnotatorError(NamedTuple):
    """How often a label is wrong.

    Attributes:
        rate: probability, [0, .5), whatever the truth is.
        variance: of the estimate of ``rate``; 0 = the rate is given.
    """

    rate: float
    variance: float = 0.0

    def of_majorities(self, margins: Iterable[int]) -> AnnotatorError:
        """Return the error of labels that are majorities, each by so many votes, 1 or more; the mean over all of them."""
        margins = list(margins)
        right = 1.0 - self.rate
        odds = [self.rate**margin + right**margin for margin in margins]
        rates = (self.rate**margin / both for margin, both in zip(margins, odds, strict=True))
        slopes = (m * (self.rate * right) ** (m - 1) / both**2 for m, both in zip(margins, odds, strict=True))
        return AnnotatorError(sum(rates) / len(margins), self.variance * (sum(slopes) / len(margins)) ** 2)


KNOWN_ERROR = AnnotatorError(0.0)
"""The error of labels that are taken as the truth."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often several people agree on a unit.

    Attributes:
        units: units that two or more named annotators labelled.
        agreed: units among them on which all these annotators say the same.
        pairs: pairs of annotators of one unit.
        differing: pairs among them that do not say the same.
    """

    units: int
    agreed: int
    pairs: int
    differing: int

    @property
    def share(self) -> float | None:
        """Share of the units on which all annotators agree, [0, 1]; None without such units."""
        return self.agreed / self.units if self.units else None

    def error(self) -> AnnotatorError | None:
        """Return the error of one annotator; None with fewer than ``LEAST_SHARED`` units.

        Raises:
            ConfigurationError: annotators disagree as often as coins do.
        """
        if self.units < LEAST_SHARED:
            return None
        differing = self.differing / self.pairs
        if differing >= 0.5:  # noqa: PLR2004  (a coin)
            raise ConfigurationError(
                f"annotators differ in {self.differing} of {self.pairs} pairs on {self.units} units, as coins would: such "
                "labels correct nothing. Agree on what a pass is and label again, or state an error with --annotator-error RATE"
            )
        smoothed = (self.units * differing + 0.5) / (self.units + 1.0)
        left = 1.0 - 2.0 * differing
        variance = smoothed * (1.0 - smoothed) / self.units / (4.0 * left)
        return AnnotatorError((1.0 - sqrt(left)) / 2.0, variance)


def agreement_of(votes: Iterable[Sequence[bool]]) -> Agreement:
    """Return how often annotators agree; ``votes``: those of each unit's named annotators, one vote each."""
    several = [unit for unit in votes if len(unit) > 1]
    pairs = [one != other for unit in several for one, other in combinations(unit, 2)]
    return Agreement(len(several), sum(len({*unit}) == 1 for unit in several), len(pairs), sum(pairs))

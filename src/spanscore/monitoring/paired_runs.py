"""Two runs of a judge over the same labelled samples → whether it is still the same judge. Pure.

A judge that has not changed may still answer otherwise the second time, but as often one way as the other: of two answers to
one question, which came first tells nothing. So among samples whose answers differ, up and down are a coin's (the sign test; of
pass/fail verdicts it is McNemar's, exact: McNemar 1947; Fagerland, Lydersen & Laake 2013, 4.2). A judge that has become
careless may err both ways and leave no trace there; so the same test is made of being right: right before and wrong now against
wrong before and right now. Of both the smaller p counts, doubled for the choice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

__all__ = ["PairedAnswer", "PairedRuns", "least_turned", "paired", "sign_test"]

ENOUGH = 0.5
"""Share of the samples that must be answered before anything is said of a run."""
_TESTS = 2


class PairedAnswer(NamedTuple):
    """What a judge said of one sample, first and now: qualities, and whether each agrees with the human."""

    first: float
    now: float
    was_right: bool
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRuns:
    """A run beside the first one, of one evaluator version.

    Attributes:
        samples: that are labelled.
        answered: of them, in this run; what the judge failed to answer is missing, and no disagreement.
        right: of them, those whose verdict is the human's.
        was_right: of the same samples, by the first answers.
        raised: samples with a higher quality than at first; ``lowered`` with a lower one.
        gained: samples with a right verdict that was wrong at first; ``lost`` with a wrong one that was right.
    """

    samples: int
    answered: int
    right: int
    was_right: int
    raised: int
    lowered: int
    gained: int
    lost: int

    @property
    def is_enough(self) -> bool:
        """Whether so many are answered that something can be said."""
        return self.answered > 0 and self.answered >= ENOUGH * self.samples

    @property
    def agreement(self) -> float:
        """Share of the answers that agree with the labels, [0, 1]; of at least one answer."""
        return self.right / self.answered

    @property
    def first_agreement(self) -> float:
        """The same of the first answers to these samples."""
        return self.was_right / self.answered

    @property
    def p(self) -> float:
        """How probable as large a change is of a judge that has not changed, at most; (0, 1]."""
        return min(1.0, _TESTS * min(sign_test(self.raised, self.lowered), sign_test(self.gained, self.lost)))


def paired(samples: int, answers: Collection[PairedAnswer]) -> PairedRuns:
    """Return how a run stands to the first one; ``samples``: that are labelled, answered or not."""
    return PairedRuns(
        samples=samples,
        answered=len(answers),
        right=sum(one.is_right for one in answers),
        was_right=sum(one.was_right for one in answers),
        raised=sum(one.now > one.first for one in answers),
        lowered=sum(one.now < one.first for one in answers),
        gained=sum(one.is_right and not one.was_right for one in answers),
        lost=sum(one.was_right and not one.is_right for one in answers),
    )


def sign_test(one_way: int, other_way: int) -> float:
    """Return the exact two-sided p of so many changes one way and so many the other; 1 where there are none."""
    changes = one_way + other_way
    tail = sum(comb(changes, k) for k in range(min(one_way, other_way) + 1))
    return min(1.0, 2 * tail / (1 << changes))


def least_turned(below: float) -> int:
    """Return how many answers must turn, all the same way, for a p below a rate in (0, 1)."""
    turned = 1
    while _TESTS * sign_test(turned, 0) >= below:
        turned += 1
    return turned

"""The sums of two sides → the interval of the difference of their means: at every look, or at one.

A release is watched: whoever looks every minute at an interval of 95 % sees it miss sooner or later. That of
``at_every_look`` holds the difference at all looks together with probability ``level``, however long they go on and whenever
one stops.

S = Σw(y − μ), the scores of one side less those of the other, is a martingale with variance V = Σw²(y − μ)², so for any λ
is exp(λS − λ²V ⁄ 2), asymptotically. Mixed over normal λ of variance ρ² it is

    (1 + ρ²V)^−½ · exp(ρ²S² ⁄ 2(1 + ρ²V))

which is ever above 1 ⁄ α with probability α at most (Ville 1939). So |S| stays below √(2(V + 1/ρ²)(ln 1/α + ½ ln(1 + ρ²V))).
Source: the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas (*Annals of Statistics* 52, 2024,
theorem 2.2), with Robbins' normal mixture (1970). The sums are those of ``matched.py``: within the hour, V by quarters of an
hour. Two scores more, one at either end (``unseen``), are in V: near 1 a few scores show none of the failures that will come.
``benchmarks/compare.py`` counts how often it misses.
"""

from __future__ import annotations

from collections.abc import Callable
from math import hypot, inf, log, log1p, sqrt
from typing import NamedTuple

from spanscore.monitoring.estimates import (
    Interval,
    Moments,
    if_best,
    if_worst,
    interval,
    mean,
    n_eff,
    standard_error,
    unseen,
)
from spanscore.monitoring.matched import Blocks, MatchedSums, matched

__all__ = [
    "LEAST_BLOCKS",
    "LEAST_SCORES",
    "QualityDifference",
    "at_every_look",
    "at_one_look",
    "bounds_of_lost",
    "seconds_until",
]

LEAST_BLOCKS = 10
"""Quarters of an hour before anything is said: fewer do not show how scores repeat each other."""
LEAST_SCORES = 20
"""Effective scores of either side before anything is said: the interval is asymptotic. With the two that were not seen it
held from these on, in every cell of the benchmark."""
PLANNED_SCORES = 500
"""Effective scores of a side at which the interval is about as narrow as it can be: 3.1 standard errors; of 50 it is four
tenths wider, of 50,000 a seventh."""
_AT_PLANNED = 5.0
"""ρ²V there. The half-width in standard errors is least between 4 and 6."""
_UNSEEN = 2
LONGEST_S = 30 * 86_400.0
_HALVINGS = 50


class QualityDifference(NamedTuple):
    """By how much the mean quality of ``b`` is above that of ``a``, with an interval; all in [−1, 1]."""

    mean: float
    low: float
    high: float


def at_every_look(sums: MatchedSums, *, level: float = 0.95) -> QualityDifference:
    """Return the difference with the interval that holds at every look.

    Both ends are infinite before ``LEAST_BLOCKS`` and ``LEAST_SCORES``.
    """
    a, b, blocks, _ = sums
    middle = mean(b) - mean(a)
    if blocks < LEAST_BLOCKS or min(n_eff(a), n_eff(b)) < LEAST_SCORES:
        return QualityDifference(middle, -inf, inf)
    x = _AT_PLANNED * 2 / (1 / n_eff(a) + 1 / n_eff(b)) / PLANNED_SCORES
    allowed = log(1 / (1 - level)) + log1p(x) / 2
    half = sqrt(2 * allowed * (1 + 1 / x) * (_error2(a) + _error2(b)))
    return QualityDifference(middle, max(-1.0, middle - half), min(1.0, middle + half))


def _error2(of: Moments) -> float:
    """Return the squared standard error of a mean, with two scores more that were not seen."""
    worst, best = unseen(of)
    away = max(mean(of) - worst, best - mean(of))
    return standard_error(of) ** 2 + _UNSEEN * (of.w2 / n_eff(of)) * away**2 / of.w**2


def at_one_look(a: Moments, b: Moments, *, level: float = 0.95) -> QualityDifference:
    """Return the difference with the narrower interval that holds at one look, chosen beforehand: what PromQL can say.

    The intervals of both means, squared and added (MOVER: Newcombe 1998, method 10; Donner & Zou 2002).
    """
    of_a, of_b, middle = interval(a, level=level), interval(b, level=level), mean(b) - mean(a)
    below = hypot(mean(b) - of_b.low, of_a.high - mean(a))
    above = hypot(of_b.high - mean(b), mean(a) - of_a.low)
    return QualityDifference(middle, max(-1.0, middle - below), min(1.0, middle + above))


def bounds_of_lost(a: Blocks, b: Blocks, *, level: float = 0.95) -> Interval:
    """Return where the difference lies whatever the lost units of both sides would have scored, at every look."""
    worst, best = (
        matched({number: one(of) for number, of in a.items()}, {number: other(of) for number, of in b.items()})
        for one, other in ((if_best, if_worst), (if_worst, if_best))
    )
    return Interval(at_every_look(worst, level=level).low, at_every_look(best, level=level).high)


def seconds_until(holds: Callable[[MatchedSums], bool], sums: MatchedSums, seconds: float) -> float | None:
    """Return how long it takes at this traffic until something holds; None if that is over 30 days, or not known.

    Args:
        holds: of the sums of both sides; if ever, then from some time on.
        sums: the sums so far.
        seconds: in which the sums came, in s; 0 = no more will come.
    """
    if not seconds or not sums.blocks:
        return None

    def later(after: float) -> bool:
        factor = 1 + after / seconds
        a, b = (Moments(**{name: getattr(of, name) * factor for name in Moments.__slots__}) for of in (sums.a, sums.b))
        return holds(MatchedSums(a, b, int(sums.blocks * factor), sums.design_effect))

    if not later(LONGEST_S):
        return None
    shortest, longest = 0.0, LONGEST_S
    for _ in range(_HALVINGS):
        middle = (shortest + longest) / 2
        shortest, longest = (shortest, middle) if later(middle) else (middle, longest)
    return longest

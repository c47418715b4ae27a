"""The sums of two sides → the interval of the difference of their means: at every look, or at one.

A release is watched: whoever looks every minute at an interval of 95 % sees it miss sooner or later. That of
``at_every_look`` holds the difference at all looks together with probability ``level``, however long they go on and whenever
one stops.

Each side's S = Σw(y − μ) is a martingale with variance V = Σw²(y − μ)², so for any λ is exp(λS − λ²V ⁄ 2), asymptotically.
The product of both sides' is one, too, and mixed over normal λ of variance ρ² it is

    Π (1 + ρ²V)^−½ · exp(ρ²S² ⁄ 2(1 + ρ²V))

which is ever above 1 ⁄ α with probability α at most (Ville 1939). What is below is an ellipse around both means, and its shadow
is the interval of their difference. Source: the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas
(*Annals of Statistics* 52, 2024, theorem 2.2), with Robbins' normal mixture (1970) over two sides in place of one. It assumes
nothing of how traffic is split between them, nor that the split stays. Two scores more, one at either end (``unseen``), are in
V: near 1 a few scores show none of the failures that will come. ``benchmarks/compare.py`` counts how often it misses.
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

__all__ = [
    "LEAST_SCORES",
    "QualityDifference",
    "at_every_look",
    "at_one_look",
    "bounds_of_lost",
    "grown",
    "seconds_until",
]

LEAST_SCORES = 20
"""Effective scores of either side before anything is said: the interval is asymptotic. With the two that were not seen it
held from these on, in every cell of the benchmark."""
PLANNED_SCORES = 500
"""Effective scores of a side at which the interval is about as narrow as it can be: 3.4 standard errors; of 50 it is a third
wider, of 50,000 a quarter."""
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


def at_every_look(a: Moments, b: Moments, *, level: float = 0.95) -> QualityDifference:
    """Return the difference with the interval that holds at every look; both ends are infinite before ``LEAST_SCORES``."""
    middle = mean(b) - mean(a)
    if min(n_eff(a), n_eff(b)) < LEAST_SCORES:
        return QualityDifference(middle, -inf, inf)
    x = [_AT_PLANNED * n_eff(side) / PLANNED_SCORES for side in (a, b)]
    allowed = log(1 / (1 - level)) + sum(map(log1p, x)) / 2
    spread = sum((1 + 1 / one) * _error2(side) for one, side in zip(x, (a, b), strict=True))
    half = sqrt(2 * allowed * spread)
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


def bounds_of_lost(a: Moments, b: Moments, *, level: float = 0.95) -> Interval:
    """Return where the difference lies whatever the lost units of both sides would have scored, at every look."""
    low = at_every_look(if_best(a), if_worst(b), level=level).low
    return Interval(low, at_every_look(if_worst(a), if_best(b), level=level).high)


def grown(of: Moments, factor: float) -> Moments:
    """Return the sums of so many times as much of the same traffic."""
    return Moments(**{name: getattr(of, name) * factor for name in Moments.__slots__})


def seconds_until(holds: Callable[[Moments, Moments], bool], *sides: tuple[Moments, float]) -> float | None:
    """Return how long it takes at this traffic until something holds; None where that is over 30 days, or not known.

    Args:
        holds: of the sums of both sides; if ever, then from some time on.
        sides: the sums of a, then of b, each with its effective scores a second; 0 = there will be no more.
    """
    if not all(of.n for of, _ in sides):
        return None

    def later(seconds: float) -> bool:
        return holds(*(grown(of, 1 + rate * seconds / n_eff(of)) for of, rate in sides))

    if not later(LONGEST_S):
        return None
    shortest, longest = 0.0, LONGEST_S
    for _ in range(_HALVINGS):
        middle = (shortest + longest) / 2
        shortest, longest = (shortest, middle) if later(middle) else (middle, longest)
    return longest

"""Additive sums → mean, standard error, interval, bounds: what a sampled and weighted share says of all traffic.

y is the quality of a scored unit, π the probability with which it was chosen, w = 1/π. Everything comes from sums over units,
so replicas and time spans add up with ``+`` before anything is estimated. ``promql.py`` holds the same formulas as text; a
test compares the two in a real Prometheus.

Hájek's estimator: the plain mean of what was scored is biased where rules oversample, and Σwy/N is a poor mean (Särndal,
Swensson & Wretman, *Model Assisted Survey Sampling*, 1992, 5.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum, hypot, nan, sqrt
from operator import add, attrgetter
from statistics import NormalDist
from typing import NamedTuple

__all__ = [
    "WORTH_TELLING",
    "Interval",
    "MeanInterval",
    "Moments",
    "if_best",
    "if_worst",
    "interval",
    "mean",
    "mean_interval",
    "missing_bounds",
    "missing_share",
    "moments",
    "n_eff",
    "standard_error",
    "student",
    "unseen",
]


WORTH_TELLING = 0.01
"""Share of the chosen units without a score from which on people are told."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The sums of one metric over some units; ``+`` adds those of another replica, label, segment or time span.

    Attributes:
        n: scored units.
        w: Σw; of 1/π.
        wy: Σw·y.
        w2: Σw².
        w2y: Σw²·y.
        w2y2: Σw²·y².
        lost: Σw over the units that the mean lacks.
        lost2: Σw² over them.
    """

    n: float = 0.0
    w: float = 0.0
    wy: float = 0.0
    w2: float = 0.0
    w2y: float = 0.0
    w2y2: float = 0.0
    lost: float = 0.0
    lost2: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(*map(add, _sums(self), _sums(other)))


_sums = attrgetter(*Moments.__slots__)


class Interval(NamedTuple):
    """Both ends are in [0, 1]."""

    low: float
    high: float


class MeanInterval(NamedTuple):
    """A mean of quality with its 95 % interval, all in [0, 1]."""

    mean: float
    low: float
    high: float


def mean_interval(scores: Iterable[tuple[float, float]]) -> MeanInterval | None:
    """Return what (quality, probability) pairs say of all traffic; None where there is none."""
    sums = moments(scores)
    return MeanInterval(mean(sums), *interval(sums)) if sums.n else None


def moments(scores: Iterable[tuple[float, float]], lost: Iterable[float] = ()) -> Moments:
    """Return the sums of (quality, probability) pairs.

    Args:
        scores: quality in [0, 1], probability in (0, 1].
        lost: probability of each unit that has no score and should.
    """
    units = [(1 / probability, y) for y, probability in scores]

    def total(i: int, j: int) -> float:
        return fsum(w**i * y**j for w, y in units)

    w_lost = [1 / probability for probability in lost]
    of_lost = fsum(w_lost), fsum(w * w for w in w_lost)
    return Moments(len(units), total(1, 0), total(1, 1), total(2, 0), total(2, 1), total(2, 2), *of_lost)


def mean(of: Moments) -> float:
    """Return Hájek's mean Σwy/Σw, in [0, 1]; NaN where nothing was scored."""
    return of.wy / of.w if of.w else nan


def standard_error(of: Moments) -> float:
    """Return the standard error of the mean as a statement about the system: V = Σw²(y−ȳ)²/(Σw)² (superpopulation).

    It is 0 where all scores are equal, also at n = 1: say how many there were beside it. NaN where nothing was scored.
    """
    if not of.w:
        return nan
    middle = mean(of)
    squares = of.w2y2 - 2 * middle * of.w2y + middle * middle * of.w2
    return sqrt(max(0.0, squares)) / of.w  # equal scores may leave −1e-17


def n_eff(of: Moments) -> float:
    """Return Kish's effective number of scores (Σw)²/Σw², at most n; 0 where nothing was scored."""
    return of.w * of.w / of.w2 if of.w2 else 0.0


def interval(of: Moments, *, level: float = 0.95) -> Interval:
    """Return the confidence interval of the mean, the same formula for every kind of metric and every number of scores.

    Each end is that of the scores and of one more that was not seen: near 1 a few scores show too little of how far the mean
    may vary, and of intervals of t from 30 scores .51 hold it, of Wilson's from 5 .86. How bad the one more is for the low
    end, the scores say themselves: its distance from 1 is the mean distance of theirs and of one at 0, each weighted by its
    distance. So it is 0 for pass/fail and where all are 1, and else comes nearer as they are many and close.
    Pseudo-observations are Agresti and Coull's idea (1998); this one was chosen by coverage and width:
    ``benchmarks/intervals.md``.

    Args:
        level: coverage, [0.7, 1).

    Returns:
        (0, 1) where nothing was scored.
    """
    size = n_eff(of)
    if not size:
        return Interval(0.0, 1.0)
    worst, best = unseen(of)
    t = student(level, size - 1)
    return Interval(max(0.0, _end(of, worst, -t)), min(1.0, _end(of, best, t)))


def unseen(of: Moments) -> Interval:
    """Return how bad and how good one more score may be, by the scores that there are; there must be one."""
    one = of.w2 / n_eff(of)  # the square of its weight, which is that of a typical score
    worst = (of.w2y - of.w2y2) / (of.w2 - of.w2y + one)
    return Interval(worst, (of.w2y2 + one) / (of.w2y + one))


def _end(of: Moments, unseen: float, t: float) -> float:
    middle, size = mean(of), n_eff(of)
    away = unseen - middle
    return middle + (away + t * hypot(size * standard_error(of), away)) / (size + 1)


def missing_bounds(of: Moments, *, level: float = 0.95) -> Interval:
    """Return where the mean lies whatever the lost units would have scored: they are missing, not zero.

    From the interval of the mean if all of them had the worst score to that if all had the best: the scored and the lost are a
    sample both. Where nothing was lost it is the interval. (0, 1) where nothing was scored and nothing lost.
    """
    return Interval(interval(if_worst(of), level=level).low, interval(if_best(of), level=level).high)


def if_worst(of: Moments) -> Moments:
    """Return the sums if every lost unit had the worst score; none is lost any more."""
    return replace(of, w=of.w + of.lost, w2=of.w2 + of.lost2, lost=0.0, lost2=0.0)


def if_best(of: Moments) -> Moments:
    """Return the sums if every lost unit had the best score; none is lost any more."""
    added = replace(if_worst(of), wy=of.wy + of.lost, w2y=of.w2y + of.lost2)
    return replace(added, w2y2=of.w2y2 + of.lost2)


def missing_share(of: Moments) -> float:
    """Return the share of the chosen units that the mean lacks, [0, 1]; 0 where there are none."""
    return of.lost / (of.w + of.lost) if of.lost else 0.0


def student(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t to its first term (Abramowitz & Stegun 26.7.5), as PromQL has it."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    return z + (z**3 + z) / 4 / max(freedom, 1.0)

"""Additive sums → mean, standard error, interval, bounds: what a sampled and weighted share says of all traffic.

y is the quality of a scored unit, π the probability with which it was chosen, w = 1/π. Everything comes from sums over units,
so replicas and time spans add up with ``+`` before anything is estimated. ``promql.py`` holds the same formulas as text; a
test compares the two in a real Prometheus.

Hájek's estimator: the plain mean of what was scored is biased where rules oversample, and Σwy/N is a poor mean (Särndal,
Swensson & Wretman, *Model Assisted Survey Sampling*, 1992, 5.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import fsum, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

__all__ = [
    "Interval",
    "MeanInterval",
    "Moments",
    "excluded_bounds",
    "interval",
    "mean",
    "mean_interval",
    "moments",
    "n_eff",
    "standard_error",
    "wilson",
]

MIN_FOR_T = 30
"""Below this many effective scores the t interval misses too often; Wilson's is used, which is then conservative."""


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
    """

    n: float = 0.0
    w: float = 0.0
    wy: float = 0.0
    w2: float = 0.0
    w2y: float = 0.0
    w2y2: float = 0.0
    lost: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


class Interval(NamedTuple):
    """Both ends are in [0, 1]."""

    low: float
    high: float


class MeanInterval(NamedTuple):
    """A mean of quality with its 95 % interval, all in [0, 1]."""

    mean: float
    low: float
    high: float


def mean_interval(scores: Iterable[tuple[float, float]], *, binary: bool) -> MeanInterval | None:
    """Return what (quality, probability) pairs say of all traffic; None where there is none. Arguments as of the two below."""
    sums = moments(scores)
    return MeanInterval(mean(sums), *interval(sums, binary=binary)) if sums.n else None


def moments(scores: Iterable[tuple[float, float]], lost: float = 0.0) -> Moments:
    """Return the sums of (quality, probability) pairs.

    Args:
        scores: quality in [0, 1], probability in (0, 1].
        lost: Σ1/π of the units that have no score and should.
    """
    units = [(1 / probability, y) for y, probability in scores]

    def total(i: int, j: int) -> float:
        return fsum(w**i * y**j for w, y in units)

    return Moments(len(units), total(1, 0), total(1, 1), total(2, 0), total(2, 1), total(2, 2), lost=lost)


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


def interval(of: Moments, *, binary: bool, level: float = 0.95) -> Interval:
    """Return the confidence interval of the mean.

    Wilson's with n_eff for pass/fail metrics, as t covers 43 to 79 % instead of 95 % at high pass rates and n ≤ 30; t with
    n_eff − 1 degrees of freedom for the others, Wilson's again below 30 effective scores.

    Args:
        binary: whether the metric knows only 0 and 1.
        level: coverage, (0, 1).

    Returns:
        (0, 1) where nothing was scored.
    """
    size = n_eff(of)
    if not size:
        return Interval(0.0, 1.0)
    if binary or size < MIN_FOR_T:
        return wilson(mean(of), size, level=level)
    middle, half = mean(of), _student(level, size - 1) * standard_error(of)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def wilson(share: float, size: float, *, level: float = 0.95) -> Interval:
    """Return Wilson's interval of a share (Wilson 1927; Brown, Cai & DasGupta 2001).

    Args:
        share: in [0, 1].
        size: n, or n_eff; above 0.
        level: coverage, (0, 1).
    """
    z2 = _z(level) ** 2
    middle = share + z2 / (2 * size)
    half = _z(level) * sqrt(share * (1 - share) / size + z2 / (4 * size * size))
    return Interval(max(0.0, (middle - half) / (1 + z2 / size)), min(1.0, (middle + half) / (1 + z2 / size)))


def excluded_bounds(of: Moments) -> Interval:
    """Return where the mean lies whatever the lost units would have scored: they are missing, not zero.

    (0, 1) where nothing was scored and nothing lost.
    """
    total = of.w + of.lost
    return Interval(of.wy / total, (of.wy + of.lost) / total) if total else Interval(0.0, 1.0)


def _z(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _student(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t (Abramowitz & Stegun 26.7.5): within 1e-4 from 29 degrees of freedom on."""
    z = _z(level)
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))

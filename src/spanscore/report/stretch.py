"""Stretch: the run of buckets in which a metric was worse than in all others, where there is one beyond chance.

A scan over every run of neighbouring buckets. The evidence is the difference of the two weighted means in standard errors,
with the variance of all scores together (that of "nothing happened"): pass/fail metrics at 0 or 1 have none of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement
from math import sqrt

import numpy as np
import numpy.typing as npt

__all__ = ["Stretch", "worst_stretch"]

MIN_DROP = 0.1
"""On the quality scale: a smaller one is not worth a headline."""
MIN_EVIDENCE = 4.5
"""Standard errors. 48 buckets have 1,176 runs: chance alone passes this in fewer than 1 of 100 reports."""
MIN_SCORES = 5
"""In the run, and outside it."""

_Sums = npt.NDArray[np.float64]  # n, Σw, Σwy, Σw²


@dataclass(frozen=True, slots=True)
class Stretch:
    """A run of buckets, first and last included.

    Attributes:
        inside: weighted mean of quality in the run.
        outside: of all other buckets.
        usual: of the buckets before the run, which is what it fell from; of all others where those hold too few scores.
        evidence: the difference in standard errors.
    """

    first: int
    last: int
    inside: float
    outside: float
    usual: float
    evidence: float


def worst_stretch(buckets: Sequence[Sequence[tuple[float, float]]]) -> Stretch | None:
    """Return the run that stands out most; None where none does.

    Args:
        buckets: neighbours in time, each with its (weight, quality) pairs; an empty one is no evidence either way.
    """
    filled = [at for at, bucket in enumerate(buckets) if bucket]
    if not filled:
        return None
    upto = np.array([np.zeros(4), *map(_sums, buckets)]).cumsum(axis=0)
    weights, qualities = np.array([*chain.from_iterable(buckets)]).T
    variance = float(np.cov(qualities, aweights=weights, bias=True))
    compared = (_compare(upto, at, variance) for at in combinations_with_replacement(filled, 2))
    return max(filter(None, compared), key=lambda run: run.evidence, default=None)


def _sums(bucket: Sequence[tuple[float, float]]) -> _Sums:
    pairs = np.array(bucket, dtype=np.float64).reshape(-1, 2)
    weights, qualities = pairs[:, 0], pairs[:, 1]
    return np.array([len(pairs), weights.sum(), (weights * qualities).sum(), (weights**2).sum()])


def _compare(upto: _Sums, at: tuple[int, int], variance: float) -> Stretch | None:
    """Compare a run with the rest.

    Args:
        upto: shape (buckets + 1, 4): the sums of all buckets before each border.
    """
    before, run = upto[at[0]], upto[at[1] + 1] - upto[at[0]]
    rest = upto[-1] - run
    if min(run[0], rest[0]) < MIN_SCORES or variance == 0.0:
        return None
    inside, outside = run[2] / run[1], rest[2] / rest[1]
    error = sqrt(variance * (run[3] / run[1] ** 2 + rest[3] / rest[1] ** 2))  # 1 / Kish's effective size, twice
    evidence = (outside - inside) / error
    if outside - inside < MIN_DROP or evidence < MIN_EVIDENCE:
        return None
    usual = before[2] / before[1] if before[0] >= MIN_SCORES else outside
    return Stretch(*at, float(inside), float(outside), float(usual), float(evidence))

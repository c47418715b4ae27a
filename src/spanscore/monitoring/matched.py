"""Sums of two releases by quarter of an hour → sums of each release over the same traffic by the hour, in units of clusters.

If the quality swings with the day and the traffic moves from one release to the other, the plain means of two equal releases
differ. So releases are compared within each hour: the scores of a release are weighted by the other one's share of the hour's
weight. Both then have the same weight in each hour, and the difference of their means is that of Cochran (1954), and of Mantel
and Haenszel (1959).

Scores that come together may repeat each other: a burst of one question, the turns of a conversation. The variance of the
difference is measured from one quarter of an hour to the next, and from neighbour to neighbour (Newey & West 1987, lag 1).
By as much as it exceeds the variance of independent scores, so many scores count as one (the design effect: Kish 1965; Rao &
Scott 1992). ``benchmarks/compare.py`` counts how often the interval misses that is made of these sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from spanscore.monitoring.estimates import Moments, mean, standard_error

__all__ = ["BLOCK_S", "Blocks", "MatchedSums", "matched"]

BLOCK_S: Final = 900
"""Seconds of a block."""
_PER_HOUR: Final = 4
_FEW_BLOCKS: Final = 6.0
"""A variance of few blocks may be far too small: it is raised by this number of blocks' share in them. With 6 the interval of
ten blocks holds; without, bursts and conversations make it miss in .06 of the days."""

Blocks: TypeAlias = Mapping[int, Moments]
"""Number of a block → the sums of its scores; blocks 0 to 3 are the first hour."""


class MatchedSums(NamedTuple):
    """The sums of two releases over the hours in which both have scores, with the same weight in each hour.

    Attributes:
        a: sums of the first release; Σw², Σw²y and Σw²y² are those of clusters.
        b: sums of the second release, likewise of clusters.
        blocks: number of blocks with scores.
        design_effect: scores that say no more than one, at least 1.
    """

    a: Moments
    b: Moments
    blocks: int
    design_effect: float


class _Hour(NamedTuple):
    """By how much the weights of each release are multiplied in an hour, and the middle of both means in it."""

    share_a: float
    share_b: float
    level: float


def matched(a: Blocks, b: Blocks) -> MatchedSums:
    """Return the sums of two releases over the same traffic; both are empty if the releases have no hour in common.

    Args:
        a: blocks of the first release.
        b: blocks of the second release, counted from the same moment.
    """
    hours_a, hours_b = _by_hour(a), _by_hour(b)
    hours = {hour: _hour(hours_a[hour], hours_b[hour]) for hour in sorted(hours_a.keys() & hours_b.keys())}
    sums_a = sum((_weighted(hours_a[hour], of.share_a) for hour, of in hours.items()), Moments())
    sums_b = sum((_weighted(hours_b[hour], of.share_b) for hour, of in hours.items()), Moments())
    if not hours:
        return MatchedSums(sums_a, sums_b, 0, 1.0)
    residuals = _residuals(a, b, hours, mean(sums_b) - mean(sums_a))
    independent = sums_a.w**2 * (standard_error(sums_a) ** 2 + standard_error(sums_b) ** 2)
    design_effect = _design_effect(residuals, independent)
    return MatchedSums(
        _with_design_effect(sums_a, design_effect),
        _with_design_effect(sums_b, design_effect),
        len(residuals),
        design_effect,
    )


def _by_hour(blocks: Blocks) -> dict[int, Moments]:
    """Return the sums of each hour that has scores."""
    hours: defaultdict[int, Moments] = defaultdict(Moments)
    for number, of in blocks.items():
        if of.w > 0:
            hours[number // _PER_HOUR] += of
    return hours


def _hour(a: Moments, b: Moments) -> _Hour:
    share_a, share_b = b.w / (a.w + b.w), a.w / (a.w + b.w)
    return _Hour(share_a, share_b, (mean(a) + mean(b)) / 2)


def _weighted(of: Moments, share: float) -> Moments:
    square = share * share
    return Moments(of.n, share * of.w, share * of.wy, square * of.w2, square * of.w2y, square * of.w2y2)


def _residuals(a: Blocks, b: Blocks, hours: Mapping[int, _Hour], difference: float) -> dict[int, float]:
    """Return number of a block → by how much its weighted scores differ beyond the difference of both means."""
    found, nothing = {}, Moments()
    for number in a.keys() | b.keys():
        hour, of_a, of_b = hours.get(number // _PER_HOUR), a.get(number, nothing), b.get(number, nothing)
        if hour is None or not of_a.w + of_b.w:
            continue
        w_a, w_b = hour.share_a * of_a.w, hour.share_b * of_b.w
        apart = hour.share_b * of_b.wy - hour.share_a * of_a.wy
        found[number] = apart - hour.level * (w_b - w_a) - difference / 2 * (w_a + w_b)
    return found


def _design_effect(residuals: Mapping[int, float], independent: float) -> float:
    """Return the design effect, at least 1.

    Args:
        residuals: number of a block → its residual.
        independent: variance of the sum of the residuals if all scores were independent.
    """
    if not independent:
        return 1.0
    neighbours = sum(residual * residuals.get(number + 1, 0.0) for number, residual in residuals.items())
    measured = sum(residual**2 for residual in residuals.values()) + max(0.0, neighbours)
    return max(1.0, (1 + _FEW_BLOCKS / len(residuals)) * measured / independent)


def _with_design_effect(of: Moments, design_effect: float) -> Moments:
    return replace(of, w2=design_effect * of.w2, w2y=design_effect * of.w2y, w2y2=design_effect * of.w2y2)

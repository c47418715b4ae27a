"""How sure an alert must be: from "at most one false alarm in 30 days" to a number of standard errors, and to scores.

By the union bound over evaluations, windows and streams, so whatever depends on what: 43,200 evaluations in 30 days × 3 windows
give z = 4.32.
"""

from __future__ import annotations

from math import ceil, inf
from statistics import NormalDist

__all__ = ["TOLERATED", "critical_z", "least_scores", "scores_to_see"]

TOLERATED = 0.25
"""Share of ``min_drop`` that is no drop yet: only drops of about ``min_drop`` itself are found later for it."""
MIN_SCORES = 100
MIN_SCORES_NEAR_1 = 400
NEAR_1 = 0.95
"""A pass/fail baseline from here on needs more scores for the normal approximation to hold."""
MAX_SHARE = 0.25
"""Largest false alarm probability of one evaluation: below it z would say nothing."""


def critical_z(*, interval_s: float, windows: int, every_s: float, streams: int) -> float:
    """Return how many standard errors below the null a mean must be.

    Args:
        interval_s: between two evaluations.
        windows: watched side by side.
        every_s: at most one false alarm in this time, over all windows and streams.
        streams: metrics × segments that share it.
    """
    evaluations = max(1.0, every_s / interval_s)
    return -NormalDist().inv_cdf(min(MAX_SHARE, 1 / (evaluations * windows * streams)))


def least_scores(baseline: float | None, *, binary: bool) -> int:
    """Return how many effective scores a window needs before anything is said."""
    return MIN_SCORES_NEAR_1 if binary and baseline is not None and baseline >= NEAR_1 else MIN_SCORES


def scores_to_see(drop: float, *, null: float, tolerated: float, z: float, slack: float = 0.0) -> float:
    """Return how many effective scores of a pass/fail metric a window needs so that a drop alarms half of the time.

    Infinitely many where the mean strays by as much (``slack``). A continuous metric needs fewer, by the ratio of its variance
    to null·(1 − null).
    """
    error = max(0.0, drop - tolerated) / z
    return ceil(null * (1 - null) / (error**2 - slack**2)) if error > slack else inf

"""How sure an alert must be: from "at most one false alarm in 30 days" to a number of standard errors, and to scores.

A window that slides on by a minute says nearly what it said before: what counts is not how often it is looked at, but how often
it begins to alarm. Where nothing is wrong, that is so often in a window's length:

    2.0 · z · φ(z) · exp(−1.4 · z · √(2 · interval ⁄ window))

z·φ(z) is the rate of a mean that slides without steps (Pickands 1969; Leadbetter, Lindgren & Rootzén 1983, 12.2), the last
factor what its steps miss (Siegmund, *Sequential Analysis*, 1985, 8.5: 1.17, not 1.4, where one evaluation is enough). Both
numbers are the simulation's, for alerts as they are written: on at the second evaluation, and kept on for a while. The rates of
all windows and streams add up, whatever depends on what. ``benchmarks/alerts.py`` counts what comes of it.
"""

from __future__ import annotations

from math import ceil, exp, inf, log, sqrt
from statistics import NormalDist

__all__ = ["MIN_SCORES", "OFFSET_SCORES", "RECOVERED_Z", "TOLERATED", "critical_z", "scores_to_see"]

TOLERATED = 0.25
"""Share of ``min_drop`` that is no drop yet: only drops of about ``min_drop`` itself are found later for it."""
RECOVERED_Z = 3.5
"""Standard errors by which a shorter window must be better than one that sees a drop; while that lasts, it seldom is."""
OFFSET_SCORES = 200
"""Least effective scores of a window that is itself the baseline (``offset``), as its mean has an error of its own. A pass/fail
metric at ten scores a minute has 10 false alarms in 30 days with 30 of them, .5 with 200 (`benchmarks/baselines.py`)."""
MIN_SCORES = 30
"""Least effective scores of a window that is compared with a baseline, unless ``min_scores`` is set. The test's exact size for
30 pass/fail scores is 0.31 to 1.9 of the nominal one."""
BEGUN, STEPPED = 2.0, 1.4
"""The numbers of the formula."""
LOWEST_Z, HIGHEST_Z = 1.0, 40.0
"""Between them the formula falls."""
_HALVINGS = 60
_normal = NormalDist()


def critical_z(*, window_s: float, interval_s: float, every_s: float, shares: int) -> float:
    """Return how many standard errors below the null a window's mean must be; 1 at least.

    Args:
        interval_s: between two evaluations.
        every_s: at most one false alarm in this time.
        shares: among how many windows × streams that is divided.
    """
    lowest, highest = LOWEST_Z, HIGHEST_Z
    for _ in range(_HALVINGS):
        middle = (lowest + highest) / 2
        often = every_s / window_s * _begun(middle, interval_s / window_s) * shares > 1
        lowest, highest = (middle, highest) if often else (lowest, middle)
    return highest


def _begun(z: float, step: float) -> float:
    """Return how many alarms begin in a window's length; ``step`` is the share of it from one evaluation to the next."""
    return BEGUN * z * _normal.pdf(z) * exp(-STEPPED * z * sqrt(2 * step))


def scores_to_see(
    drop: float, *, null: float, tolerated: float, z: float, baseline_sd: float = 0.0, design_effect: float = 1.0
) -> float:
    """Return how many effective scores of a pass/fail metric a window needs so that a drop alarms half of the time.

    Infinitely many where the mean strays by as much (``baseline_sd``); ``design_effect`` scores say no more than one. A
    continuous metric needs fewer, by the ratio of its variance to null·(1 − null).
    """
    mean = max(0.0, null - (drop - tolerated))
    if drop <= tolerated:
        return inf
    size = z * z / _deviance(mean, null)
    rest = 1 / size - baseline_sd**2 / (mean * (1 - mean) or inf)  # as drop_promql.deviance counts what strays
    return ceil(design_effect / rest) if rest > 0 else inf


def _deviance(mean: float, null: float) -> float:
    """Return what one pass/fail score adds to the deviance, as ``promql.deviance`` counts it."""
    failing = (1 - mean) * log((1 - mean) / (1 - null))
    return 2 * (failing + (mean * log(mean / null) if mean else 0.0))

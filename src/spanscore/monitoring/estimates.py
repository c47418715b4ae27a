"""Additive sums → mean, standard error, interval and bounds; running means; and how sure an alert must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, exp, fsum, hypot, inf, log, nan, sqrt
from operator import add, attrgetter
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core.job import Weights
from spanscore.core.score import Scale

# y is the quality of a scored unit, π the probability with which it was chosen, w = 1/π. Everything comes from sums over
# units, so replicas and time spans add up with ``+`` before anything is estimated. ``promql.py`` holds the same formulas as
# text; a test compares the two in a real Prometheus.
#
# Hájek's estimator: the plain mean of what was scored is biased where rules oversample, and Σwy/N is a poor mean (Särndal,
# Swensson & Wretman, *Model Assisted Survey Sampling*, 1992, 5.7).

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


def format_signed(value: float) -> str:
    """Return a difference for people, always with a sign: ``+0.05``."""
    return f"{value:+.2f}".replace("-", "−")


class MeanInterval(NamedTuple):
    """A mean of quality, [0, 1], or a difference of two means, [−1, 1], with its interval."""

    mean: float
    low: float
    high: float


def mean_interval(scores: Iterable[tuple[float, float]]) -> MeanInterval | None:
    """Return what (quality, probability) pairs say of all traffic; None without one."""
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
    """Return the share of the chosen units that the mean lacks, [0, 1]; 0 without any."""
    return of.lost / (of.w + of.lost) if of.lost else 0.0


def student(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t to its first term (Abramowitz & Stegun 26.7.5), as PromQL has it."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    return z + (z**3 + z) / 4 / max(freedom, 1.0)


WEIGHTED = {
    "w": semconv.WEIGHT,
    "wy": semconv.WEIGHT_QUALITY,
    "w2": semconv.WEIGHT2,
    "w2y": semconv.WEIGHT2_QUALITY,
    "w2y2": semconv.WEIGHT2_QUALITY2,
}
"""Field of ``Moments`` that weighs scores → its instrument; lost units are not among the scores."""
SUMMED = {"n": semconv.SCORED, **WEIGHTED}
"""Field of ``Moments`` → its instrument, the number of scores included."""
ReadSums: TypeAlias = Callable[[str], Mapping[tuple[tuple[str, str], ...], float]]
"""Instrument → attributes → sum, as ``Telemetry.sums`` returns them."""


class MissingShare(NamedTuple):
    """The units that a mean lacks.

    Attributes:
        share: of the chosen units, those without a score of the configured judge; (0, 1].
        low: where the mean of all may lie if these were all as bad as can be, its sampling error included; [0, 1].
        high: if they were all as good as can be, likewise.
    """

    share: float
    low: float
    high: float


def running_mean(metric: str, scale: Scale, sums: ReadSums) -> MeanInterval | None:
    """Return what the scores so far say of all eligible traffic; None where nothing is scored, or the scale is open.

    A fallback's scores are not among them.
    """
    of = _population(metric, sums)
    return None if scale.range is None or not of.w else MeanInterval(mean(of), *interval(of))


def missing_so_far(metric: str, scale: Scale, sums: ReadSums, lost: Weights) -> MissingShare | None:
    """Return what the mean lacks; None where it lacks nothing, or the scale is open.

    Args:
        lost: of the units without a score that should have one.
    """
    of = _population(metric, sums) + Moments(lost=lost.w, lost2=lost.w2)
    return None if scale.range is None or not of.lost else MissingShare(missing_share(of), *missing_bounds(of))


def _population(metric: str, sums: ReadSums) -> Moments:
    """Return the sums of a metric's scores, without those of another source."""
    totals = dict.fromkeys(SUMMED, 0.0)
    for field, instrument in SUMMED.items():
        for labels, value in sums(instrument).items():
            named = dict(labels)
            if named[semconv.EVALUATION_NAME] == metric and semconv.EVALUATION_SOURCE not in named:
                totals[field] += value
    return Moments(**totals)


# A window that slides on by a minute says nearly what it said before: what counts is not how often it is looked at, but how
# often it begins to alarm. Where nothing is wrong, that is so often in a window's length:
#
#     2.0 · z · φ(z) · exp(−1.4 · z · √(2 · interval ⁄ window))
#
# z·φ(z) is the rate of a mean that slides without steps (Pickands 1969; Leadbetter, Lindgren & Rootzén 1983, 12.2), the
# last factor what its steps miss (Siegmund, *Sequential Analysis*, 1985, 8.5: 1.17, not 1.4, where one evaluation is
# enough). Both numbers are the simulation's, for alerts as they are written: on at the second evaluation, and kept on for a
# while. The rates of all windows and streams add up, whatever depends on what. ``benchmarks/alerts.py`` counts what comes
# of it.

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
        begun = BEGUN * middle * _normal.pdf(middle) * exp(-STEPPED * middle * sqrt(2 * (interval_s / window_s)))
        often = every_s / window_s * begun * shares > 1
        lowest, highest = (middle, highest) if often else (lowest, middle)
    return highest


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
    # one pass/fail score adds so much to the deviance, as ``recorded.deviance`` counts it
    failing = (1 - mean) * log((1 - mean) / (1 - null))
    deviance = 2 * (failing + (mean * log(mean / null) if mean else 0.0))
    size = z * z / deviance
    rest = 1 / size - baseline_sd**2 / (mean * (1 - mean) or inf)
    return ceil(design_effect / rest) if rest > 0 else inf

"""Estimates of a mean from weighted sums (standard error, interval, bounds), and the critical value of an alert on a drop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, exp, fsum, hypot, inf, log, nan, sqrt
from operator import add, attrgetter
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core.job import Weights
from spanscore.core.score import Scale

WORTH_TELLING = 0.01
"""Share of sampled units without a score at which the share is reported; a smaller one is left out."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The sums of one metric over some units. ``+`` adds the sums of another replica, label, segment or time span.

    y is the quality of a scored unit, π its sampling probability. ``integrations/grafana/formulas.py`` has the formulas of this
    module as PromQL; a test compares both in a real Prometheus.

    Attributes:
        n: number of scored units.
        w: Σw with w = 1/π.
        wy: Σw·y.
        w2: Σw².
        w2y: Σw²·y.
        w2y2: Σw²·y².
        lost: Σw over the units that should have a score and have none.
        lost2: Σw² over these units.
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
    """An interval in [0, 1]."""

    low: float
    high: float


def format_signed(value: float) -> str:
    """Return a difference with its sign, for people: ``+0.05``."""
    return f"{value:+.2f}".replace("-", "−")


def format_shares(shares: Mapping[str, tuple[float, float, float]]) -> str:
    """Return shares of categories with their intervals for people, the largest first: ``refund 12 % (8 to 18)``."""
    largest = sorted(shares.items(), key=lambda share: -share[1][0])
    return ", ".join(
        f"{word} {100 * mean:.0f} % ({100 * low:.0f} to {100 * high:.0f})" for word, (mean, low, high) in largest
    )


class MeanInterval(NamedTuple):
    """A mean of quality, [0, 1], or a difference of two means, [−1, 1], with its interval."""

    mean: float
    low: float
    high: float


def mean_interval(scores: Iterable[tuple[float, float]]) -> MeanInterval | None:
    """Return the mean of all traffic from (quality, probability) pairs, with its interval; None without pairs."""
    sums = moments(scores)
    return MeanInterval(mean(sums), *interval(sums)) if sums.n else None


def moments(scores: Iterable[tuple[float, float]], lost: Iterable[float] = ()) -> Moments:
    """Return the sums of (quality, probability) pairs.

    Args:
        scores: quality in [0, 1], probability in (0, 1].
        lost: probability of each unit that should have a score and has none.
    """
    units = [(1 / probability, y) for y, probability in scores]

    def total(i: int, j: int) -> float:
        return fsum(w**i * y**j for w, y in units)

    w_lost = [1 / probability for probability in lost]
    of_lost = fsum(w_lost), fsum(w * w for w in w_lost)
    return Moments(len(units), total(1, 0), total(1, 1), total(2, 0), total(2, 1), total(2, 2), *of_lost)


def group_moments(sums: Mapping[int, Moments], key: Callable[[int], int]) -> dict[int, Moments]:
    """Return the sums of each group of time spans; ``key``: time span → group."""
    groups: dict[int, Moments] = {}
    for time, of in sums.items():
        group = key(time)
        groups[group] = groups[group] + of if group in groups else of
    return groups


def mean(of: Moments) -> float:
    """Return Hájek's mean Σwy/Σw, in [0, 1]; NaN without scores.

    The plain mean of the scores is biased if rules oversample, and Σwy/N varies more (Särndal, Swensson & Wretman, *Model
    Assisted Survey Sampling*, 1992, 5.7).
    """
    return of.wy / of.w if of.w else nan


def standard_error(of: Moments) -> float:
    """Return the standard error √V of the mean of a superpopulation, with V = Σw²(y−ȳ)²/(Σw)²; NaN without scores.

    It is 0 if all scores are equal, even for one score, so show the number of scores with it.
    """
    if not of.w:
        return nan
    middle = mean(of)
    squares = of.w2y2 - 2 * middle * of.w2y + middle * middle * of.w2
    return sqrt(max(0.0, squares)) / of.w  # equal scores may leave −1e-17


def n_eff(of: Moments) -> float:
    """Return Kish's effective number of scores (Σw)²/Σw², at most n; 0 without scores."""
    return of.w * of.w / of.w2 if of.w2 else 0.0


def interval(of: Moments, *, level: float = 0.95) -> Interval:
    """Return the confidence interval of the mean, by one formula for every kind of metric and every number of scores.

    Each end is computed from the scores and one additional, unseen score (``unseen_bounds``), because near 1 a few scores show
    too little of the variation: with 30 scores, intervals of t have a coverage of .51, and Wilson's with 5 scores .86.
    Pseudo-observations are Agresti and Coull's idea (1998). This unseen score was selected by coverage and width
    (``benchmarks/intervals.md``).

    Args:
        level: coverage, [0.7, 1).

    Returns:
        (0, 1) without scores.
    """
    size = n_eff(of)
    if not size:
        return Interval(0.0, 1.0)
    worst, best = unseen_bounds(of)
    t = student(level, size - 1)
    return Interval(max(0.0, _end(of, worst, -t)), min(1.0, _end(of, best, t)))


def unseen_bounds(of: Moments) -> Interval:
    """Return the worst and the best plausible value of one unseen score, given at least one score.

    With d = 1 − y and s = Σw²/n_eff, the worst value is 1 − (Σw²d² + s)/(Σw²d + s). It is 0 for a pass/fail metric, and if all
    scores are 1; otherwise it approaches the scores if they are many and close to each other. The best value is its mirror
    image.
    """
    typical = of.w2 / n_eff(of)  # the square of a typical score's weight
    worst = (of.w2y - of.w2y2) / (of.w2 - of.w2y + typical)
    return Interval(worst, (of.w2y2 + typical) / (of.w2y + typical))


def _end(of: Moments, unseen: float, t: float) -> float:
    middle, size = mean(of), n_eff(of)
    away = unseen - middle
    return middle + (away + t * hypot(size * standard_error(of), away)) / (size + 1)


def missing_bounds(of: Moments) -> Interval:
    """Return the bounds of the mean for any scores of the lost units: their scores are missing, not zero.

    The low bound is the low end of the interval if all lost units had the worst score, the high bound its high end if all had
    the best score. Without lost units the bounds are the interval; without any units they are (0, 1).
    """
    return Interval(interval(if_worst(of)).low, interval(if_best(of)).high)


def if_worst(of: Moments) -> Moments:
    """Return the sums if every lost unit had the worst score; ``lost`` is then 0."""
    return replace(of, w=of.w + of.lost, w2=of.w2 + of.lost2, lost=0.0, lost2=0.0)


def if_best(of: Moments) -> Moments:
    """Return the sums if every lost unit had the best score; ``lost`` is then 0."""
    return replace(if_worst(of), wy=of.wy + of.lost, w2y=of.w2y + of.lost2, w2y2=of.w2y2 + of.lost2)


def missing_share(of: Moments) -> float:
    """Return the share of the sampled units that have no score but should, [0, 1]; 0 without units."""
    return of.lost / (of.w + of.lost) if of.lost else 0.0


def student(level: float, freedom: float) -> float:
    """Return the two-sided quantile of Student's t, to the first term of its series, which PromQL can compute, too.

    Source: Abramowitz & Stegun 26.7.5.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    return z + (z**3 + z) / 4 / max(freedom, 1.0)


WEIGHTED = {
    "w": semconv.WEIGHT,
    "wy": semconv.WEIGHT_QUALITY,
    "w2": semconv.WEIGHT2,
    "w2y": semconv.WEIGHT2_QUALITY,
    "w2y2": semconv.WEIGHT2_QUALITY2,
}
"""Field of ``Moments`` with weights of scores → its instrument."""
SUMMED = {"n": semconv.SCORED, **WEIGHTED}
"""Field of ``Moments`` → its instrument, including the number of scores."""
ReadSums: TypeAlias = Callable[[str], Mapping[tuple[tuple[str, str], ...], float]]
"""Instrument → attributes → sum, as ``Telemetry.sums`` returns them."""


class MissingShare(NamedTuple):
    """The sampled units that have no score but should.

    Attributes:
        share: share of the sampled units without a score of the configured judge, (0, 1].
        low: lower bound of the mean of all units if the missing ones had the worst score, with sampling error, [0, 1].
        high: upper bound of the mean of all units if the missing ones had the best score, with sampling error, [0, 1].
    """

    share: float
    low: float
    high: float


def running_mean(metric: str, scale: Scale, sums: ReadSums) -> MeanInterval | None:
    """Return the mean of all eligible traffic from the scores so far; None without scores or a quality.

    Scores of a fallback judge are left out.
    """
    of = _population(metric, sums)
    return None if not scale.has_quality or not of.w else MeanInterval(mean(of), *interval(of))


def missing_so_far(metric: str, scale: Scale, sums: ReadSums, lost: Weights) -> MissingShare | None:
    """Return the share and the effect of units without a score; None if there are no such units, or no quality.

    Args:
        lost: weights of the units that should have a score and have none.
    """
    of = _population(metric, sums) + Moments(lost=lost.w, lost2=lost.w2)
    return None if not scale.has_quality or not of.lost else MissingShare(missing_share(of), *missing_bounds(of))


def running_shares(metric: str, scale: Scale, sums: ReadSums) -> Mapping[str, MeanInterval]:
    """Return category → share of all eligible traffic from the scores so far; empty without scores or categories.

    Scores of a fallback judge are left out. The intervals are those of each share by itself.
    """
    return _shares(_sums_by_label(metric, sums), scale.categories)


def category_shares(scores: Iterable[tuple[str, float]], categories: Iterable[str]) -> Mapping[str, MeanInterval]:
    """Return category → share of all traffic from (category, probability) pairs, with its interval; empty without pairs."""
    chances = defaultdict[str, list[float]](list)
    for word, chance in scores:
        chances[word].append(chance)
    return _shares({word: moments((1.0, chance) for chance in own) for word, own in chances.items()}, categories)


def _shares(parts: Mapping[str, Moments], categories: Iterable[str]) -> Mapping[str, MeanInterval]:
    every = sum(parts.values(), Moments())
    if not every.w:
        return {}
    shares = {}
    for word in categories:  # the share is a mean: y is 1 for units with the category, and 0 for others
        part = parts.get(word, Moments())
        of = replace(every, wy=part.w, w2y=part.w2, w2y2=part.w2)
        shares[word] = MeanInterval(mean(of), *interval(of))
    return shares


def _population(metric: str, sums: ReadSums) -> Moments:
    """Return the sums of a metric's scores by the configured judge, without other sources."""
    return sum(_sums_by_label(metric, sums).values(), Moments())


def _sums_by_label(metric: str, sums: ReadSums) -> Mapping[str, Moments]:
    """Return label → the sums of a metric's scores with it, by the configured judge. Empty label: scores without a label."""
    totals = defaultdict[str, dict[str, float]](lambda: dict.fromkeys(SUMMED, 0.0))
    for field, instrument in SUMMED.items():
        for labels, value in sums(instrument).items():
            named = dict(labels)
            if named[semconv.EVALUATION_NAME] == metric and semconv.EVALUATION_SOURCE not in named:
                totals[str(named.get(semconv.EVALUATION_SCORE_LABEL, ""))][field] += value
    return {label: Moments(**fields) for label, fields in totals.items()}


TOLERATED = 0.25
"""Share of ``min_drop`` that is tolerated. The larger it is, the later a drop of about ``min_drop`` is detected."""
RECOVERED_Z = 3.5
"""Number of standard errors by which a shorter window is better than a window with a drop if the drop is over."""
OFFSET_SCORES = 200
"""Fewest effective scores of an ``offset`` baseline, whose mean has an error, too. A pass/fail metric at ten scores a minute
has 10 false alarms in 30 days with 30 effective scores, .5 with 200 (`benchmarks/baselines.py`)."""
MIN_SCORES = 30
"""Fewest effective scores of a window that is compared with a baseline, unless ``min_scores`` is set. For 30 pass/fail scores,
the exact size of the test is 0.31 to 1.9 times the nominal size."""
BEGUN, STEPPED = 2.0, 1.4
"""Coefficients of the formula of ``critical_z``."""
LOWEST_Z, HIGHEST_Z = 1.0, 40.0
"""Range of z in which that formula decreases."""
_HALVINGS = 60
_normal = NormalDist()


def critical_z(*, window_s: float, interval_s: float, every_s: float, shares: int) -> float:
    """Return the number of standard errors below the tolerated mean at which a window alerts; at least 1.

    A window that slides on by a minute repeats nearly the same information. So the rate of false alarms depends on how often an
    alert begins, not on how often it is evaluated. Without a drop, an alert begins this often per length of a window:

        2.0 · z · φ(z) · exp(−1.4 · z · √(2 · interval ⁄ window))

    z·φ(z) is the rate for a mean that slides without steps (Pickands 1969; Leadbetter, Lindgren & Rootzén 1983, 12.2). The last
    factor corrects for the steps (Siegmund, *Sequential Analysis*, 1985, 8.5: 1.17, not 1.4, if one evaluation is enough). Both
    numbers come from a simulation of the alerts of ``drops.py``, which fire at the second evaluation and stay on for some time.
    The rates of all windows and segments add up, even if these are dependent. ``benchmarks/alerts.py`` counts the false alarms.

    Args:
        window_s: length of the window, in s.
        interval_s: seconds between two evaluations.
        every_s: at most one false alarm in this time, in s.
        shares: number of alert conditions that share this rate, from ``shares_of_false_alarms``.
    """
    lowest, highest = LOWEST_Z, HIGHEST_Z
    for _ in range(_HALVINGS):
        middle = (lowest + highest) / 2
        begins = BEGUN * middle * _normal.pdf(middle) * exp(-STEPPED * middle * sqrt(2 * (interval_s / window_s)))
        is_too_often = every_s / window_s * begins * shares > 1
        lowest, highest = (middle, highest) if is_too_often else (lowest, middle)
    return highest


def scores_to_see(
    drop: float, *, null: float, tolerated: float, z: float, baseline_sd: float = 0.0, design_effect: float = 1.0
) -> float:
    """Return the effective scores of a pass/fail metric with which a window alerts on half of the drops.

    A continuous metric needs fewer scores, by the ratio of its variance to null·(1 − null).

    Args:
        drop: distance of the mean below the baseline.
        null: mean of the null hypothesis: the baseline minus the tolerated distance.
        tolerated: distance below the baseline that is no drop.
        z: standard errors below ``null`` at which a window alerts.
        baseline_sd: standard deviation of the true mean around its baseline.
        design_effect: number of dependent scores that have the information of one independent score.

    Returns:
        Infinite if ``baseline_sd`` is so large that no number of scores suffices.
    """
    mean = max(0.0, null - (drop - tolerated))
    if drop <= tolerated:
        return inf
    # contribution of one pass/fail score to the deviance, as ``recorded.deviance`` computes it
    failing = (1 - mean) * log((1 - mean) / (1 - null))
    deviance = 2 * (failing + (mean * log(mean / null) if mean else 0.0))
    size = z * z / deviance
    rest = 1 / size - baseline_sd**2 / (mean * (1 - mean) or inf)
    return ceil(design_effect / rest) if rest > 0 else inf

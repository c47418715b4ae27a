"""The estimates of ``spanscore.monitoring.estimates`` as PromQL on counters: means, intervals, shares, and two releases.

The functions map text to text. Each formula takes ``promql.Sums``, the source of a sum, as in ``mean(promql.increases("1h"))``.
Every operand is summed by the same labels, because otherwise the two sides of an operator do not match. The alerts use recorded
sums instead (``spanscore.monitoring.recorded``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import NormalDist

from spanscore import semconv
from spanscore.core.score import Outcome
from spanscore.monitoring import promql
from spanscore.monitoring.promql import CATEGORY, GROUP, ONES, Sums, increase, label

_NO_CATEGORY = "pass|fail|"


def category_shares(window: str, where: str = "", by: Iterable[str] = GROUP) -> Sums:
    """Return the sums from which ``mean`` and ``interval`` compute the share of each category, per group and category.

    y is 1 for the units with the category, else 0, so that Σwy and Σw²y are Σw and Σw² of these units.
    """
    words = ",".join(filter(None, (where, f'{CATEGORY}!~"{_NO_CATEGORY}"')))
    groups, of_category = tuple(by), (*by, CATEGORY)

    def total(name: str) -> str:
        every = f"on ({', '.join(groups)}) group_left () {increase(name, window, words, groups)}"
        return f"(0 * {increase(name, window, words, of_category)} + {every})"

    return lambda name: increase(ONES[name], window, words, of_category) if name in ONES else total(name)


_OF_CONDITION = {semconv.WEIGHT: semconv.APPLICABLE_WEIGHT, semconv.WEIGHT2: semconv.APPLICABLE_WEIGHT2}
"""Sum of a mean → the instrument of the share to which a metric applies."""
_APPLIES = f'{label(semconv.APPLICABLE)}="true"'


def applying(window: str, where: str = "", by: Iterable[str] = GROUP) -> Sums:
    """Return the sums from which ``mean`` and ``interval`` compute the share to which metrics with a condition apply."""
    labels = tuple(by)

    def of(name: str) -> str:
        matchers = ",".join(filter(None, (where, _APPLIES if name in ONES else "")))
        return increase(_OF_CONDITION[ONES.get(name, name)], window, matchers, labels)

    return of


def entered(window: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return the number of eligible units. A delegated unit, which is eligible in two processes, is counted once."""
    delegated = ",".join(filter(None, (where, promql.matching({label(semconv.OUTCOME): Outcome.DELEGATED}))))
    return f"({increase(semconv.ELIGIBLE, window, where, by)} - {increase(semconv.EVALUATIONS, window, delegated, by)})"


def mean(sums: Sums) -> str:
    """Return the weighted mean quality, [0, 1].

    ``increase()`` extrapolates each counter by itself: near the start of a process a ratio of two can be above 1.
    """
    return f"clamp({sums(semconv.WEIGHT_QUALITY)} / {sums(semconv.WEIGHT)}, 0, 1)"


def standard_error(sums: Sums) -> str:
    """Return the standard error of the mean."""
    middle = mean(sums)
    q0, q1, q2 = (sums(name) for name in (semconv.WEIGHT2, semconv.WEIGHT2_QUALITY, semconv.WEIGHT2_QUALITY2))
    squares = f"{q2} - 2 * {middle} * {q1} + {middle} ^ 2 * {q0}"
    return f"(sqrt(clamp_min({squares}, 0)) / {sums(semconv.WEIGHT)})"


def n_eff(sums: Sums) -> str:
    """Return the effective number of scores of the sums."""
    return f"({sums(semconv.WEIGHT)} ^ 2 / {sums(semconv.WEIGHT2)})"


def interval(sums: Sums, *, level: float = 0.95) -> tuple[str, str]:
    """Return the ends of the confidence interval of the mean, for every kind of metric."""
    q0, q1, q2 = (sums(name) for name in (semconv.WEIGHT2, semconv.WEIGHT2_QUALITY, semconv.WEIGHT2_QUALITY2))
    one = f"{q0} / {n_eff(sums)}"
    low = _end(sums, f"({q1} - {q2}) / ({q0} - {q1} + {one})", "-", level)
    high = _end(sums, f"({q2} + {one}) / ({q1} + {one})", "+", level)
    return f"clamp_min({low}, 0)", f"clamp_max({high}, 1)"


def _end(sums: Sums, unseen: str, sign: str, level: float) -> str:
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle, size = mean(sums), n_eff(sums)
    away = f"({unseen} - {middle})"
    t = f"({z:.9g} + {(z**3 + z) / 4:.9g} / clamp_min({size} - 1, 1))"
    return f"{middle} + ({away} {sign} {t} * sqrt(({size} * {standard_error(sums)}) ^ 2 + {away} ^ 2)) / ({size} + 1)"


def missing_bounds(sums: Sums) -> tuple[str, str]:
    """Return the bounds of the mean for any scores of the lost units. Not for segments: lost units have no segment."""
    return interval(if_worst(sums))[0], interval(if_best(sums))[1]


def if_worst(sums: Sums) -> Sums:
    """Return the sums if every lost unit had the worst score."""
    return _with_lost(sums, _IF_WORST)


def if_best(sums: Sums) -> Sums:
    """Return the sums if every lost unit had the best score."""
    return _with_lost(sums, _IF_BEST)


_IF_WORST = {semconv.WEIGHT: semconv.MISSING_WEIGHT, semconv.WEIGHT2: semconv.MISSING_WEIGHT2}
_IF_BEST = {
    **_IF_WORST,
    semconv.WEIGHT_QUALITY: semconv.MISSING_WEIGHT,
    semconv.WEIGHT2_QUALITY: semconv.MISSING_WEIGHT2,
    semconv.WEIGHT2_QUALITY2: semconv.MISSING_WEIGHT2,
}
"""Sum of scores → the sum of lost units that is added to it."""


def _with_lost(sums: Sums, added: Mapping[str, str]) -> Sums:
    return lambda name: f"({sums(name)} + {sums(added[name])})" if name in added else sums(name)


# Two releases. A panel is for one look: its interval is ``at_one_look``, over a sliding window. If the panel is watched
# continuously, its interval will sometimes exclude the true difference. For a decision use ``spanscore compare``, whose
# interval holds at every look.


def release_sums(value: str, window: str, where: str = "", by: Iterable[str] = GROUP) -> Sums:
    """Return the sums of a release; ``value`` is inside the quotes of a matcher: escaped, or a dashboard's variable."""
    of_release = promql.increases(window, ",".join(filter(None, (where, f'{promql.RELEASE}="{value}"'))), by)
    return lambda instrument: of_release(_OF_RELEASES.get(instrument, instrument))


_OF_RELEASES = {
    semconv.MISSING_WEIGHT: semconv.COMPARED_MISSING_WEIGHT,
    semconv.MISSING_WEIGHT2: semconv.COMPARED_MISSING_WEIGHT2,
}
"""Sum of the units without a score of the configured judge in all releases → the sum for each release."""


def difference(a: Sums, b: Sums) -> str:
    """Return the mean quality of b minus that of a, [−1, 1]."""
    return f"({mean(b)} - {mean(a)})"


def difference_interval(a: Sums, b: Sums) -> tuple[str, str]:
    """Return the ends of the difference's interval at one look, as in ``at_one_look``."""
    (low_a, high_a), (low_b, high_b) = (interval(side) for side in (a, b))
    below = f"({mean(b)} - {low_b}) ^ 2 + ({high_a} - {mean(a)}) ^ 2"
    above = f"({high_b} - {mean(b)}) ^ 2 + ({mean(a)} - {low_a}) ^ 2"
    middle = difference(a, b)
    return f"clamp_min({middle} - sqrt({below}), -1)", f"clamp_max({middle} + sqrt({above}), 1)"


def difference_bounds(a: Sums, b: Sums) -> tuple[str, str]:
    """Return the bounds of ``bounds_with_unscored``, at one look."""
    low, _ = difference_interval(if_best(a), if_worst(b))
    _, high = difference_interval(if_worst(a), if_best(b))
    return low, high


def missing_of(sums: Sums) -> str:
    """Return the share of a release's sampled units without a score of the configured judge, [0, 1]."""
    lost = sums(semconv.MISSING_WEIGHT)
    return f"({lost} / ({lost} + {sums(semconv.WEIGHT)}))"

"""The formulas of estimates as PromQL, and Prometheus' names of our instruments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from statistics import NormalDist
from typing import TypeAlias

from spanscore import semconv
from spanscore.core.score import Outcome
from spanscore.outputs.instrument_table import INSTRUMENTS, MOMENTS

# OpenTelemetry names → Prometheus names, as the Collector's remote write makes them, so that one query reads either way in.
#
# Dots become underscores, a unit is spelled out (``s`` → ``_seconds``) unless it is ``1``, in braces or there already,
# counters end in ``_total``. Of our instruments none is a gauge of unit ``1``, the one case in which translators differ
# (``_ratio``). Source: OpenTelemetry specification, *Prometheus and OpenMetrics Compatibility*.

_UNITS = {"1": "", "s": "seconds", "ms": "milliseconds", "By": "bytes"}


def label(attribute: str) -> str:
    """Return the label of an attribute: ``gen_ai.evaluation.name`` → ``gen_ai_evaluation_name``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


def family(name: str, unit: str) -> str:
    """Return the name of a metric family, without ``_total`` or ``_bucket``."""
    spelled = _UNITS.get(unit, "" if unit.startswith("{") else label(unit))
    told = label(name)
    return f"{told}_{spelled}" if spelled and not told.endswith(f"_{spelled}") else told


def series(instrument: str) -> str:
    """Return what one of our instruments is called in a query; of a histogram without ``_bucket``, ``_sum`` or ``_count``.

    Raises:
        KeyError: there is no such instrument.
    """
    about = INSTRUMENTS[instrument]
    return family(instrument, about.unit) + ("_total" if about.kind == "counter" else "")


# The formulas of ``estimates.py`` as PromQL, from the counters: for dashboards and for alerts on shares. Text in, text out.
# ``recorded.py`` has the rules of means and drops, which are made of recorded sums.
#
# Each formula takes ``Sums``, which says where a sum comes from, as in ``mean(increases("1h"))``. Every operand is summed
# by the same labels: without that, nothing on one side of a sign matches anything on the other.

Sums: TypeAlias = Callable[[str], str]
"""Instrument (a name of ``semconv``) → the expression of its sum over a window, per group."""

METRIC = label(semconv.EVALUATION_NAME)
GROUP = (METRIC, "service_name", "job")
"""A metric of a service. A scrape gives ``service_name``, remote write gives ``job``; a label that is not there is empty."""
EVALUATOR_VERSION = label(semconv.EVALUATOR_VERSION)
BY_EVALUATOR = (*GROUP, EVALUATOR_VERSION)
"""A series (metric version, judge and votes) of a metric of a service: scores of two of them cannot be compared."""
UNACCOUNTED = "spanscore:unaccounted"
"""The name under which ``unaccounted()`` is recorded."""
INSTANCE = "instance"
POPULATION = f'{label(semconv.EVALUATION_SOURCE)}=""'
"""The matcher of the configured judge's own scores: those of a fallback are of another source."""
OWN_SERVICE, OWN_EVALUATOR, OWN = "\nown service", "\nown evaluator", "\nown segment"
"""Stand among matchers for the metric and service, for these and the series, and for these and the segment, that an alert is
about: Prometheus puts the values in when the alert is sent. With a line break, which no value in a matcher has."""
LOWEST_FACTOR = "spanscore:budget_factor"
"""The name under which ``lowest_factor()`` is."""
FAILED = "|".join(outcome for outcome in Outcome if outcome.failed)
"""The outcomes that count as failures, for ``=~``."""
TURNED_AWAY = "|".join(outcome for outcome in Outcome if outcome.not_attempted)
"""The outcomes of units of which no score was asked here."""

LOST = "|".join(outcome for outcome in Outcome if outcome.missing)
"""The outcomes of units that the mean lacks."""

_OF_SOURCES = frozenset({semconv.SCORED, *MOMENTS, semconv.BUDGET_SPENT, semconv.BUDGET_LIMIT})
"""Sums of which only the population's are asked. Outcomes are those of all units, so that they add up; and its mean lacks
units of every source."""
_OF_UNITS = frozenset(
    {semconv.ELIGIBLE, semconv.EVALUATIONS, semconv.PENDING, semconv.MISSING_WEIGHT, semconv.MISSING_WEIGHT2}
)
"""Counts of units: of every source but those in which the same units, or none, are judged once more."""
_BESIDE = (semconv.SOURCE_JUDGE_CHECK, semconv.SOURCE_FEEDBACK, semconv.SOURCE_EXTERNAL, semconv.SOURCE_SHADOW)
_NOT_BESIDE = f'{label(semconv.EVALUATION_SOURCE)}!~"{"|".join(_BESIDE)}"'
"""The matcher of units that came by sampling: the population's, and those of a fallback, which it lacks."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_DURATION_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def duration(seconds: float) -> str:
    """Return a duration as Prometheus writes it, in the largest unit that is whole: 3600 → ``1h``, 90 → ``90s``."""
    milliseconds = round(seconds * 1_000)
    unit, size = next((unit, size) for unit, size in _DURATION_UNITS if milliseconds % size == 0)
    return f"{milliseconds // size}{unit}"


def matching(labels: Mapping[str, str]) -> str:
    """Return matchers: ``{"job": "bot"}`` → ``job="bot"``; values are escaped, empty ones match a label that is not there."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def any_of(values: Iterable[str]) -> str:
    """Return the inside of a ``=~`` that matches each of the values and nothing else."""
    return "|".join(map(re.escape, values)).translate(_ESCAPES)


def replacement(text: str) -> str:
    """Return the inside of a ``label_replace`` that puts just this text in."""
    return text.replace("$", "$$").translate(_ESCAPES)


def now(instrument: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return the present value of an instrument per group; of a counter: since its processes started."""
    return f"sum by ({', '.join(by)}) ({series(instrument)}{_where(_of_source(instrument, where))})"


def increase(instrument: str, window: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return how much a counter grew in the window, per group, over all replicas, labels and segments that are not in ``by``.

    Of scores those of the population alone, of units all but what is judged beside it. Prometheus extrapolates at the
    window's ends: right for means, whose sums share the error, not for exact counts.
    """
    return f"sum by ({', '.join(by)}) ({grown_in(instrument, window, where)})"


def grown_in(instrument: str, window: str, where: str = "") -> str:
    """Return how much each counter of an instrument grew in the window, with all its labels."""
    return f"increase({series(instrument)}{_where(_of_source(instrument, where))}[{window}])"


def labelled(name: str, expressions: Mapping[str, str]) -> str:
    """Return the union of expressions, each with a value of a label."""
    return "\nor ".join(f'label_replace({one}, "{name}", "{value}", "", "")' for value, one in expressions.items())


def population(instrument: str) -> str:
    """Return the counters of an instrument of which the estimates are made."""
    return series(instrument) + _where(POPULATION)


def grown(instrument: str, step: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return by how much the population's counters grew in a step, per group: each one's difference, none across a restart."""
    counter = series(instrument) + _where(",".join(filter(None, (where, POPULATION))))
    return f"sum by ({', '.join(by)}) ({counter} - {counter} offset {step} >= 0)"


def increases(window: str, where: str = "", by: Iterable[str] = GROUP) -> Sums:
    """Return sums that come from the counters.

    Args:
        window: ``1h``, or a dashboard's ``$__range``.
        where: matchers, ``gen_ai_evaluation_name=~"$metric"``; empty = everything.
        by: the labels that are told apart.
    """
    labels = tuple(by)
    return lambda instrument: increase(instrument, window, where, labels)


def entered(window: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return how many units entered, each once: one that was handed over has entered in the process that scores it, too."""
    delegated = ",".join(filter(None, (where, matching({label(semconv.OUTCOME): Outcome.DELEGATED}))))
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
    """Return the effective number of scores."""
    return f"({sums(semconv.WEIGHT)} ^ 2 / {sums(semconv.WEIGHT2)})"


def interval(sums: Sums, *, level: float = 0.95) -> tuple[str, str]:
    """Return the ends of the interval of the mean, of every kind of metric."""
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


def missing_bounds(sums: Sums, *, level: float = 0.95) -> tuple[str, str]:
    """Return where the mean lies whatever the lost units would have scored. Not for segments: what is lost has none."""
    return interval(if_worst(sums), level=level)[0], interval(if_best(sums), level=level)[1]


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
"""A sum → what the lost units would add to it."""


def _with_lost(sums: Sums, added: Mapping[str, str]) -> Sums:
    return lambda name: f"({sums(name)} + {sums(added[name])})" if name in added else sums(name)


def missing_share(window: str, where: str = "", *, weighted: bool = True) -> str:
    """Return the share of the chosen units that have no score of the configured judge, [0, 1].

    Args:
        weighted: by w; False for a metric with an open scale, whose scores add no weight.
    """
    return _share(window, where, LOST, where, weighted=weighted)


def failed_share(window: str, where: str = "", *, weighted: bool = True) -> str:
    """Return the share of evaluations that failed, [0, 1].

    Args:
        weighted: by w; False for a metric with an open scale, whose scores add no weight.
    """
    return _share(window, where, FAILED, _ended_as(FAILED, where), weighted=weighted)


def _share(window: str, where: str, outcomes: str, of_weights: str, *, weighted: bool) -> str:
    """Return part ⁄ (part + scored), each written once; ``of_weights``: the matchers of the part's weights."""
    if weighted:
        part, scored = increase(semconv.MISSING_WEIGHT, window, of_weights), increase(semconv.WEIGHT, window, where)
    else:
        part = increase(semconv.EVALUATIONS, window, _ended_as(outcomes, where))
        scored = increase(semconv.SCORED, window, where)
    return f"(1 / (1 + {scored} / {part}))"


def failures(window: str, where: str = "") -> str:
    """Return how many evaluations of the population failed."""
    return increase(semconv.EVALUATIONS, window, _ended_as(FAILED, where))


def declined_share(window: str, where: str = "") -> str:
    """Return the share of the evaluations that were to be judged which the judge declined, [0, 1]."""
    asked = ",".join(filter(None, (where, f'{label(semconv.OUTCOME)}!~"{TURNED_AWAY}"', POPULATION)))
    return f"({increase(semconv.DECLINED, window, where)} / {increase(semconv.EVALUATIONS, window, asked)})"


def lowest_factor() -> str:
    """Return by what each budget multiplies the sampling rates; of several replicas, the lowest."""
    by = (label(semconv.BUDGET_UNIT), label(semconv.BUDGET_WINDOW), *GROUP)
    return f"min by ({', '.join(by)}) ({series(semconv.BUDGET_FACTOR)})"


def unaccounted(where: str = "") -> str:
    """Return eligible − Σ outcomes − pending per metric: 0 whenever nothing was lost, in each process and in all together."""
    eligible, ended, pending = (now(name, where) for name in (semconv.ELIGIBLE, semconv.EVALUATIONS, semconv.PENDING))
    return f"{eligible} - {ended} - {pending}"


def _ended_as(outcomes: str, where: str) -> str:
    """Return the matchers of the population's evaluations that ended in one of these."""
    return ",".join(filter(None, (where, f'{label(semconv.OUTCOME)}=~"{outcomes}"', POPULATION)))


def _of_source(instrument: str, where: str) -> str:
    """Return matchers with those of whose scores, or of which units, an instrument is asked."""
    if label(semconv.EVALUATION_SOURCE) in where:
        return where
    own = POPULATION if instrument in _OF_SOURCES else _NOT_BESIDE if instrument in _OF_UNITS else ""
    return ",".join(filter(None, (where, own)))


def _where(matchers: str) -> str:
    return f"{{{matchers}}}" if matchers else ""

"""PromQL expressions of sums and shares on counters, and the Prometheus names of spanscore's instruments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from spanscore import semconv
from spanscore.core.score import Outcome
from spanscore.outputs.instrument_table import INSTRUMENTS, MOMENTS

_UNITS = {"1": "", "s": "seconds", "ms": "milliseconds", "By": "bytes"}


def label(attribute: str) -> str:
    """Return the label name of an attribute: ``gen_ai.evaluation.name`` → ``gen_ai_evaluation_name``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", attribute)


def family(name: str, unit: str) -> str:
    """Return the name of a metric family, without ``_total`` or ``_bucket``.

    The names are those of the Collector's remote write, so that one query works for scraping and pushing: a unit is spelled out
    (``s`` → ``_seconds``) unless it is ``1``, in braces or already in the name. Translators differ only for gauges of unit
    ``1`` (``_ratio``), which spanscore does not have. Source: OpenTelemetry specification, *Prometheus and OpenMetrics
    Compatibility*.
    """
    spelled = _UNITS.get(unit, "" if unit.startswith("{") else label(unit))
    base = label(name)
    return f"{base}_{spelled}" if spelled and not base.endswith(f"_{spelled}") else base


def series(instrument: str) -> str:
    """Return the Prometheus name of an instrument; a histogram's name lacks ``_bucket``, ``_sum`` and ``_count``.

    Raises:
        KeyError: spanscore has no such instrument.
    """
    about = INSTRUMENTS[instrument]
    return family(instrument, about.unit) + ("_total" if about.kind == "counter" else "")


Sums: TypeAlias = Callable[[str], str]
"""Instrument (a name of ``semconv``) → the expression of its sum over a window, per group."""

METRIC = label(semconv.EVALUATION_NAME)
CATEGORY = label(semconv.EVALUATION_SCORE_LABEL)
"""Label with the category of a score, or with ``pass`` or ``fail``."""
GROUP = (METRIC, "service_name", "job")
"""Labels that separate metrics and services. A scrape sets ``service_name``, remote write ``job``; the other label is empty."""
EVALUATOR_VERSION = label(semconv.EVALUATOR_VERSION)
RELEASE = label(semconv.COMPARED)
"""Label of the compared value."""
BY_EVALUATOR = (*GROUP, EVALUATOR_VERSION)
"""Labels that separate metrics, services and evaluator versions; scores of two evaluator versions are not comparable."""
UNACCOUNTED = "spanscore:unaccounted"
"""Name of the record of ``unaccounted_units()``."""
INSTANCE = "instance"
POPULATION = f'{label(semconv.EVALUATION_SOURCE)}=""'
"""Matcher of the scores of the configured judge; scores of a fallback have another source."""
OWN_SERVICE, OWN_EVALUATOR, OWN = "\nown service", "\nown evaluator", "\nown segment"
"""Placeholders for the matchers that select the series of an alert, for which Prometheus fills in the values when it sends it:

- ``OWN_SERVICE``: metric and service,
- ``OWN_EVALUATOR``: metric, service and evaluator version,
- ``OWN``: metric, service, evaluator version and segment.

Each begins with a line break, which no value in a matcher contains.
"""
LOWEST_FACTOR = "spanscore:budget_factor"
"""Name of the record of ``lowest_factor()``."""
FAILED = "|".join(outcome for outcome in Outcome if outcome.failed)
"""Outcomes that count as failures, for ``=~``."""
TURNED_AWAY = "|".join(outcome for outcome in Outcome if outcome.not_attempted)
"""Outcomes of units that this process did not try to score, for ``=~``."""
_OF_SOURCES = frozenset({semconv.SCORED, *MOMENTS, semconv.BUDGET_SPENT, semconv.BUDGET_LIMIT})
"""Instruments of which only the sums of the configured judge are read."""
_OF_UNITS = frozenset(
    {semconv.ELIGIBLE, semconv.EVALUATIONS, semconv.PENDING, semconv.MISSING_WEIGHT, semconv.MISSING_WEIGHT2}
)
"""Counts of sampled units, which are read for the configured judge and its fallback, so that outcomes add up."""
_OTHER_SOURCES = (
    semconv.SOURCE_JUDGE_CHECK,
    semconv.SOURCE_FEEDBACK,
    semconv.SOURCE_EXTERNAL,
    semconv.SOURCE_SHADOW,
    semconv.SOURCE_INNER,
)
"""Sources that score the same units again, other units, or no units."""
_SAMPLED = f'{label(semconv.EVALUATION_SOURCE)}!~"{"|".join(_OTHER_SOURCES)}"'
"""Matcher of the configured judge and its fallback."""
_BESIDE_THE_QUEUE = "|".join(source for source in _OTHER_SOURCES if source != semconv.SOURCE_INNER)
IN_QUEUE = f'{label(semconv.EVALUATION_SOURCE)}!~"{_BESIDE_THE_QUEUE}"'
"""Matcher of the sources whose units wait in the job queue: the configured judge, its fallback and inner units."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_DURATION_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def duration(seconds: float) -> str:
    """Return a duration in Prometheus' notation, in the largest unit without a remainder: 3600 → ``1h``, 90 → ``90s``."""
    milliseconds = round(seconds * 1_000)
    unit, size = next((unit, size) for unit, size in _DURATION_UNITS if milliseconds % size == 0)
    return f"{milliseconds // size}{unit}"


def matching(labels: Mapping[str, str]) -> str:
    """Return matchers: ``{"job": "bot"}`` → ``job="bot"``; values are escaped, and an empty value matches a missing label."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def any_of(values: Iterable[str]) -> str:
    """Return the pattern of a ``=~`` that matches exactly these values."""
    return "|".join(map(re.escape, values)).translate(_ESCAPES)


def replacement(text: str) -> str:
    """Return the replacement of a ``label_replace`` that inserts exactly this text."""
    return text.replace("$", "$$").translate(_ESCAPES)


def current(instrument: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return the present value of an instrument per group; for a counter, since its processes started."""
    return f"sum by ({', '.join(by)}) ({series(instrument)}{_of_source(instrument, where)})"


def increase(instrument: str, window: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return the increase of a counter in the window per group, summed over all labels that are not in ``by``.

    Scores are those of the configured judge; units count once, even if another source judges them again. Prometheus
    extrapolates at the window's ends: means are right, because their sums share the error, but counts are not exact.
    """
    return f"sum by ({', '.join(by)}) ({increase_of_each(instrument, window, where)})"


def increase_of_each(instrument: str, window: str, where: str = "") -> str:
    """Return the increase of each counter of an instrument in the window, with all labels."""
    return f"increase({series(instrument)}{_of_source(instrument, where)}[{window}])"


def label_each(name: str, expressions: Mapping[str, str]) -> str:
    """Return the union of expressions; each gets its key as the value of label ``name``."""
    return "\nor ".join(
        f'label_replace({expression}, "{name}", "{value}", "", "")' for value, expression in expressions.items()
    )


def population_series(instrument: str, where: str = "") -> str:
    """Return the selector of an instrument's counters for the configured judge, which estimates use."""
    return f"{series(instrument)}{{{_of_population(where)}}}"


def exact_increase(instrument: str, step: str, where: str = "", by: Iterable[str] = GROUP) -> str:
    """Return the increase of the counters in a step per group, not extrapolated, without counters that restarted."""
    counter = population_series(instrument, where)
    return f"sum by ({', '.join(by)}) ({counter} - {counter} offset {step} >= 0)"


def increases(window: str, where: str = "", by: Iterable[str] = GROUP) -> Sums:
    """Return a function from an instrument to its increase in a window, per group.

    Args:
        window: ``1h``, or a dashboard's ``$__range``.
        where: PromQL matchers, ``gen_ai_evaluation_name=~"$metric"``; empty = everything.
        by: labels that separate groups.
    """
    labels = tuple(by)
    return lambda instrument: increase(instrument, window, where, labels)


ONES: Final = {
    semconv.WEIGHT_QUALITY: semconv.WEIGHT,
    semconv.WEIGHT2_QUALITY: semconv.WEIGHT2,
    semconv.WEIGHT2_QUALITY2: semconv.WEIGHT2,
}
"""Sum with y → sum without y that equals it over the units with y = 1, if y is 0 or 1: Σwy is the Σw of these units."""


def missing_share(window: str, where: str = "") -> str:
    """Return the share of the sampled units that have no score of the configured judge, by weight, [0, 1]."""
    return _part_of(increase(semconv.MISSING_WEIGHT, window, where), increase(semconv.WEIGHT, window, where))


def failed_share(window: str, where: str = "", *, weighted: bool = True) -> str:
    """Return the share of evaluations that failed, [0, 1].

    Args:
        weighted: whether units count by weight; False for a metric with an open scale, whose scores have no weights.
    """
    failed, scored = (semconv.MISSING_WEIGHT, semconv.WEIGHT) if weighted else (semconv.EVALUATIONS, semconv.SCORED)
    return _part_of(increase(failed, window, _of_failures(where)), increase(scored, window, where))


def _part_of(part: str, scored: str) -> str:
    return f"(1 / (1 + {scored} / {part}))"


def failures(window: str, where: str = "") -> str:
    """Return the number of failed evaluations by the configured judge."""
    return increase(semconv.EVALUATIONS, window, _of_failures(where))


def declined_share(window: str, where: str = "") -> str:
    """Return the share of the evaluations sent to a judge that the judge declined, [0, 1]."""
    attempted = _of_population(",".join(filter(None, (where, f'{label(semconv.OUTCOME)}!~"{TURNED_AWAY}"'))))
    return f"({increase(semconv.DECLINED, window, where)} / {increase(semconv.EVALUATIONS, window, attempted)})"


def lowest_factor() -> str:
    """Return the factor by which each budget multiplies the sampling rates, the lowest of all replicas."""
    by = (label(semconv.BUDGET_UNIT), label(semconv.BUDGET_WINDOW), *GROUP)
    return f"min by ({', '.join(by)}) ({series(semconv.BUDGET_FACTOR)})"


def unaccounted_units(where: str = "") -> str:
    """Return eligible − Σ outcomes − pending per metric: 0 if nothing was lost, in each process and in their sum."""
    return " - ".join(current(name, where) for name in (semconv.ELIGIBLE, semconv.EVALUATIONS, semconv.PENDING))


def _of_failures(where: str) -> str:
    """Return matchers with that of failed evaluations; without a matcher of the source, of the configured judge."""
    return _of_population(",".join(filter(None, (where, f'{label(semconv.OUTCOME)}=~"{FAILED}"'))))


def _of_population(where: str) -> str:
    """Return matchers with that of the configured judge, unless they have a matcher of the source."""
    return where if label(semconv.EVALUATION_SOURCE) in where else ",".join(filter(None, (where, POPULATION)))


def _of_source(instrument: str, where: str) -> str:
    """Return the selector with the sources for which an instrument is read, unless its matchers name the source."""
    if instrument in _OF_SOURCES:
        where = _of_population(where)
    elif instrument in _OF_UNITS and label(semconv.EVALUATION_SOURCE) not in where:
        where = ",".join(filter(None, (where, _SAMPLED)))
    return f"{{{where}}}" if where else ""

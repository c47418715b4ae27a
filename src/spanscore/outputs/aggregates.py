"""Sums by attribute set in bounded memory, the attribute sets of all instruments, and the compared values of releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from operator import add
from threading import Lock, RLock
from typing import Any, Final, NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core.job import Source
from spanscore.core.log import plain_text
from spanscore.core.score import Outcome, Score
from spanscore.core.span import InnerGroup, Unit
from spanscore.core.threads import renew_lock_in_child
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Attributes as a key: (name, value) pairs in a fixed order."""

SDK_SETS: Final = 2_000
"""Number of attribute sets per instrument above which the OpenTelemetry SDK silently merges further sets into one."""
MOST_DECLARED: Final = 1_500
"""Maximum number of attribute sets per instrument that are declared in advance, from metrics and dimensions."""
MAX_SETS: Final = 1_000
"""Default limit of undeclared sets per instrument, which appear later: new evaluator versions, models and agents."""
OTHER = "other"
"""Value that replaces the values of an attribute in a set above the limit."""
_FOR_OTHERS: Final = 100
"""Attribute sets per instrument that are reserved for sets with ``other``."""
_OF_EVERY_SCORE = {
    semconv.EVALUATION_NAME,
    semconv.EVALUATION_SCORE_LABEL,
    semconv.EVALUATION_SOURCE,
    semconv.UNIT_KIND,
    semconv.UNIT_NAME,
}
_CLOSED = _OF_EVERY_SCORE | {semconv.OUTCOME, semconv.JUDGE_TOKEN_TYPE, semconv.APPLICABLE}
"""Attributes with few values, which are never replaced by ``other``."""
_RESERVED = _OF_EVERY_SCORE | {semconv.COMPARED, semconv.EVALUATOR_VERSION}
"""Attributes of each score, which no dimension may be named after."""


class BoundedSums:
    """Sums by instrument and attributes. Thread-safe.

    Args:
        max_sets: limit of undeclared attribute sets per instrument. In a set above the limit, the value of each attribute with
            an unlimited number of values becomes ``other``.

    Attributes:
        overflowed: number of measurements in sets with ``other``.
        overflowing: metric → the attribute with the most values at its first overflow.
    """

    def __init__(self, max_sets: int) -> None:
        self._max_sets = max_sets
        self._lock = Lock()
        self._sums: dict[str, dict[Labels, float]] = {}
        self._declared: Counter[str] = Counter()
        self.overflowed = 0
        self.overflowing: dict[str, str] = {}

    def declare(self, labels: Labels, zeros: Mapping[str, float]) -> None:
        """Create the sums of one attribute set in several instruments; ``zeros``: instrument → 0 or 0.0.

        Up to ``MOST_DECLARED`` sets per instrument do not count towards the limit.
        """
        with self._lock:
            for name, zero in zeros.items():
                sums = self._sums.setdefault(name, {})
                if labels in sums:
                    continue
                if self._declared[name] < MOST_DECLARED:
                    self._declared[name] += 1
                    sums[labels] = zero
                else:  # possible after many reloads of the configuration
                    self._limit_labels(name, labels)

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Add an amount to one instrument."""
        self.add_all(labels, ((name, amount),))

    def add_all(self, labels: Labels, amounts: Iterable[tuple[str, float]]) -> None:
        """Add amounts to several instruments under the same attributes."""
        with self._lock:
            for name, amount in amounts:
                own = labels if labels in self._sums.get(name, ()) else self._limit_labels(name, labels)
                self._sums[name][own] += amount

    def limit_labels(self, name: str, labels: Labels) -> Labels:
        """Return the attributes; if the instrument has too many sets, their replacement with ``other``."""
        with self._lock:
            return self._limit_labels(name, labels)

    def read(self, name: str) -> dict[Labels, float]:
        """Return the sums of an instrument."""
        with self._lock:
            return dict(self._sums.get(name, {}))

    def begin_at_zero(self) -> None:
        """Set each existing sum to 0, in a forked child."""
        self._lock = Lock()
        self._sums = {name: {key: type(value)(0) for key, value in sums.items()} for name, sums in self._sums.items()}

    def _limit_labels(self, name: str, labels: Labels) -> Labels:
        sums = self._sums.setdefault(name, {})
        if labels in sums:
            return labels
        declared = self._declared[name]
        if len(sums) - declared >= min(self._max_sets, SDK_SETS - _FOR_OTHERS - declared):
            self.overflowed += 1
            self._record_overflow(sums, labels)
            labels = tuple((key, value if key in _CLOSED else OTHER) for key, value in labels)
        sums.setdefault(labels, 0)
        return labels

    def _record_overflow(self, sums: Iterable[Labels], labels: Labels) -> None:
        """Set ``overflowing`` for the metric of some attributes, at its first overflow."""
        metric = dict(labels).get(semconv.EVALUATION_NAME)
        if metric is None or metric in self.overflowing:
            return
        values: dict[str, set[str]] = {key: {value} for key, value in labels if key not in _CLOSED}
        for existing in map(dict, sums):
            if existing.get(semconv.EVALUATION_NAME) == metric:
                for key in values.keys() & existing.keys():
                    values[key].add(existing[key])
        if values:
            self.overflowing[metric] = max(values, key=lambda key: len(values[key]))


def add_up(total: dict[Labels, float], more: Mapping[Labels, float]) -> None:
    """Add the sums in ``more`` to those in ``total``, in place."""
    for labels, value in more.items():
        total[labels] = total.get(labels, 0) + value


def checked_dimensions(dimensions: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return dimensions with their values as text, without duplicates.

    Raises:
        ConfigurationError: a dimension has the name of an attribute of spanscore, or of the label with the scorer's service.
    """
    if service := {semconv.SERVICE_NAME, "service_name"} & set(dimensions):
        raise ConfigurationError(
            f"the dimension {min(service)!r} would be the label service_name, which is the scorer's own: separate applications "
            "by another attribute of their resource, such as service.namespace"
        )
    if reserved := _RESERVED & set(dimensions):
        raise ConfigurationError(
            f"the dimension {min(reserved)!r} has the name of an attribute that every score has already"
        )
    return {key: tuple(dict.fromkeys(str(value) for value in values)) for key, values in dimensions.items()}


def labels_of_metric(name: str, source: Source = None) -> Labels:
    """Return the attributes of a count per metric."""
    return ((semconv.EVALUATION_NAME, name), *labels_of_source(source))


def labels_of_applicability(name: str, evaluator_version: str, applies: bool) -> Labels:
    """Return the attributes of the sums on whether a metric applies."""
    version, answer = (semconv.EVALUATOR_VERSION, evaluator_version), (semconv.APPLICABLE, str(applies).lower())
    return (*labels_of_metric(name), version, answer)


def labels_of_calls(metric: str, model: str) -> Labels:
    """Return the attributes of a metric's calls of a model."""
    return (semconv.EVALUATION_NAME, metric), (semconv.REQUEST_MODEL, model)


def labels_of_outcome(name: str, outcome: Outcome, source: Source = None) -> Labels:
    """Return the attributes of a count per metric and outcome."""
    return (*labels_of_metric(name), (semconv.OUTCOME, str(outcome)), *labels_of_source(source))


def labels_of_compared(name: str, value: str) -> Labels:
    """Return the attributes of a count per metric and compared value."""
    return (*labels_of_metric(name), (semconv.COMPARED, value))


def labels_of_score(
    name: str, label: str | None, evaluator_version: str, dimensions: Labels, source: Source = None
) -> Labels:
    """Return the attributes of a score's sums."""
    labelled = ((semconv.EVALUATION_SCORE_LABEL, label),) if label else ()
    version = (semconv.EVALUATOR_VERSION, evaluator_version)
    return (*labels_of_metric(name), *labelled, version, *dimensions, *labels_of_source(source))


def labels_of_source(source: Source) -> Labels:
    """Return the attributes of a source. The configured judge has none; only its scores are in alerts and means."""
    if isinstance(source, InnerGroup):
        return ((semconv.EVALUATION_SOURCE, semconv.SOURCE_INNER), *source.attributes.items())
    return ((semconv.EVALUATION_SOURCE, source),) if source else ()


def source_of(unit: Unit | None, score: Score) -> Source:
    """Return the source of a score for sums; for a score of an inner unit, the inner unit's group."""
    return score.source if unit is None or unit.inner is None else unit.inner


def labels_of_histogram(unit: Unit | None, score: Score) -> Labels:
    """Return the attributes of a score in the histogram of quality, with the application's model and its workflow or agent."""
    labels = labels_of_score(score.metric, score.exported_label, score.evaluator_version, (), source_of(unit, score))
    if unit is None:
        return labels
    attributes: Mapping[str, Any] = unit.root.attributes if unit.root is not None else {}
    name = semconv.WORKFLOW_NAME if semconv.WORKFLOW_NAME in attributes else semconv.AGENT_NAME
    of_unit = ((semconv.REQUEST_MODEL, unit.request_model), (name, attributes.get(name)))
    return (*labels, *((key, str(value)) for key, value in of_unit if value is not None))


MOST_VALUES: Final = 8
"""Number of compared values with separate sums: the first ones of a process, because counters must not change later."""
UNKNOWN: Final = "unknown"
"""Compared value of a unit that has none. Such units have separate sums, because they belong to no release's mean."""
_LONGEST: Final = 128
"""Longest value in characters; a longer one is not a release's name, and becomes ``other``."""


class ComparedValues:
    """Reads the compared value of units and scores. Thread-safe.

    Args:
        by: name of the attribute, as in ``Compare.by``.
        resource: returns the resource of this process, for units without a resource of their own.
        evaluator_versions: metric → its present evaluator version, which a lost unit's score would have had.
        shown: returns the exported form of a value that may contain a user's text (metadata, attributes); None = ``other``.
            Called once for each separate value, on the caller's thread.
        most: number of separate values; all later values become ``other``.
    """

    def __init__(
        self,
        by: str,
        resource: Callable[[], Mapping[str, Any]] = dict,
        evaluator_versions: Mapping[str, str] | None = None,
        shown: Callable[[str], str | None] = lambda value: value,
        most: float = MOST_VALUES,
    ) -> None:
        self.by = by
        self._resource = resource
        self._evaluator_versions = dict(evaluator_versions or {})
        self._is_evaluator_version = by == semconv.EVALUATOR_VERSION
        self._shown = shown
        self._most = most
        # metric (empty unless evaluator versions are compared) → value → exported value
        self._exported: dict[str, dict[str, str]] = {}
        self._lock = RLock()  # a signal handler may interrupt its holder and start a unit
        renew_lock_in_child(self, RLock)

    def change(self, evaluator_versions: Mapping[str, str]) -> None:
        """Use other evaluator versions for units that are lost from now on. Thread-safe."""
        self._evaluator_versions = dict(evaluator_versions)

    def of_score(self, unit: Unit | None, score: Score) -> str:
        """Return the compared value of a score."""
        if not self._is_evaluator_version:
            return self.of_unit(unit)
        return self._limit_value(score.evaluator_version or UNKNOWN, score.metric)

    def of_loss(self, metric: str, value: str) -> str:
        """Return the compared value of a unit that a metric lost; ``value``: the result of ``of_unit``."""
        if not self._is_evaluator_version:
            return value
        return self._limit_value(self._evaluator_versions.get(metric, UNKNOWN), metric)

    def of_unit(self, unit: Unit | None) -> str:
        """Return the compared value of a unit; ``unknown`` if it has none.

        Without a ``unit``, it is that of this process, for a unit that is no longer in memory.
        """
        for attributes, is_safe in self._attribute_sources(unit):
            if (value := plain_text(attributes.get(self.by))) is not None and value.strip():
                return self._limit_value(value, is_safe=is_safe)
        return self._limit_value(UNKNOWN)

    def values_of(self, metric: str) -> Sequence[str]:
        """Return the values of a metric's sums so far, in order of arrival, including ``unknown`` and ``other``."""
        with self._lock:
            return tuple(dict.fromkeys(self._exported.get(metric if self._is_evaluator_version else "", {}).values()))

    def _attribute_sources(self, unit: Unit | None) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """Yield the mappings that may contain a unit's value, each with whether it is free of a user's text.

        The value must be the same when the unit closes and when its scores are emitted.
        """
        root = None if unit is None else unit.root
        if self.by == semconv.REQUEST_MODEL and unit is not None:
            yield {self.by: unit.request_model}, True
        elif root is not None and unit is not None:
            yield root.metadata, False
            yield root.attributes, False
            if (model_span := unit.model_span) is not None:
                yield model_span.attributes, False
        yield self._resource() if root is None or root.resource is None else root.resource, True

    def _limit_value(self, value: str, metric: str = "", *, is_safe: bool = True) -> str:
        """Return the exported form of a value; ``other`` above the limit, which applies to each ``metric`` separately."""
        with self._lock:
            exported = self._exported.setdefault(metric, {})
            if value in exported:
                return exported[value]
            if value != UNKNOWN and (len(exported.keys() - {UNKNOWN, OTHER}) >= self._most or len(value) > _LONGEST):
                return exported.setdefault(OTHER, OTHER)
        # ``_shown``, a user's function, is called without holding the lock
        form = value if is_safe else (self._shown(value) or OTHER)
        with self._lock:
            return exported.setdefault(value, form)


def possible_labels(metric: Metric, dimensions: Mapping[str, Sequence[str]], source: Source = None) -> Iterator[Labels]:
    """Yield each attribute set that the scores of a metric's present evaluator version can have."""
    values = [[(key, value) for value in (*values, OTHER)] for key, values in dimensions.items()]
    for label, segment in product(_labels_of(metric), list(product(*values))):
        yield labels_of_score(metric.name, label, metric.evaluator_version, segment, source)


def is_conditional(metric: Metric) -> bool:
    """Return whether a metric has a condition, so that it may not apply to a unit.

    A user's metric may lack the attribute; the result is then False.
    """
    return bool(getattr(metric, "is_conditional", False))


def refuse_too_many(
    metrics: Sequence[Metric], dimensions: Mapping[str, Sequence[str]], shadowed: int = 0, *, compared: bool = False
) -> None:
    """Refuse metrics and dimensions with more attribute sets than can be kept separate.

    Args:
        metrics: the metrics; each has one evaluator version.
        dimensions: attribute → its values.
        shadowed: number of metrics with a second judge, which adds an evaluator version.
        compared: whether each set exists once per compared value.

    Raises:
        ConfigurationError: there are too many; the message has the numbers.
    """
    labels = [len(_labels_of(metric)) for metric in metrics]
    values = {key: len(listed) + 1 for key, listed in dimensions.items()}
    values |= {semconv.COMPARED: MOST_VALUES + 2} if compared else {}  # unknown and other
    sets = (sum(labels) + shadowed * max(labels, default=0)) * prod(values.values())
    if sets <= MOST_DECLARED:
        return
    factors = " × ".join(f"{number} of {key} (other included)" for key, number in values.items())
    raise ConfigurationError(
        f"{len(metrics) + shadowed} evaluator versions of {len(metrics)} metrics × pass or fail, or their categories × "
        f"{factors or 'no dimensions'} make {sets:,} "
        f"attribute sets per instrument, and {MOST_DECLARED:,} fit: above {SDK_SETS:,} the OpenTelemetry SDK merges all of "
        "them into one. Remove a dimension, values or metrics"
    )


def _labels_of(metric: Metric) -> Sequence[str | None]:
    if metric.scale.categories:
        return metric.scale.categories
    return (None,) if metric.scale.range is None else ("pass", "fail")


class GaugeReading(NamedTuple):
    """The readings of one account, budget or watched judge.

    Attributes:
        labels: attributes of the reading; other readings may have equal attributes.
        values: instrument → number.
    """

    labels: Labels
    values: Mapping[str, float]


Points: TypeAlias = Callable[[], Mapping[Hashable, GaugeReading]]
"""Function that returns the present readings, by a key that is unique in this process."""

_WORST: Mapping[str, Callable[[float, float], float]] = {
    semconv.JUDGE_CIRCUIT_BREAKER_STATE: max,
    semconv.BUDGET_FACTOR: min,
    semconv.JUDGE_CHECK_AGREEMENT: min,
    semconv.JUDGE_CHECK_FIRST_AGREEMENT: min,
    semconv.JUDGE_CHECK_P: min,
}
"""Instrument → function that returns the worse of two readings with equal attributes. Other readings are added up."""


def combine_readings(name: str, points: Iterable[GaugeReading]) -> dict[Labels, float]:
    """Return attributes → number of one instrument; readings with equal attributes become one number."""
    combine: Callable[[float, float], float] = _WORST.get(name, add)
    total = dict[Labels, float]()
    for labels, values in points:
        if name in values:
            total[labels] = combine(total[labels], values[name]) if labels in total else values[name]
    return total

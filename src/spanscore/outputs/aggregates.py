"""Sums by attribute set, in bounded room: of instruments, compared releases, and values that several scorers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from threading import Lock, RLock
from typing import Any, Final, NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core.log import plain_text
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit
from spanscore.core.threads import renew_lock_in_child
from spanscore.errors import ConfigurationError
from spanscore.protocols import Metric

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Attributes as a key: name and value in a fixed order."""

SDK_SETS: Final = 2_000
"""Attribute sets per instrument, observable ones too, past which the SDK makes one of all, and says nothing."""
MAX_SETS: Final = 1_000
"""Undeclared attribute sets per instrument: of evaluator versions, models, agents."""
_FOR_OTHERS: Final = 100
"""Attribute sets per instrument that are kept for ``other``, which stands for all sets past the limit."""
MOST_DECLARED: Final = 1_500
"""Attribute sets that metrics and dimensions may declare; the rest is room for evaluator versions that come later."""
OTHER = "other"
_CLOSED = frozenset(
    {
        semconv.EVALUATION_NAME,
        semconv.EVALUATION_SCORE_LABEL,
        semconv.OUTCOME,
        semconv.EVALUATION_SOURCE,
        semconv.JUDGE_TOKEN_TYPE,
        semconv.APPLICABLE,
    }
)
"""Attributes with few values, which are never ``other``."""
_OF_SCORES = {
    semconv.COMPARED,
    semconv.EVALUATION_NAME,
    semconv.EVALUATION_SCORE_LABEL,
    semconv.EVALUATOR_VERSION,
    semconv.EVALUATION_SOURCE,
}
"""Attributes of a score's sums."""


class BoundedSums:
    """Sums by instrument and attributes. Any thread.

    Args:
        max_sets: attribute sets per instrument that were not declared; past them every attribute with an open set of values is
            ``other``.

    Attributes:
        overflowed: measurements to which that happened.
        overflowing: metric → the attribute that had the most values when it first did.
    """

    def __init__(self, max_sets: int) -> None:
        self._max_sets = max_sets
        self._lock = Lock()
        self._sums: dict[str, dict[Labels, float]] = {}
        self._declared: Counter[str] = Counter()
        self.overflowed = 0
        self.overflowing: dict[str, str] = {}

    def declare(self, labels: Labels, zeros: Mapping[str, float]) -> None:
        """Let sums be there as 0, of their type, whatever else there is: they take nothing of the room for the others."""
        with self._lock:
            for name, zero in zeros.items():
                sums = self._sums.setdefault(name, {})
                self._declared[name] += labels not in sums
                sums.setdefault(labels, zero)

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Add to one instrument."""
        self.add_all(labels, ((name, amount),))

    def add_all(self, labels: Labels, amounts: Iterable[tuple[str, float]]) -> None:
        """Add to several instruments under the same attributes."""
        with self._lock:
            for name, amount in amounts:
                sums = self._sums.get(name)
                if sums is None or (known := sums.get(labels)) is None:
                    admitted = self._admit(name, labels)
                    self._sums[name][admitted] += amount
                else:
                    sums[labels] = known + amount

    def admit(self, name: str, labels: Labels) -> Labels:
        """Return the attributes, or what stands for them where the instrument has too many sets."""
        with self._lock:
            return self._admit(name, labels)

    def read(self, name: str) -> dict[Labels, float]:
        """Return an instrument's sums."""
        with self._lock:
            return dict(self._sums.get(name, {}))

    def begin_at_zero(self) -> None:
        """Let every sum that is there be 0, in a forked child."""
        self._lock = Lock()
        self._sums = {name: {key: type(value)(0) for key, value in sums.items()} for name, sums in self._sums.items()}

    def _admit(self, name: str, labels: Labels) -> Labels:
        sums = self._sums.setdefault(name, {})
        if labels in sums:
            return labels
        declared = self._declared[name]
        if len(sums) - declared >= min(self._max_sets, SDK_SETS - _FOR_OTHERS - declared):
            self.overflowed += 1
            self._note_overflow(sums, labels)
            labels = tuple((key, value if key in _CLOSED else OTHER) for key, value in labels)
        sums.setdefault(labels, 0)
        return labels

    def _note_overflow(self, sums: Iterable[Labels], labels: Labels) -> None:
        metric = dict(labels).get(semconv.EVALUATION_NAME)
        if metric is None or metric in self.overflowing:
            return
        values: dict[str, set[str]] = {key: {value} for key, value in labels if key not in _CLOSED}
        for one in sums:
            for key, value in one:
                if key in values and (semconv.EVALUATION_NAME, metric) in one:
                    values[key].add(value)
        if values:
            self.overflowing[metric] = max(values, key=lambda key: len(values[key]))


def add_up(total: dict[Labels, float], more: Mapping[Labels, float]) -> None:
    """Add sums to those in ``total``."""
    for labels, value in more.items():
        total[labels] = total.get(labels, 0) + value


def checked_dimensions(dimensions: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return dimensions with their values as text, each once.

    Raises:
        ConfigurationError: one has the name of an attribute of ours, or would be the label that names the scorer's service.
    """
    if taken := {semconv.SERVICE_NAME, "service_name"} & set(dimensions):
        raise ConfigurationError(
            f"the dimension {min(taken)!r} would be the label service_name, which is the scorer's own: tell applications "
            "apart by another attribute of their resource, such as service.namespace"
        )
    ours = _OF_SCORES & set(dimensions)
    if ours:
        raise ConfigurationError(
            f"the dimension {min(ours)!r} has the name of an attribute that every score has already"
        )
    return {key: tuple(dict.fromkeys(str(value) for value in values)) for key, values in dimensions.items()}


def labels_of_metric(name: str, source: str | None = None) -> Labels:
    """Return the attributes of what is counted per metric."""
    return ((semconv.EVALUATION_NAME, name), *within(source))


def labels_of_applicability(name: str, evaluator_version: str, applies: bool) -> Labels:
    """Return the attributes of the sums of whether a metric applies."""
    return (
        *labels_of_metric(name),
        (semconv.EVALUATOR_VERSION, evaluator_version),
        (semconv.APPLICABLE, str(applies).lower()),
    )


def labels_of_calls(metric: str, model: str) -> Labels:
    """Return the attributes of what a metric asks a model."""
    return (semconv.EVALUATION_NAME, metric), (semconv.REQUEST_MODEL, model)


def labels_of_outcome(name: str, outcome: Outcome, source: str | None = None) -> Labels:
    """Return the attributes of what is counted per metric and outcome."""
    return (*labels_of_metric(name), (semconv.OUTCOME, str(outcome)), *within(source))


def labels_of_compared(name: str, value: str) -> Labels:
    """Return the attributes of what is counted per metric and compared value."""
    return (*labels_of_metric(name), (semconv.COMPARED, value))


def labels_of_score(
    name: str, label: str | None, evaluator_version: str, dimensions: Labels, source: str | None = None
) -> Labels:
    """Return the attributes of a score's sums."""
    labelled = ((semconv.EVALUATION_SCORE_LABEL, label),) if label else ()
    return (
        *labels_of_metric(name),
        *labelled,
        (semconv.EVALUATOR_VERSION, evaluator_version),
        *dimensions,
        *within(source),
    )


def within(source: str | None) -> Labels:
    """Return the attribute of a source; the population, which alone alerts and means read, is what has none."""
    return ((semconv.EVALUATION_SOURCE, source),) if source else ()


def labels_of_run(unit: Unit | None, score: Score) -> Labels:
    """Return the attributes of the histogram: those of the score, and the scored application's model and workflow or agent."""
    labels = labels_of_score(score.metric, score.label, score.evaluator_version, (), score.source)
    if unit is None:
        return labels
    attributes: Mapping[str, Any] = unit.root.attributes if unit.root is not None else {}
    name = semconv.WORKFLOW_NAME if semconv.WORKFLOW_NAME in attributes else semconv.AGENT_NAME
    known = ((semconv.REQUEST_MODEL, unit.request_model), (name, attributes.get(name)))
    return (*labels, *((key, str(value)) for key, value in known if value is not None))


MOST_VALUES: Final = 8
"""Values that are told apart: the first that come, for as long as the process lives, as a counter must not change its name."""
UNTOLD: Final = "unknown"
"""The value of a unit that has none: told, as it is a part of no release's mean."""
_LONGEST: Final = 128
"""Characters; what is longer is no release's name, and ``other``."""


class ComparedValues:
    """Tells the compared value of units and scores. Any thread.

    Args:
        by: as ``Compare.by``.
        resource: gives that of this process, for units that name none of their own.
        evaluator_versions: metric → its present evaluator version, for the units that are lost: their scores would have been of
            it.
        shown: of a value that may hold what a user typed (metadata, attributes), returns what may leave; None = nothing. Called
            once for each that is told apart, on the thread that asks.
        most: values that are told apart; the first that come.
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
        # metric of an evaluator version, else empty → value → the value that leaves
        self._known: dict[str, dict[str, str]] = {}
        self._lock = RLock()  # a signal handler may interrupt its holder, and begin a unit
        renew_lock_in_child(self, RLock)

    def of_score(self, unit: Unit | None, score: Score) -> str:
        """Return the value of a score."""
        if not self._is_evaluator_version:
            return self.of_unit(unit)
        return self._admitted(score.evaluator_version or UNTOLD, score.metric)

    def of_loss(self, metric: str, told: str) -> str:
        """Return the value of a unit that a metric lost; ``told``: the value that ``of_unit`` returned."""
        if not self._is_evaluator_version:
            return told
        return self._admitted(self._evaluator_versions.get(metric, UNTOLD), metric)

    def of_unit(self, unit: Unit | None) -> str:
        """Return what a unit says, ``unknown`` where it says nothing; None = one of this process of which nothing is left."""
        for told, is_safe in self._tellers(unit):
            if (value := plain_text(told.get(self.by))) is not None and value.strip():
                return self._admitted(value, is_safe=is_safe)
        return self._admitted(UNTOLD)

    def known(self, metric: str) -> Sequence[str]:
        """Return the values of a metric's sums so far, in the order in which they came, ``unknown`` and ``other`` included."""
        with self._lock:
            return tuple(dict.fromkeys(self._known.get(metric if self._is_evaluator_version else "", {}).values()))

    def _tellers(self, unit: Unit | None) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """Yield what may tell of a unit that is about to be emitted as well as of one that has just closed, and whether it
        tells what nobody typed.
        """
        root = None if unit is None else unit.root
        if self.by == semconv.REQUEST_MODEL and unit is not None:
            yield {self.by: unit.request_model}, True
        elif root is not None and unit is not None:
            yield root.metadata, False
            yield root.attributes, False
            if (asked := unit.model_span) is not None:
                yield asked.attributes, False
        yield self._resource() if root is None or root.resource is None else root.resource, True

    def _admitted(self, value: str, metric: str = "", *, is_safe: bool = True) -> str:
        """Return a value as it is told, ``other`` where it is one too many: of evaluator versions, of those of one metric."""
        with self._lock:
            known = self._known.setdefault(metric, {})
            if value in known:
                return known[value]
            if value != UNTOLD and (len(known.keys() - {UNTOLD, OTHER}) >= self._most or len(value) > _LONGEST):
                return known.setdefault(OTHER, OTHER)
        told = value if is_safe else (self._shown(value) or OTHER)  # somebody's code: with no lock held
        with self._lock:
            return known.setdefault(value, told)


def closed_sets(metric: Metric, dimensions: Mapping[str, Sequence[str]], source: str | None = None) -> Iterator[Labels]:
    """Yield every set of attributes that the scores of a metric's present evaluator version can have."""
    values = [[(key, value) for value in (*values, OTHER)] for key, values in dimensions.items()]
    for label, segment in product(_labels_of(metric), list(product(*values))):
        yield labels_of_score(metric.name, label, metric.evaluator_version, segment, source)


def is_conditional(metric: Metric) -> bool:
    """Whether a metric has a condition, so that it does not apply to all that it is asked about; an external one may not
    say.
    """
    return bool(getattr(metric, "is_conditional", False))


def refuse_too_many(
    metrics: Sequence[Metric], dimensions: Mapping[str, Sequence[str]], shadowed: int = 0, *, compared: bool = False
) -> None:
    """Refuse metrics and dimensions of which not all can be told apart.

    Args:
        metrics: with an evaluator version each.
        shadowed: how many of them a second judge scores, too: an evaluator version more.
        compared: whether each set is there per compared value.

    Raises:
        ConfigurationError: there are too many, with the numbers.
    """
    labels = [len(_labels_of(metric)) for metric in metrics]
    values = {key: len(listed) + 1 for key, listed in dimensions.items()}
    values |= {semconv.COMPARED: MOST_VALUES + 2} if compared else {}  # unknown and other
    sets = (sum(labels) + shadowed * max(labels, default=0)) * prod(values.values())
    if sets <= MOST_DECLARED:
        return
    told = " × ".join(f"{number} of {key} (other included)" for key, number in values.items())
    raise ConfigurationError(
        f"{len(metrics) + shadowed} evaluator versions of {len(metrics)} metrics × pass or fail × "
        f"{told or 'no dimensions'} make {sets:,} "
        f"attribute sets per instrument, and {MOST_DECLARED:,} fit: past {SDK_SETS:,} the OpenTelemetry SDK makes one of them "
        "all. Leave out a dimension, values or metrics"
    )


def _labels_of(metric: Metric) -> Sequence[str | None]:
    return (None,) if metric.scale.range is None else ("pass", "fail")


class GaugeReading(NamedTuple):
    """The readings of one account, budget or watched judge.

    Attributes:
        labels: its attributes; others may have the same.
        values: instrument → number.
    """

    labels: Labels
    values: Mapping[str, float]


Points: TypeAlias = Callable[[], Mapping[Hashable, GaugeReading]]
"""Reads what there is: by what tells one from every other in this process."""

_WORST: Mapping[str, Callable[[float, float], float]] = {
    semconv.JUDGE_CIRCUIT_BREAKER_STATE: max,
    semconv.BUDGET_FACTOR: min,
    semconv.JUDGE_CHECK_AGREEMENT: min,
    semconv.JUDGE_CHECK_FIRST_AGREEMENT: min,
    semconv.JUDGE_CHECK_P: min,
}
"""Instruments whose worst value stands for all with the same attributes; values of other instruments add up."""


def together(name: str, points: Iterable[GaugeReading]) -> dict[Labels, float]:
    """Return the numbers of one instrument by their attributes."""
    worst, total = _WORST.get(name), dict[Labels, float]()
    for labels, values in points:
        if name in values:
            value, known = values[name], total.get(labels)
            total[labels] = value if known is None else worst(known, value) if worst else known + value
    return total

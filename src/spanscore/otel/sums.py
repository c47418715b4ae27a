"""Instrument → attributes → sum, in bounded room; and the attributes by which sums are told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, TypeAlias

from spanscore import semconv
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit
from spanscore.errors import ConfigurationError

__all__ = [
    "MAX_SETS",
    "MOST_DECLARED",
    "OTHER",
    "SDK_SETS",
    "BoundedSums",
    "Labels",
    "add_up",
    "checked_dimensions",
    "labels_of_applicability",
    "labels_of_calls",
    "labels_of_compared",
    "labels_of_metric",
    "labels_of_outcome",
    "labels_of_run",
    "labels_of_score",
    "within",
]

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Attributes as a key: name and value in a fixed order."""

SDK_SETS: Final = 2_000
"""Attribute sets per instrument, observable ones too, past which the SDK makes one of all, and says nothing."""
MAX_SETS: Final = 1_000
"""Of them, those that nobody declared: evaluator versions, models, agents."""
_FOR_OTHERS: Final = 100
"""Of them, those that are kept for what stands for all past these."""
MOST_DECLARED: Final = 1_500
"""Of them, those that metrics and dimensions may declare; the rest is room for evaluator versions that come later."""
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

    def reset(self) -> None:
        """Let every sum that is there be 0: in a forked child."""
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

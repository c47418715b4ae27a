"""Evaluation spans of a store → what was decided on units and scored of them already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spanscore import semconv
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.score import Outcome, score_id
from spanscore.core.span import SpanData, UnitKey, UpstreamDecision
from spanscore.outputs.collected_cases import FoundScore
from spanscore.pipeline.sampling import decode_threshold
from spanscore.protocols import Metric

__all__ = ["EvaluatedUnit", "EvaluatedUnits"]

_OF_NO_UNIT: Final = frozenset({semconv.SOURCE_SHADOW, semconv.SOURCE_JUDGE_CHECK, semconv.SOURCE_FEEDBACK})
_FAILED: Final = frozenset(outcome.value for outcome in Outcome if outcome.failed)
_ANNOTATOR: Final = semconv.OPENINFERENCE_EVALUATION + "annotator_kind"


@dataclass(slots=True)
class EvaluatedUnit:
    """What a store says of one unit's scores.

    Attributes:
        decided: metric → how it was chosen, by its latest score.
        scores: metric → score id → its revision, and whether it failed.
        found: metric → its latest score.
    """

    decided: dict[str, UpstreamDecision] = field(default_factory=dict)
    scores: dict[str, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    found: dict[str, FoundScore] = field(default_factory=dict)

    def latest(self, key: UnitKey, metric: Metric) -> tuple[int, bool] | None:
        """Return the highest revision of a metric's score in its present version, and whether that failed; None: none."""
        known = [
            (revision, failed)
            for identity, (revision, failed) in self.scores.get(metric.name, {}).items()
            if identity == score_id(key, metric.name, metric.version, revision)
        ]
        return max(known, default=None)


class EvaluatedUnits:
    """What evaluation spans say, by unit. In any order; of a decision the latest revision's stands."""

    def __init__(self) -> None:
        self._units: dict[UnitKey, EvaluatedUnit] = {}

    def read(self, spans: Iterable[SpanData]) -> None:
        """Take in what is an evaluation of a unit; anything else is passed over."""
        for span in spans:
            if span.scope == semconv.SCOPE and span.parent_id is not None and _is_of_unit(span):
                self._add(UnitKey(span.trace_id, span.parent_id), span)

    def of(self, key: UnitKey) -> EvaluatedUnit | None:
        """Return what is known of a unit; None: nothing."""
        return self._units.get(key)

    def _add(self, key: UnitKey, span: SpanData) -> None:
        held = span.attributes
        metric, revision = (
            as_text(held[semconv.EVALUATION_NAME]),
            int(plain_number(held.get(semconv.SCORE_REVISION)) or 0),
        )
        unit = self._units.setdefault(key, EvaluatedUnit())
        scores = unit.scores.setdefault(metric, {})
        is_latest = revision >= max((known for known, _ in scores.values()), default=0)
        scores[as_text(held.get(semconv.SCORE_ID))] = revision, held.get(semconv.OUTCOME) in _FAILED
        if not is_latest:
            return
        unit.found[metric] = _found(held, metric)
        if (decided := _decided(held)) is not None:
            unit.decided[metric] = decided


def _is_of_unit(span: SpanData) -> bool:
    held = span.attributes
    return (
        semconv.EVALUATION_NAME in held
        and semconv.SESSION_END not in held
        and held.get(semconv.EVALUATION_SOURCE) not in _OF_NO_UNIT
        and held.get(_ANNOTATOR) != semconv.ANNOTATOR_HUMAN
    )


def _decided(held: Mapping[str, object]) -> UpstreamDecision | None:
    threshold, rule = held.get(semconv.SAMPLING_THRESHOLD), held.get(semconv.SAMPLING_RULE)
    known = decode_threshold(threshold) if isinstance(threshold, str) else None
    return None if known is None or not isinstance(rule, str) else UpstreamDecision(True, known, rule)


def _found(held: Mapping[str, object], metric: str) -> FoundScore:
    label, evaluator_version = held.get(semconv.EVALUATION_SCORE_LABEL), held.get(semconv.EVALUATOR_VERSION)
    return FoundScore(
        plain_number(held.get(semconv.EVALUATION_SCORE_VALUE)),
        label if isinstance(label, str) else None,
        evaluator_version if isinstance(evaluator_version, str) else None,
        plain_number(held.get(semconv.PROBABILITY + metric)),
    )

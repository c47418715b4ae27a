"""Units and evaluation spans as the sinks write them, at times of a test's choosing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from tests.outputs.memory import Memory

from spanscore import semconv, testing
from spanscore.core.codecs.sdk import span_data
from spanscore.core.score import Outcome, Score, ScoreValue, unit_attributes
from spanscore.core.span import SpanData
from spanscore.outputs.score_spans import EvaluationSpans
from spanscore.report import ReportRow
from spanscore.testing import make_span, make_unit

TEN_O_CLOCK = 1_795_255_200_000_000_000  # 21 November 2026, 10:00 UTC
MINUTE = 60_000_000_000
_ids = count(1)


def make_score(value: ScoreValue | None, metric: str = "faithfulness", **fields: Any) -> Score:
    """Return a score of evaluator version 1; without a value its outcome is ``judge_error``."""
    lost = {"outcome": Outcome.JUDGE_ERROR} if value is None else {}
    return testing.make_score(value, metric, **{"evaluator_version": "1", "threshold": None, **lost, **fields})


def a_unit_span(
    *scores: Score, minute: float = 0.0, others: Any = None, pending: bool = False, **attributes: Any
) -> SpanData:
    number = next(_ids)
    end = TEN_O_CLOCK + int(minute * MINUTE)
    return make_span(
        trace_id=number,
        span_id=number,
        name="invoke_workflow guide",
        start_ns=end - 500_000_000,
        end_ns=end,
        attributes={**unit_attributes(scores, others, pending=pending), **attributes},
        resource={"service.name": "guide"},
    )


def evaluations(span: SpanData, *scores: Score, content: bool = True) -> list[SpanData]:
    """Return the evaluation spans that the real sink writes for a unit."""
    memory = Memory()
    EvaluationSpans(memory.providers, content=content).emit(make_unit(span), scores)
    return [replace(span_data(one), resource=span.resource) for one in memory.spans]


def a_turn(conversation: str, *scores: Score, minute: float = 0.0, **attributes: Any) -> list[SpanData]:
    """Return a unit of a conversation, with its evaluation spans."""
    span = a_unit_span(*scores, minute=minute, **{semconv.CONVERSATION_ID: conversation, **attributes})
    return [span, *evaluations(span, *scores)]


def a_whole(last: SpanData, score: Score, *, turns: int, end: str = "idle") -> SpanData:
    """Return the evaluation span of the conversation with this as its last turn."""
    (span,) = evaluations(last, score)
    whole = {semconv.SESSION_TURNS: turns, semconv.SESSION_END: end}
    return replace(span, attributes={**span.attributes, **whole})


def a_label(
    unit: SpanData,
    value: float,
    word: str | None = None,
    *,
    minute: float = 60.0,
    annotator: str = "HUMAN",
    **other: Any,
) -> SpanData:
    """Return the span of a person's label of a unit, at a time of its own."""
    when = TEN_O_CLOCK + int(minute * MINUTE)
    attributes = {
        semconv.EVALUATION_NAME: "user_feedback",
        semconv.EVALUATION_SCORE_VALUE: value,
        semconv.EVALUATION_SCORE_LABEL: word,
        semconv.OPENINFERENCE_EVALUATION + "annotator_kind": semconv.ANNOTATOR_HUMAN,
        semconv.ANNOTATOR: annotator,
        **other,
    }
    return SpanData(
        trace_id=unit.trace_id,
        span_id=next(_ids) << 32,
        parent_id=unit.span_id,
        name="evaluation user_feedback",
        start_ns=when,
        end_ns=when,
        scope=semconv.SCOPE,
        attributes={name: held for name, held in attributes.items() if held is not None},
    )


def rows(
    *values: float | None, metric: str = "faithfulness", every_s: float = 1.0, **fields: Any
) -> Iterator[ReportRow]:
    """Yield a row per value, a second apart; None is a judge that failed."""
    for at, value in enumerate(values):
        given = {
            "unit": f"unit {at}",
            "metric": metric,
            "time_ns": TEN_O_CLOCK + int(at * every_s * 1e9),
            "value": value,
            "quality": value,
            "outcome": "scored" if value is not None else "judge_error",
        }
        yield ReportRow(**{**given, **fields})

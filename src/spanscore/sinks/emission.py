"""What sinks have in common: they point at the scored span, and cut what is too long."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from spanscore import semconv
from spanscore.core.sample import Annotation
from spanscore.core.score import Score
from spanscore.core.span import SpanData, Unit, UnitKey

__all__ = [
    "EXPLANATION_MAX_CHARS",
    "annotation_attributes",
    "context_above",
    "context_of",
    "error_type_of",
    "evaluator_type",
    "judge_model_of",
    "result_attributes",
    "span_context_above",
    "span_context_of",
    "unit_facts",
]

_COPIED = (semconv.CONVERSATION_ID, semconv.WORKFLOW_NAME, semconv.AGENT_NAME, semconv.PROMPT_VERSION)
"""What queries group by, beside the unit's model: a structural query may see one block only, not the unit's span beside it."""

EXPLANATION_MAX_CHARS = 2000
"""Some backends cut, some refuse long attributes; the counts behind a score come first and survive the cut."""
_latest: list[tuple[SpanData | None, Context]] = [(None, Context())]
"""The span of which a context was made last, without content; each sink asks for that of the same one."""


def span_context_of(span: SpanData) -> SpanContext:
    """Return the identity of a span that ended, with its own flags: they decide whether what points at it is exported."""
    return SpanContext(
        trace_id=span.trace_id,
        span_id=span.span_id,
        is_remote=False,
        trace_flags=TraceFlags(span.trace_flags),
        trace_state=TraceState.from_header([span.trace_state]) if span.trace_state else None,
    )


def context_of(span: SpanData) -> Context:
    """Return a context in which that span is the current one, and nothing else is set; the same for all sinks of a unit."""
    known, context = _latest[0]
    if known is not span:
        context = set_span_in_context(NonRecordingSpan(span_context_of(span)), Context())
        _latest[0] = span, context
    return context


def span_context_above(unit: UnitKey) -> SpanContext:
    """Return the identity of a unit's span of which nothing is known but its ids: taken to be sampled, in another process."""
    return SpanContext(*unit, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def context_above(unit: UnitKey) -> Context:
    """Return a context in which that span is the current one, and nothing else is set."""
    return set_span_in_context(NonRecordingSpan(span_context_above(unit)), Context())


def annotation_attributes(label: Annotation) -> dict[str, Any]:
    """Return what a label's span and its event both say; None is left out later."""
    return {
        semconv.EVALUATION_NAME: label.name,
        semconv.EVALUATION_SCORE_VALUE: label.quality,
        semconv.EVALUATION_SCORE_LABEL: label.text,
        semconv.EVALUATION_EXPLANATION: None if label.comment is None else _cut(label.comment),
        semconv.EVALUATOR_ID: label.name,
        semconv.EVALUATOR_TYPE: "human",
        semconv.ANNOTATOR: label.annotator,
        semconv.FEEDBACK_KEY: label.key,
        semconv.SCORE_ID: label.id,
        semconv.SCORE_REVISION: label.revision,
    }


def unit_facts(unit: Unit, root: SpanData) -> dict[str, Any]:
    """Return the attributes by which backends group the scores of a unit, on evaluation spans and events."""
    facts = {name: root.attributes[name] for name in _COPIED if name in root.attributes}
    target = facts.get(semconv.AGENT_NAME) or facts.get(semconv.WORKFLOW_NAME)
    return facts | {semconv.EVALUATION_TARGET: target, semconv.SCORED_REQUEST_MODEL: unit.request_model}


def result_attributes(score: Score, *, content: bool) -> dict[str, Any]:
    """Return what an evaluation's span and its event both say, explanations only with ``content``; None is left out later."""
    return {
        semconv.EVALUATION_NAME: score.metric,
        semconv.EVALUATOR_ID: score.metric,
        semconv.EVALUATOR_VERSION: score.evaluator_version or None,
        semconv.EVALUATOR_TYPE: evaluator_type(score),
        semconv.JUDGE_MODEL: judge_model_of(score),
        semconv.METRIC_KIND: score.kind,
        semconv.METRIC_DIRECTION: score.direction,
        semconv.EVALUATION_SCORE_VALUE: None if score.value is None else float(score.value),
        semconv.EVALUATION_SCORE_LABEL: score.label,
        semconv.EVALUATION_EXPLANATION: _explanation_of(score) if content else None,
        semconv.EVALUATION_SOURCE: score.source,
        semconv.ERROR_TYPE: error_type_of(score),
        semconv.OUTCOME: None if score.value is not None else str(score.outcome),
        semconv.APPLICABLE: score.applies,
        semconv.SAMPLING_THRESHOLD: None if score.threshold is None else f"{score.threshold:014x}",
    }


def evaluator_type(score: Score) -> str:
    """Return ``llm_judge`` if a model was asked, else ``deterministic``."""
    return "llm_judge" if score.judge_model or score.usage.calls else "deterministic"


def judge_model_of(score: Score) -> str | None:
    """Return the model that judged, as its provider names it; None if none was asked."""
    return score.judge_model or next((call.model for call in score.usage.calls if call.model), None)


def error_type_of(score: Score) -> str | None:
    """Return why an evaluation failed; None for one that did not."""
    return (score.error_type or str(score.outcome)) if score.outcome.failed else None


def _explanation_of(score: Score) -> str | None:
    """Return the explanation, or why there is no value, cut to what a backend takes. It may quote content."""
    text = score.explanation or score.reason
    return None if text is None else _cut(text)


def _cut(text: str) -> str:
    if len(text) <= EXPLANATION_MAX_CHARS:
        return text
    return text[: EXPLANATION_MAX_CHARS - 1] + "…"

"""What sinks have in common: they point at the scored span, and cut what is too long."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from spanscore import semconv
from spanscore.model.label import HumanLabel
from spanscore.model.score import Score
from spanscore.model.span import SpanData, UnitKey

__all__ = [
    "EXPLANATION_MAX_CHARS",
    "context_above",
    "context_of",
    "error_type_of",
    "label_attributes",
    "result_attributes",
    "span_context_above",
    "span_context_of",
]

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


def label_attributes(label: HumanLabel) -> dict[str, Any]:
    """Return what a label's span and its event both say; None is left out later."""
    return {
        semconv.EVALUATION_NAME: label.name,
        semconv.EVALUATION_SCORE_VALUE: label.quality,
        semconv.EVALUATION_SCORE_LABEL: label.text,
        semconv.EVALUATION_EXPLANATION: None if label.comment is None else _cut(label.comment),
        semconv.ANNOTATOR: label.annotator,
        semconv.FEEDBACK_KEY: label.key,
        semconv.SCORE_ID: label.id,
        semconv.SCORE_REVISION: label.revision,
    }


def result_attributes(score: Score, *, content: bool) -> dict[str, Any]:
    """Return what an evaluation's span and its event both say, explanations only with ``content``; None is left out later."""
    return {
        semconv.EVALUATION_NAME: score.metric,
        semconv.EVALUATION_SCORE_VALUE: None if score.value is None else float(score.value),
        semconv.EVALUATION_SCORE_LABEL: score.label,
        semconv.EVALUATION_EXPLANATION: _explanation_of(score) if content else None,
        semconv.STRATUM: score.stratum,
        semconv.ERROR_TYPE: error_type_of(score),
        semconv.REASON: None if score.value is not None else str(score.outcome),
        semconv.APPLICABLE: score.applies,
        semconv.SAMPLING_THRESHOLD: None if score.threshold is None else f"{score.threshold:014x}",
    }


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

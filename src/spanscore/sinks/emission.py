"""What every sink has in common: it harms nobody, and it points at the scored span."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, detach, set_value
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from spanscore.model.score import Score
from spanscore.model.span import SpanData, Unit
from spanscore.runtime.log import log_internal_error

__all__ = ["EXPLANATION_MAX_CHARS", "SafeSink", "context_of", "explanation_of", "span_context_of"]

EXPLANATION_MAX_CHARS = 2000
"""Some backends cut, some refuse long attributes; the counts behind a score come first and survive the cut."""


class SafeSink(ABC):
    """A sink whose ``emit`` never raises, and inside of which no instrumentation makes spans of its own."""

    def __init__(self) -> None:
        self._open = True
        self.failures = 0

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Publish all scores of a unit. Never raises: a failure is counted, and the first one logged."""
        if not scores or not self._open:
            return
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            self._publish(unit, scores)
        except BaseException as error:  # noqa: BLE001  (a processor or exporter of the application must not end the span thread)
            self._count(error)
        finally:
            detach(token)

    def shutdown(self) -> None:
        """Publish nothing more. Twice is as good as once."""
        self._open = False

    @abstractmethod
    def _publish(self, unit: Unit, scores: Sequence[Score]) -> None: ...

    def _count(self, error: BaseException) -> None:
        self.failures += 1
        log_internal_error(f"publish scores through {type(self).__name__}", error)


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
    """Return a context in which that span is the current one, and nothing else is set."""
    return set_span_in_context(NonRecordingSpan(span_context_of(span)), Context())


def explanation_of(score: Score) -> str | None:
    """Return the explanation, or why there is no value, cut to what a backend takes. It may quote content."""
    text = score.explanation or score.reason
    if text is None or len(text) <= EXPLANATION_MAX_CHARS:
        return text
    return text[: EXPLANATION_MAX_CHARS - 1] + "…"

"""The tool's span as the current one while the tool runs (``capture.context``): spans that it makes become the tool's children.

The span itself is made later, by the span thread, with the id that was drawn here.
"""

from __future__ import annotations

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span, set_span_in_context

from spanscore.otel.span_factory import PresetSpanFactory
from spanscore.receivers.callback.runs import Run

__all__ = ["ToolContext"]


class ToolContext:
    """Attaches a tool's span for the time of the tool.

    LangChain may end an asynchronous tool in another task, where a context cannot be detached from that of the tool: the
    span that stands there then answers with the ids of the one that was current before.

    Args:
        run: of the tool; its span gets the id that is drawn here.
        factory: makes the spans of runs.
    """

    def __init__(self, run: Run, factory: PresetSpanFactory) -> None:
        assert run.root.key is not None
        run.span_id = factory.ids.generate_span_id()
        ids = SpanContext(
            run.root.key.trace_id, run.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )
        self._before = otel_context.get_current()
        self._span = _WhileItRuns(ids)
        self._attached = set_span_in_context(self._span, self._before)
        otel_context.attach(self._attached)

    def end(self) -> None:
        """Make the span current again that was before."""
        self._span.afterwards = get_current_span(self._before)
        if otel_context.get_current() is self._attached:
            otel_context.attach(self._before)


class _WhileItRuns(NonRecordingSpan):
    """A span of which only the ids are known; those of ``afterwards`` once the tool has ended."""

    afterwards: trace.Span | None = None

    def get_span_context(self) -> SpanContext:
        return super().get_span_context() if self.afterwards is None else self.afterwards.get_span_context()

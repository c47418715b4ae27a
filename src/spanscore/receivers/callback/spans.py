"""The spans of runs. A root's is decided on the application's thread; all are made on the span thread.

What a request needs at once, and only its own thread can tell, is the parent and, where the sampler does not keep everything
anyway, the head sampler's decision. The ids of a trace's first span are drawn ahead, with what our own sampler says of them.
The SDK's span around them costs 15 µs, and 60 to 80 with cold caches, a third of all that a small chain would pay; it is
made from the first event of the unit, in a copy of the caller's context, so that the processors of the application find
there what they would have found. A tracer that is not the SDK's starts its span at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from spanscore import semconv
from spanscore.core.codecs.text import safe_text
from spanscore.core.span import UnitKey
from spanscore.outputs.spans import OwnIds, PresetSpanFactory
from spanscore.receivers.callback.runs import CLIENTS, Root, Run

__all__ = ["RunSpans"]

_CLIENT, _INTERNAL = SpanKind.CLIENT, SpanKind.INTERNAL
_UNSET, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
_DRAWN_AHEAD: Final = 8_192
"""Roots drawn and not begun, at most: 0.2 kB each. As many as may end in one batch of the event queue; there are no more than
did.
"""
_MOST_ATTRIBUTES: Final = 128
"""What the SDK keeps by default, for a tracer that is not the SDK's."""


def _kind_of(run: Run) -> SpanKind:
    return _CLIENT if run.operation in CLIENTS else _INTERNAL


def _span_name(run: Run, name: str) -> str:
    """Return what a run's span is called; ``name`` is what its operation is done with."""
    return safe_text(f"{run.operation} {name}" if run.operation else name)


@dataclass(eq=False, repr=False)
class RunSpans:
    """Makes the spans of runs, in the name of the capture scope's tracer.

    Attributes:
        preview_trace: the sampler's, asked about the first span of a trace.
    """

    tracer: Tracer
    preview_trace: Callable[[bytes], bool | None] = lambda _: None

    def __post_init__(self) -> None:
        self._chosen = PresetSpanFactory.of(self.tracer)
        self._drawn: deque[tuple[UnitKey, bool | None]] = deque()
        # Other generators of ids may write the time into them.
        self._is_random = self._chosen is not None and isinstance(self._chosen.ids, OwnIds)

    def attach(self, run: Run) -> None:
        """Make a tool's span the current one until the run's ``tool_context`` ends. A tracer that is not the SDK's cannot."""
        if self._chosen is not None and run.root.shared is None and run.root.key is not None:
            run.tool_context = ToolContext(run, self._chosen)

    @property
    def most_attributes(self) -> int | None:
        """Attributes that a span keeps; None = all."""
        return _MOST_ATTRIBUTES if self._chosen is None else self._chosen.most_attributes

    def decide(self, root: Root, ambient: Context) -> bool:
        """Give a root its ids, and ``may`` where they decide it; False when its head sampler drops the trace. Any thread.

        ``ambient`` is the caller's: the root's span becomes a child of the span in it.
        """
        chosen = self._chosen
        if chosen is None:
            return self._start(root, ambient)
        parent = get_current_span(ambient).get_span_context()
        root.is_trace_root = not parent.is_valid
        if root.is_trace_root:
            (key, may), above, state = self._next(chosen), None, None
        else:
            key, may = UnitKey(parent.trace_id, chosen.ids.generate_span_id()), None
            above, state = parent, parent.trace_state
        if not chosen.keeps(above):
            sampling = chosen.sampler.should_sample(
                ambient, key.trace_id, _span_name(root, root.name), _kind_of(root), _attributes(root), ()
            )
            if not sampling.decision.is_sampled():
                return False
            root.sampling, state = sampling, sampling.trace_state
        root.key, root.may = key, None if state else may
        root.trace_state = state.to_header() if state else ""
        root.carrier, root.context = copy_context(), ambient
        return True

    def draw_ahead(self) -> None:
        """Draw the ids of a root to come, and its ``may``: 15 µs that no request has to wait for. Any thread."""
        if self._chosen is not None and self._is_random and len(self._drawn) < _DRAWN_AHEAD:
            key = _new_key(self._chosen)
            self._drawn.append((key, self.preview_trace(key.trace_id.to_bytes(16))))

    def _next(self, chosen: PresetSpanFactory) -> tuple[UnitKey, bool | None]:
        try:
            return self._drawn.popleft()
        except IndexError:
            return _new_key(chosen), None

    def make(self, root: Root) -> bool:
        """Make the span of a root that was decided on, if it has none; False when the tracer is switched off. One thread.

        Raises whatever a processor of the application raises.
        """
        carrier, sampling, root.carrier, root.sampling = root.carrier, root.sampling, None, None
        chosen, ambient = self._chosen, root.context
        if carrier is None or ambient is None or chosen is None or root.key is None:
            return root.span is not None
        trace_id, span_id = root.key
        start: Callable[..., Span] = chosen.start_span
        if chosen.watched:
            start = partial(carrier.run, start)
        span = start(
            _span_name(root, root.name),
            span_id=span_id,
            context=ambient,
            trace_id=trace_id,
            sampling=sampling,
            kind=_kind_of(root),
            attributes=_attributes(root),
            start_time=root.start_ns,
        )
        if span.get_span_context().span_id != span_id or not span.is_recording():
            return False
        root.span = span
        return True

    @property
    def unseen(self) -> bool:
        """Whether no processor looks at spans before they end: those of a unit may be made together."""
        return self._chosen is not None and not self._chosen.watched

    def child(self, run: Run, parent: Span, attributes: Mapping[str, Any]) -> Span:
        """Start the span of any other run, with its true time. One thread."""
        name = _span_name(run, attributes.get(semconv.REQUEST_MODEL) or run.name)
        kind, ambient = _kind_of(run), run.root.context or Context()
        if self._chosen is not None:
            return self._chosen.start_span(
                name,
                context=ambient,
                parent=parent,
                kind=kind,
                attributes=attributes,
                start_time=run.start_ns,
                span_id=run.span_id or None,
            )
        ambient = set_span_in_context(parent, ambient)
        return self.tracer.start_span(name, context=ambient, kind=kind, attributes=attributes, start_time=run.start_ns)

    def _start(self, root: Root, ambient: Context) -> bool:
        span = self.tracer.start_span(
            _span_name(root, root.name),
            context=ambient,
            kind=_kind_of(root),
            attributes=_attributes(root),
            start_time=root.start_ns,
        )
        ids = span.get_span_context()
        if not ids.trace_flags & 1 or not span.is_recording():
            return False
        root.span, root.key, root.context = span, UnitKey(ids.trace_id, ids.span_id), ambient
        root.is_trace_root = getattr(span, "parent", None) is None
        root.trace_state = ids.trace_state.to_header() if ids.trace_state else ""
        return True


def _new_key(chosen: PresetSpanFactory) -> UnitKey:
    return UnitKey(chosen.ids.generate_trace_id(), chosen.ids.generate_span_id())


def _attributes(root: Root) -> dict[str, str]:
    return {semconv.OPERATION_NAME: root.operation or ""}


class ToolContext:
    """Makes a tool's span the current one while the tool runs (``capture.context``): spans of the tool become its children.

    The span thread makes the span later, with the id that is drawn here.

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

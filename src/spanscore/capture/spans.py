"""The spans of runs. A root's is decided on the application's thread; all are made on the span thread.

What a request needs at once, and only its own thread can tell, is the parent, the trace id, the head sampler's decision and
the span's own id: a few microseconds. The SDK's span around them costs 15, and 60 to 80 with cold caches, a third of all
that a small chain would pay; it is made from the first event of the unit, in a copy of the caller's context, so that the
processors of the application find there what they would have found. A tracer that is not the SDK's starts its span at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import copy_context
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer, get_current_span, set_span_in_context

from spanscore import semconv
from spanscore.capture.runs import CLIENTS, Root, Run
from spanscore.chosen import ChosenSpans
from spanscore.codec.text import safe_text
from spanscore.model.span import UnitKey

__all__ = ["RunSpans", "kind_of", "span_name"]

_CLIENT, _INTERNAL = SpanKind.CLIENT, SpanKind.INTERNAL
_NO_LINKS: Final = ()


def kind_of(run: Run) -> SpanKind:
    """Return the kind of a run's span."""
    return _CLIENT if run.operation in CLIENTS else _INTERNAL


def span_name(run: Run, name: str) -> str:
    """Return what a run's span is called; ``name`` is what its operation is done with."""
    return safe_text(f"{run.operation} {name}" if run.operation else name)


class RunSpans:
    """Makes the spans of runs, in the name of the capture scope's tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._chosen = ChosenSpans.of(tracer)

    def decide(self, root: Root, ambient: Context) -> bool:
        """Give a root its ids; False when its head sampler says that the trace is not exported. Any thread.

        Args:
            ambient: of the caller; the root's span becomes a child of the span in it.
        """
        chosen = self._chosen
        if chosen is None:
            return self._start(root, ambient)
        parent = get_current_span(ambient).get_span_context()
        root.is_trace_root = not parent.is_valid
        trace_id = chosen.ids.generate_trace_id() if root.is_trace_root else parent.trace_id
        sampling = chosen.sampler.should_sample(
            ambient, trace_id, span_name(root, root.name), kind_of(root), _attributes(root), _NO_LINKS
        )
        if not sampling.decision.is_sampled():
            return False
        root.key = UnitKey(trace_id, chosen.ids.generate_span_id())
        root.trace_state = sampling.trace_state.to_header() if sampling.trace_state else ""
        root.sampling, root.carrier, root.context = sampling, copy_context(), ambient
        return True

    def make(self, root: Root) -> bool:
        """Make the span of a root that was decided on, if it has none; False when the tracer is switched off. One thread.

        Raises:
            Exception: whatever a processor of the application raises.
        """
        carrier, sampling, root.carrier, root.sampling = root.carrier, root.sampling, None, None
        ambient = root.context
        if carrier is None or ambient is None or self._chosen is None or root.key is None:
            return root.span is not None
        trace_id, span_id = root.key
        span = carrier.run(
            self._chosen.start_span,
            span_name(root, root.name),
            span_id=span_id,
            context=ambient,
            trace_id=trace_id,
            sampling=sampling,
            kind=kind_of(root),
            attributes=_attributes(root),
            start_time=root.start_ns,
        )
        if span.get_span_context().span_id != span_id or not span.is_recording():
            return False
        root.span = span
        return True

    def child(self, run: Run, parent: Span, attributes: Mapping[str, Any]) -> Span:
        """Start the span of any other run, with its true time. One thread."""
        start = self._tracer.start_span if self._chosen is None else self._chosen.start_span
        return start(
            span_name(run, attributes.get(semconv.REQUEST_MODEL) or run.name),
            context=set_span_in_context(parent, run.root.context),
            kind=kind_of(run),
            attributes=attributes,
            start_time=run.start_ns,
        )

    def _start(self, root: Root, ambient: Context) -> bool:
        span = self._tracer.start_span(
            span_name(root, root.name),
            context=ambient,
            kind=kind_of(root),
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


def _attributes(root: Root) -> dict[str, str]:
    return {semconv.OPERATION_NAME: root.operation or ""}

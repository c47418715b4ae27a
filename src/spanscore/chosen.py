"""ChosenSpans: spans whose ids, and whose head-sampling decision, were chosen before they are made.

Where nobody looks at a span before it ends, it is an ``UnwatchedSpan``. Else the SDK makes it: its tracer asks its
``id_generator`` and its ``sampler``, and here a shallow copy of it asks two that repeat what was chosen; the tracer itself,
which every user of its scope shares, is not touched. A tracer that is not the SDK's chooses for itself, and nothing else can
be done about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags, Tracer, get_current_span

from spanscore.ids import ids_of
from spanscore.unwatched import UnwatchedSpan, Watchers

__all__ = ["ChosenSpans"]

_RANDOM = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)  # W3C Trace Context, level 2
_SAMPLED, _SAMPLED_RANDOM = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.SAMPLED | _RANDOM)


class ChosenSpans:
    """Starts spans that are chosen in all but their processors. One thread's, but for ``ids`` and ``sampler``.

    Attributes:
        ids: generates ids; whoever chooses asks it.
        sampler: the tracer's own head sampler.
    """

    def __init__(self, tracer: Any) -> None:
        self.ids, self.sampler = ids_of(tracer), tracer.sampler
        self._own, self._watchers = tracer, Watchers(tracer)
        self._random = getattr(self.ids, "is_trace_id_random", None)  # none before 1.40
        self._ids, self._sampler = _Ids(self.ids), _Sampler(self.sampler)
        self._tracer = copy(tracer)
        self._tracer.id_generator, self._tracer.sampler = self._ids, self._sampler

    @classmethod
    def of(cls, tracer: Tracer) -> ChosenSpans | None:
        """Return what starts chosen spans in this tracer's name; None for one that is not the SDK's."""
        is_known = type(tracer).__module__ == "opentelemetry.sdk.trace"
        is_known = is_known and hasattr(tracer, "id_generator") and hasattr(tracer, "sampler")
        return cls(tracer) if is_known else None

    def start_span(
        self,
        name: str,
        *,
        context: Context,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any],
        start_time: int,
        links: Sequence[Link] = (),
        span_id: int | None = None,
        trace_id: int | None = None,
        sampling: Any = None,
    ) -> Span:
        """Start a span like ``Tracer.start_span``.

        Args:
            name: of the span; what follows it is what ``Tracer.start_span`` takes.
            span_id: 64 bit; None = generated.
            trace_id: 128 bit; used where the context holds no parent; None = generated.
            sampling: the head sampler's ``SamplingResult`` for this span; None = it is asked.
        """
        if not self._watchers:
            parent: SpanContext | None = get_current_span(context).get_span_context()
            parent = parent if parent is not None and parent.is_valid else None
            trace_id = parent.trace_id if parent is not None else trace_id or self.ids.generate_trace_id()
            sampling = sampling or self.sampler.should_sample(context, trace_id, name, kind, attributes, links)
            if sampling.decision.is_sampled():
                ids = SpanContext(
                    trace_id,
                    self.ids.generate_span_id() if span_id is None else span_id,
                    is_remote=False,
                    trace_flags=self._flags(parent),
                    trace_state=sampling.trace_state,
                )
                return UnwatchedSpan(self._own, name, ids, parent, kind, sampling.attributes, links, start_time)
        self._ids.span_id, self._ids.trace_id, self._sampler.sampling = span_id, trace_id, sampling
        span: Span = self._tracer.start_span(
            name, context=context, kind=kind, attributes=attributes, links=links, start_time=start_time
        )
        return span

    def _flags(self, parent: SpanContext | None) -> TraceFlags:
        if parent is not None:
            return _SAMPLED_RANDOM if parent.trace_flags & _RANDOM else _SAMPLED
        return _SAMPLED_RANDOM if self._random is not None and self._random() else _SAMPLED


class _Ids:
    """Repeats the chosen ids."""

    __slots__ = ("_inner", "span_id", "trace_id")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.span_id: int | None = None
        self.trace_id: int | None = None

    def generate_span_id(self) -> Any:
        """Return the chosen id, else a generated one."""
        return self._inner.generate_span_id() if self.span_id is None else self.span_id

    def generate_trace_id(self) -> Any:
        """Return the chosen id, else a generated one."""
        return self._inner.generate_trace_id() if self.trace_id is None else self.trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Sampler:
    """Repeats the chosen decision."""

    __slots__ = ("_inner", "sampling")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sampling: Any = None

    def should_sample(self, *arguments: Any, **named: Any) -> Any:
        """Return the chosen decision, else a new one."""
        return self._inner.should_sample(*arguments, **named) if self.sampling is None else self.sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

"""PresetSpanFactory: spans whose ids, and whose head-sampling decision, are settled before they are made.

Where no processor looks at a span before it ends, it is a ``DeferredSpan``. Else the SDK makes it: its tracer asks its
``id_generator`` and its ``sampler``, and here a shallow copy of it asks two that repeat what was preset; the tracer itself,
which every user of its scope shares, is not touched. A tracer that is not the SDK's settles both itself, and nothing can be
done about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    TraceFlags,
    Tracer,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from spanscore.otel.deferred_span import DeferredSpan, Watchers, emit_finished
from spanscore.otel.head_sampling import KnownDecision
from spanscore.otel.ids import ids_of

__all__ = ["PresetSpanFactory"]

_RANDOM = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)  # W3C Trace Context, level 2
_SAMPLED, _SAMPLED_RANDOM = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.SAMPLED | _RANDOM)


class PresetSpanFactory:
    """Starts spans that are preset in all but their processors. One thread's, but for what its attributes say.

    Attributes:
        ids: generates ids; a caller that presets them asks it.
        sampler: the tracer's own head sampler.
        keeps: whether a span with this parent (None = it has none) is sampled for sure, and ``sampler`` need not be asked.
        watched: whether a processor looks at spans before they end.
        most_attributes: that a span keeps; None = all.
    """

    def __init__(self, tracer: Any) -> None:
        self.most_attributes: int | None = tracer._span_limits.max_span_attributes
        self.ids, self.sampler = ids_of(tracer), tracer.sampler
        known = KnownDecision(self.sampler)
        self.keeps, self.watched = known.keeps, Watchers(tracer)
        self._own = tracer
        self._random = getattr(self.ids, "is_trace_id_random", None)  # none before 1.40
        self._ids, self._sampler = _PresetIds(self.ids), _PresetSampler(self.sampler)
        self._tracer = copy(tracer)
        self._tracer.id_generator, self._tracer.sampler = self._ids, self._sampler

    @classmethod
    def of(cls, tracer: Tracer) -> PresetSpanFactory | None:
        """Return what starts preset spans in this tracer's name; None for one that is not the SDK's."""
        is_known = type(tracer).__module__ == "opentelemetry.sdk.trace"
        is_known = is_known and hasattr(tracer, "id_generator") and hasattr(tracer, "sampler")
        return cls(tracer) if is_known else None

    def start_span(
        self,
        name: str,
        *,
        context: Context,
        parent: Span | None = None,
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
            parent: in the place of the context's own span.
            span_id: 64 bit; None = generated.
            trace_id: 128 bit; used where there is no parent; None = generated.
            sampling: the head sampler's ``SamplingResult`` for this span; None = it is asked, where it has to be.
        """
        if not self.watched:
            ids = (get_current_span(context) if parent is None else parent).get_span_context()
            above = ids if ids.is_valid else None
            trace_id = ids.trace_id if above else trace_id or self.ids.generate_trace_id()
            if sampling is None and self.keeps(above):
                is_sampled, kept, state = True, attributes, ids.trace_state if above else None
            else:
                around = _within(parent, context)
                sampling = sampling or self.sampler.should_sample(around, trace_id, name, kind, attributes, links)
                is_sampled, kept, state = sampling.decision.is_sampled(), sampling.attributes, sampling.trace_state
            if is_sampled:
                span_id = self.ids.generate_span_id() if span_id is None else span_id
                ids = self.ids_of(above, trace_id, span_id, state)
                return DeferredSpan(self._own, name, ids, above, kind, kept, links, start_time)
        self._ids.span_id, self._ids.trace_id, self._sampler.sampling = span_id, trace_id, sampling
        span: Span = self._tracer.start_span(
            name, context=_within(parent, context), kind=kind, attributes=attributes, links=links, start_time=start_time
        )
        return span

    def ids_of(self, above: SpanContext | None, trace_id: int, span_id: int, state: TraceState | None) -> SpanContext:
        """Return what tells a span that is kept from others; ``above`` is its parent, None = it has none."""
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=self._flags(above), trace_state=state)

    def finish(
        self,
        name: str,
        ids: SpanContext,
        above: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        status: Status,
        start_ns: int,
        end_ns: int,
        links: Sequence[Link] = (),
    ) -> None:
        """Let a span leave that began and has ended, and that nobody looked at in between; see ``emit_finished``."""
        emit_finished(self._own, name, ids, above, kind, attributes, status, start_ns, end_ns, links)

    def _flags(self, above: SpanContext | None) -> TraceFlags:
        if above is not None:
            return _SAMPLED_RANDOM if above.trace_flags & _RANDOM else _SAMPLED
        return _SAMPLED_RANDOM if self._random is not None and self._random() else _SAMPLED


def _within(parent: Span | None, context: Context) -> Context:
    return context if parent is None else set_span_in_context(parent, context)


class _PresetIds:
    __slots__ = ("_inner", "span_id", "trace_id")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.span_id: int | None = None
        self.trace_id: int | None = None

    def generate_span_id(self) -> Any:
        return self._inner.generate_span_id() if self.span_id is None else self.span_id

    def generate_trace_id(self) -> Any:
        return self._inner.generate_trace_id() if self.trace_id is None else self.trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _PresetSampler:
    __slots__ = ("_inner", "sampling")

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sampling: Any = None

    def should_sample(self, *arguments: Any, **named: Any) -> Any:
        return self._inner.should_sample(*arguments, **named) if self.sampling is None else self.sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

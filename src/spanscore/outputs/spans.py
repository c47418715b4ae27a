"""Makes spanscore's own spans, with preset ids, sampling decisions, start and end times, at a low cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from random import Random
from time import time_ns
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from spanscore.core.log import log_internal_error
from spanscore.core.threads import call_in_child

RANDOM: Final = Random()
_bits = RANDOM.getrandbits
call_in_child(RANDOM, Random.seed)


class OwnIdGenerator:
    """Generates ids in the same way as the SDK's ``RandomIdGenerator``, but without the ``random`` module.

    An application that seeded the module would otherwise get other random numbers, and so other answers.
    """

    def generate_span_id(self) -> int:
        """Return 64 random bits, never 0."""
        return _bits(64) or self.generate_span_id()

    def generate_trace_id(self) -> int:
        """Return 128 random bits, never 0."""
        return _bits(128) or self.generate_trace_id()

    def is_trace_id_random(self) -> bool:
        """Return True, because the ids are random as in W3C Trace Context, level 2."""
        return True


def id_generator_of(tracer: Any) -> Any:
    """Return the id generator for a tracer's spans: that of the application, or spanscore's if the tracer has the default."""
    generator = tracer.id_generator
    is_default = type(generator).__module__ == "opentelemetry.sdk.trace.id_generator"
    return OwnIdGenerator() if is_default and type(generator).__name__ == "RandomIdGenerator" else generator


class SamplingPrediction:
    """Predicts which spans a head sampler keeps, without a call of the sampler, which costs as much as making the span.

    Args:
        sampler: sampler of the tracer. Only the SDK's default is predicted: ``ALWAYS_ON``, alone or inside ``ParentBased``. It
            keeps every root, and every child of a kept span.
    """

    def __init__(self, sampler: Any) -> None:
        is_parent_based = _is_sdks(sampler, "ParentBased")
        self._roots, self._local, self._remote = (
            _keeps_all(getattr(sampler, name, None) if is_parent_based else sampler)
            for name in ("_root", "_local_parent_sampled", "_remote_parent_sampled")
        )
        self._any_parent = self._roots and not is_parent_based

    @property
    def keeps_all(self) -> bool:
        """Whether every span is kept, except below a dropped parent."""
        return self._roots and self._local and self._remote

    def keeps(self, parent: SpanContext | None) -> bool:
        """Return whether a span is certainly kept; False: only the sampler can decide. A root has no ``parent``."""
        if parent is None:
            return self._roots
        return self._any_parent or (parent.trace_flags & 1 == 1 and (self._remote if parent.is_remote else self._local))


def _keeps_all(sampler: Any) -> bool:
    decision = getattr(sampler, "_decision", None)
    return _is_sdks(sampler, "StaticSampler") and getattr(decision, "name", None) == "RECORD_AND_SAMPLE"


def _is_sdks(sampler: Any, name: str) -> bool:
    cls = type(sampler)
    return cls.__name__ == name and cls.__module__ == "opentelemetry.sdk.trace.sampling"


_UNSET = Status(StatusCode.UNSET)
_PLAIN = frozenset({str, int, float, bool})


class DeferredSpan(NonRecordingSpan):
    """A span that only stores its attributes, and at its end gives a finished span to its tracer's processors. Not thread-safe.

    The SDK's own span costs 50 µs, five times as much: it has a lock, cleans each value, and copies itself at its end. The
    SDK's batch and simple processors read only finished spans. Do not use this class if a processor reads spans at their start,
    to add a tenant for example (``EarlyReaders``). ``add_event``, ``record_exception``, ``add_link`` and ``update_name`` have
    no effect.

    Attributes:
        parent: None for a root.
    """

    def __init__(
        self,
        tracer: Any,
        name: str,
        span_context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        links: Sequence[Link],
        start_ns: int,
    ) -> None:
        self._context = span_context  # read by the inherited methods
        self._tracer = tracer
        self.name = name
        self.parent = parent
        self._kind = kind
        self._attributes = dict(attributes)
        self._links = links
        self._start_ns = start_ns
        self._status = _UNSET
        self._ended = False

    def is_recording(self) -> bool:
        """Return whether the span has not ended."""
        return not self._ended

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes; OTLP must be able to carry the values (``wire_value``)."""
        # An attribute that is set again moves to the end, because a limit drops the first attributes.
        if not self._attributes.keys().isdisjoint(attributes):
            self._attributes = {key: value for key, value in self._attributes.items() if key not in attributes}
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; OTLP must be able to carry the value."""
        self.set_attributes({key: value})

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status."""
        self._status = status if isinstance(status, Status) else Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """Make the finished span and give it to the processors; only the first call has an effect.

        Raises:
            Exception: any error of a processor of the application.
        """
        if self._ended:
            return
        self._ended = True
        end_ns = time_ns() if end_time is None else end_time
        attributes, self._attributes = self._attributes, {}  # the finished span owns them
        tracer, start_ns, links = self._tracer, self._start_ns, self._links
        emit_finished(
            tracer, self.name, self._context, self.parent, self._kind, attributes, self._status, start_ns, end_ns, links
        )


def emit_finished(
    tracer: Any,
    name: str,
    span_context: SpanContext,
    parent: SpanContext | None,
    kind: SpanKind,
    attributes: dict[str, Any],
    status: Status,
    start_ns: int,
    end_ns: int,
    links: Sequence[Link] = (),
    resource: Any = None,
) -> None:
    """Make a finished span of a tracer and give it to the processors.

    Args:
        tracer: the SDK's tracer.
        parent: None for a root.
        attributes: OTLP must be able to carry the values; the caller must not use the mapping afterwards.
        start_ns: Unix time in ns.
        end_ns: Unix time in ns.
        resource: the SDK's resource of the span; None = the tracer's.

    Raises:
        Exception: any error of a processor of the application.
    """
    finished = readable_span()(
        name=name,
        context=span_context,
        parent=parent,
        resource=tracer.resource if resource is None else resource,
        attributes=_limit_attributes(tracer._span_limits, attributes),
        links=links,
        kind=kind,
        status=status,
        start_time=start_ns,
        end_time=end_ns,
        instrumentation_info=tracer.instrumentation_info,
        instrumentation_scope=tracer._instrumentation_scope,
    )
    tracer.span_processor.on_end(finished)


class EarlyReaders:
    """The processors that read a tracer's spans before they end. ``bool()`` returns whether there are any. Thread-safe."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        tracer_metrics = getattr(tracer, "_tracer_metrics", None)
        self._counts_spans = type(tracer_metrics).__name__ not in {"NoneType", "NoOpTracerMetrics"}
        self._is_enabled = getattr(tracer, "_is_enabled", lambda: True)
        self._processors: Any = None
        self._has_readers = True

    def __bool__(self) -> bool:
        """Return whether there is such a processor.

        Also True if the form of the tracer's span processor is unknown, or if the tracer is disabled or counts its spans.
        """
        processors = getattr(self._tracer.span_processor, "_span_processors", None)
        if processors is not self._processors:  # the SDK makes a new tuple for each added processor
            self._has_readers = self._counts_spans or processors is None or any(map(_reads_early, processors))
            self._processors = processors  # set last, because another thread may read both meanwhile
        return self._has_readers or not self._is_enabled()


@cache
def readable_span() -> Any:
    """Return the SDK's class of finished spans, imported on first use."""
    from opentelemetry.sdk.trace import ReadableSpan  # each caller has the SDK's tracer, so it is loaded

    return ReadableSpan


def _reads_early(processor: Any) -> bool:
    """Return whether a processor does anything with a span that has not ended."""
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    late = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)  # these methods of theirs do nothing
    return any(
        getattr(getattr(processor, name, None), "__func__", None) not in {getattr(kind, name, None) for kind in late}
        for name in ("on_start", "_on_ending")
    )


def _limit_attributes(limits: Any, attributes: dict[str, Any]) -> Mapping[str, Any]:
    """Return attributes as the SDK would store them: within the provider's limits, lists as tuples."""
    most, longest = limits.max_span_attributes, limits.max_span_attribute_length
    if longest is None and (most is None or len(attributes) <= most):
        if _PLAIN.issuperset(map(type, attributes.values())):  # most spans have only plain values
            return attributes
        for name in [name for name, value in attributes.items() if type(value) not in _PLAIN]:
            value = attributes[name]
            if type(value) not in {list, tuple} or not _PLAIN.issuperset(map(type, value)):
                break
            attributes[name] = tuple(value)
        else:
            return attributes
    return BoundedAttributes(most, attributes, max_value_len=longest)


@dataclass(slots=True, eq=False)
class LiveSpan:
    """A started span of finished work, which waits for its end. It implements the protocol ``PendingSpan``.

    Attributes:
        end_ns: end of the work, and so of the span, Unix time in ns.
        attributes: attributes to set before the end; None = no attributes.
        size: approximate size of the span in memory, in bytes.
    """

    span: Span
    end_ns: int
    attributes: Mapping[str, Any] | None
    size: int

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Set the attributes, and end the span with ``end_ns``."""
        try:
            if self.attributes:
                attributes = {**self.attributes, **attributes} if attributes else self.attributes
            if attributes:
                self.span.set_attributes(attributes)
            self.span.end(end_time=self.end_ns)
        except BaseException as error:  # noqa: BLE001  (a processor of the application; SystemExit would end our thread)
            log_internal_error("end a span", error)


_RANDOM = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)  # W3C Trace Context, level 2
_SAMPLED, _SAMPLED_RANDOM = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.SAMPLED | _RANDOM)


class PresetSpanFactory:
    """Starts spans with preset ids, sampling and times. Only its attributes may be used on several threads.

    A sampled span that no processor reads before its end is a ``DeferredSpan``. The SDK makes all other spans, through a copy
    of the tracer whose id generator and sampler return the preset values. All users of a scope share the tracer itself, so it
    stays unchanged.

    Attributes:
        id_generator: generates ids; callers that preset ids use it.
        sampler: the tracer's own head sampler.
        keeps: parent (None = root) → whether the span is certainly sampled, without a call of ``sampler``.
        watched: whether a processor reads spans before they end; check it with ``bool``.
        most_attributes: limit of attributes per span; None = no limit.
    """

    def __init__(self, tracer: Any) -> None:
        self.most_attributes: int | None = tracer._span_limits.max_span_attributes
        self.id_generator, self.sampler = id_generator_of(tracer), tracer.sampler
        self.keeps, self.watched = SamplingPrediction(self.sampler).keeps, EarlyReaders(tracer)
        self._own = tracer
        self._random = getattr(self.id_generator, "is_trace_id_random", None)  # absent before 1.40
        self._preset_ids, self._preset_sampler = _PresetIdGenerator(self.id_generator), _PresetSampler(self.sampler)
        self._tracer = copy(tracer)
        self._tracer.id_generator, self._tracer.sampler = self._preset_ids, self._preset_sampler

    @classmethod
    def of(cls, tracer: Tracer) -> PresetSpanFactory | None:
        """Return a factory for this tracer; None for a tracer that is not the SDK's."""
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
        """Start a span like ``Tracer.start_span``, with further arguments.

        Args:
            parent: replaces the current span of ``context``; None = keep it.
            span_id: 64 bit; None = generated.
            trace_id: 128 bit, for a root; None = generated.
            sampling: the head sampler's ``SamplingResult`` for this span; None = call the sampler if needed.
        """
        if not self.watched:
            current = (get_current_span(context) if parent is None else parent).get_span_context()
            above = current if current.is_valid else None  # None: the span is a root
            trace_id = current.trace_id if above else trace_id or self.id_generator.generate_trace_id()
            if sampling is None and self.keeps(above):
                is_sampled, own_attributes, state = True, attributes, current.trace_state if above else None
            else:
                around = _context_within(parent, context)
                sampling = sampling or self.sampler.should_sample(around, trace_id, name, kind, attributes, links)
                is_sampled, own_attributes = sampling.decision.is_sampled(), sampling.attributes
                state = sampling.trace_state
            if is_sampled:
                span_id = self.id_generator.generate_span_id() if span_id is None else span_id
                own = self.span_context_of(above, trace_id, span_id, state)
                return DeferredSpan(self._own, name, own, above, kind, own_attributes, links, start_time)
        self._preset_ids.span_id, self._preset_ids.trace_id = span_id, trace_id
        self._preset_sampler.sampling = sampling
        around = _context_within(parent, context)
        span: Span = self._tracer.start_span(
            name, context=around, kind=kind, attributes=attributes, links=links, start_time=start_time
        )
        return span

    def span_context_of(
        self, above: SpanContext | None, trace_id: int, span_id: int, state: TraceState | None
    ) -> SpanContext:
        """Return the context of a new sampled span; ``above`` is the parent's context, or None for a root."""
        is_random = (
            bool(above.trace_flags & _RANDOM) if above is not None else self._random is not None and self._random()
        )
        flags = _SAMPLED_RANDOM if is_random else _SAMPLED
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags, trace_state=state)


def _context_within(parent: Span | None, context: Context) -> Context:
    return context if parent is None else set_span_in_context(parent, context)


@dataclass(slots=True, eq=False)
class _PresetIdGenerator:
    """Returns the preset ids; without a preset, those of the inner generator."""

    _inner: Any
    span_id: int | None = None
    trace_id: int | None = None

    def generate_span_id(self) -> Any:
        return self._inner.generate_span_id() if self.span_id is None else self.span_id

    def generate_trace_id(self) -> Any:
        return self._inner.generate_trace_id() if self.trace_id is None else self.trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass(slots=True, eq=False)
class _PresetSampler:
    """Returns the preset sampling result; without a preset, that of the inner sampler."""

    _inner: Any
    sampling: Any = None

    def should_sample(self, *arguments: Any, **named: Any) -> Any:
        return self._inner.should_sample(*arguments, **named) if self.sampling is None else self.sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

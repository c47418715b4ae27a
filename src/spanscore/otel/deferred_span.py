"""DeferredSpan: a span that is made when it ends, because no processor looks at it before.

The SDK's span is there to be written to while its work goes on: a lock, a bounded mapping that cleans each value, a copy of
itself at the end. That costs 50 µs, five times what a finished span costs. Ours are made after the fact, and the batch and
the simple processor of the SDK look at finished spans only. Where a processor that looks at starts is there (one that stamps
every span with a tenant, say), the SDK's own span is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from time import time_ns
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode

__all__ = ["DeferredSpan", "Watchers", "emit_finished", "readable_span"]

_UNSET = Status(StatusCode.UNSET)
_PLAIN = frozenset({str, int, float, bool})


class DeferredSpan(NonRecordingSpan):
    """A span that keeps what is set on it, and gives the processors of its tracer a finished one. Not for several threads.

    Attributes:
        name: of the span.
        parent: None for the first of its trace.
    """

    def __init__(
        self,
        tracer: Any,
        name: str,
        ids: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        links: Sequence[Link],
        start_ns: int,
    ) -> None:
        self._context = ids  # what the inherited methods read
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
        """Whether it has not ended."""
        return not self._ended

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Take attributes, whose values OTLP can carry (``codec.text.wire_value``)."""
        if not self._attributes.keys().isdisjoint(attributes):  # past a limit the oldest go: what is set again is new
            self._attributes = {key: held for key, held in self._attributes.items() if key not in attributes}
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Take an attribute, whose value OTLP can carry."""
        self._attributes[key] = value

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Take the status."""
        self._status = status if isinstance(status, Status) else Status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """Make the finished span and give it to the processors; only the first time.

        Raises:
            Exception: whatever a processor of the application raises.
        """
        if self._ended:
            return
        self._ended = True
        end_ns = time_ns() if end_time is None else end_time
        emit_finished(
            self._tracer,
            self.name,
            self._context,
            self.parent,
            self._kind,
            self._attributes,
            self._status,
            self._start_ns,
            end_ns,
            self._links,
        )


def emit_finished(
    tracer: Any,
    name: str,
    ids: SpanContext,
    parent: SpanContext | None,
    kind: SpanKind,
    attributes: dict[str, Any],
    status: Status,
    start_ns: int,
    end_ns: int,
    links: Sequence[Link] = (),
) -> None:
    """Make a finished span in a tracer's name and give it to the processors.

    Args:
        attributes: with values that OTLP can carry; given away.

    Raises:
        Exception: whatever a processor of the application raises.
    """
    finished = readable_span()(
        name=name,
        context=ids,
        parent=parent,
        resource=tracer.resource,
        attributes=_within(tracer._span_limits, attributes),
        links=links,
        kind=kind,
        status=status,
        start_time=start_ns,
        end_time=end_ns,
        instrumentation_info=tracer.instrumentation_info,
        instrumentation_scope=tracer._instrumentation_scope,
    )
    tracer.span_processor.on_end(finished)


class Watchers:
    """Knows whether a processor would see a tracer's spans before they end. Any thread."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._counts = type(getattr(tracer, "_tracer_metrics", None)).__name__ not in {"NoneType", "NoOpTracerMetrics"}
        self._is_enabled = getattr(tracer, "_is_enabled", lambda: True)
        self._seen: Any = None
        self._watched = True

    def __bool__(self) -> bool:
        """Whether there are any: also where the tracer is not as we know it, is switched off or counts its spans."""
        processors = getattr(self._tracer.span_processor, "_span_processors", None)
        if processors is not self._seen:  # a new tuple when one is added
            self._watched = self._counts or processors is None or any(map(_watches, processors))
            self._seen = processors  # last: another thread may look meanwhile
        return self._watched or not self._is_enabled()


@cache
def readable_span() -> Any:
    """Return the SDK's class of finished spans."""
    from opentelemetry.sdk.trace import ReadableSpan  # whose tracer is the SDK's has loaded it

    return ReadableSpan


def _watches(processor: Any) -> bool:
    """Whether a processor does more than nothing with a span that has not ended."""
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    idle = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
    return any(
        getattr(getattr(processor, name, None), "__func__", None) not in {getattr(kind, name, None) for kind in idle}
        for name in ("on_start", "_on_ending")
    )


def _within(limits: Any, attributes: dict[str, Any]) -> Mapping[str, Any]:
    """Return attributes as the SDK would keep them: within the provider's limits, lists as tuples."""
    most, longest = limits.max_span_attributes, limits.max_span_attribute_length
    if longest is None and (most is None or len(attributes) <= most):
        if _PLAIN.issuperset(map(type, attributes.values())):  # most are
            return attributes
        for name in [name for name, value in attributes.items() if type(value) not in _PLAIN]:
            value = attributes[name]
            if type(value) not in {list, tuple} or not _PLAIN.issuperset(map(type, value)):
                break
            attributes[name] = tuple(value)
        else:
            return attributes
    return BoundedAttributes(most, attributes, max_value_len=longest)

"""Finds the span processors of a tracer provider, and their exporters, in private attributes of the OpenTelemetry SDK.

A live span refers to the ``SynchronousMultiSpanProcessor`` of its provider, which lists the processors. If an SDK has another
structure, the result is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from opentelemetry import trace

_INNER: Final = (
    "span_exporter",
    "_exporter",
    "_batch_processor",
    "processor",
    "_processor",
    "span_processor",
    "wrapped",
)
"""Attributes in which a processor keeps its exporter, or the processor that it wraps."""
_DEEPEST: Final = 8
"""Maximum number of wrapped parts between a processor and its exporter."""


def processors_beside(span: Any) -> tuple[Any, ...]:
    """Return the processors of a live span's provider, in order; empty if they are unknown.

    The tuple is the provider's own, so a provider with the same tuple has had no processor added.
    """
    processors = getattr(getattr(span, "_span_processor", None), "_span_processors", ())
    return processors if isinstance(processors, tuple) else ()


def exporter_of(processor: Any) -> Any | None:
    """Return the exporter of a processor, which may wrap other processors; None if it is unknown."""
    return next(_exporters(processor, _DEEPEST), None)


def provider_behind(span: Any) -> Any | None:
    """Return a new provider with the resource and the processors of a live span.

    None if these are the processors of the global provider, or if they are unknown.
    """
    processor = getattr(span, "_span_processor", None)
    if processor is None or not hasattr(processor, "add_span_processor"):
        return None
    if getattr(trace.get_tracer_provider(), "_active_span_processor", None) is processor:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    return TracerProvider(ALWAYS_ON, span.resource, shutdown_on_exit=False, active_span_processor=processor)


def _exporters(part: Any, deepest: int) -> Iterator[Any]:
    if callable(getattr(part, "export", None)):
        yield part
    elif deepest:
        wrapped = [vars(part)[name] for name in _INNER if name in getattr(part, "__dict__", ())]
        for inner in (*wrapped, *getattr(part, "_span_processors", ())):
            yield from _exporters(inner, deepest - 1)

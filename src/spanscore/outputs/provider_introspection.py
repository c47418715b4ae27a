"""Finds the other processors of a tracer provider and their exporters, which the SDK does not list in public.

A started span refers to the processors of its provider, which are children of one (``SynchronousMultiSpanProcessor``). If the
SDK's structure is unknown, no processor is found, and callers do without.
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
"""Attributes with which processors of the SDK, and processors that wrap one, refer to the next part."""
_DEEPEST: Final = 8


def processors_beside(span: Any) -> tuple[Any, ...]:
    """Return the processors of a live span's provider, in order; a new tuple after each addition. Empty: unknown."""
    found = getattr(getattr(span, "_span_processor", None), "_span_processors", ())
    return found if isinstance(found, tuple) else ()


def exporter_of(processor: Any) -> Any | None:
    """Return the exporter behind a processor; None if none is visible."""
    return next(_exporters(processor, _DEEPEST), None)


def provider_behind(span: Any) -> Any | None:
    """Return a provider with the same processors as this live span's; None if its own is the global one, or unknown."""
    behind = getattr(span, "_span_processor", None)
    if behind is None or not hasattr(behind, "add_span_processor"):
        return None
    if getattr(trace.get_tracer_provider(), "_active_span_processor", None) is behind:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    return TracerProvider(ALWAYS_ON, span.resource, shutdown_on_exit=False, active_span_processor=behind)


def _exporters(thing: Any, deepest: int) -> Iterator[Any]:
    if callable(getattr(thing, "export", None)):
        yield thing
    elif deepest:
        inside = [vars(thing)[name] for name in _INNER if name in getattr(thing, "__dict__", ())]
        for inner in (*inside, *getattr(thing, "_span_processors", ())):
            yield from _exporters(inner, deepest - 1)

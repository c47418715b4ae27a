"""Which processors stand beside one in its provider, and what they export to: the SDK has no public list of either.

A span that was started knows the processors of its provider, all of them behind one (``SynchronousMultiSpanProcessor``). Where
it is not as we know it nothing is found, and nothing is done about it.
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
"""Where processors of the SDK and those that wrap one keep what they pass spans on to."""
_DEEPEST: Final = 8


def processors_beside(span: Any) -> tuple[Any, ...]:
    """Return the processors that hear of a live span, in their order: a new tuple whenever one is added. Empty: not known."""
    found = getattr(getattr(span, "_span_processor", None), "_span_processors", ())
    return found if isinstance(found, tuple) else ()


def exporter_of(processor: Any) -> Any | None:
    """Return the exporter behind a processor, None where it has none that can be seen."""
    return next(_exporters(processor, _DEEPEST), None)


def provider_behind(span: Any) -> Any | None:
    """Return a provider whose spans leave as this live one will; None where its own is the global one, or is not known."""
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

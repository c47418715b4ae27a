"""A ``Span`` message of OTLP → SpanData."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore import semconv
from spanscore.codec.otlp_pairs import attributes_in, attributes_of
from spanscore.codec.sdk import STATUS, failure, metadata_of, structured
from spanscore.model.span import SpanData

__all__ = ["IS_REMOTE", "KINDS", "SAYS_REMOTE", "span_data_of_message"]

IS_REMOTE = 0x300
"""Of a span's flags the bits that say that it is known where its parent is, and that it is in another process
(opentelemetry-proto 1.1)."""
SAYS_REMOTE = 0x100
_SAMPLED = 1
"""OTLP carries the W3C flags only from some SDKs; a span that was exported was sampled."""
_FLAGS = 0xFF
KINDS = ("internal", "internal", "server", "client", "producer", "consumer")
"""By OTLP's number; 0 is "unspecified", to be read as internal."""


def span_data_of_message(span: Any, scope: str, resource: Mapping[str, Any]) -> SpanData:
    """Return a valid ``SpanOfPairs`` as we see it. An end before the start is read as the start.

    Raises:
        DecodeError: one of its attributes is none.
        UnicodeDecodeError: likewise.
    """
    attributes, events = attributes_in(span.attributes[:]), span.events
    start_ns, parent_id, status = span.start_time_unix_nano, span.parent_span_id, span.status.code
    return SpanData(
        int.from_bytes(span.trace_id),
        int.from_bytes(span.span_id),
        int.from_bytes(parent_id) or None,
        span.name,
        start_ns=start_ns,
        end_ns=max(start_ns, span.end_time_unix_nano),
        scope=scope,
        kind=KINDS[span.kind] if 0 <= span.kind < len(KINDS) else "internal",
        status=STATUS[status] if 0 <= status < len(STATUS) else "unset",
        attributes=structured(attributes),
        metadata=metadata_of(attributes),
        trace_flags=span.flags & _FLAGS | _SAMPLED,
        trace_state=span.trace_state,
        resource=resource,
        failed_inside=attributes.get(semconv.RUN_STEP_ERROR) is True,
        parent_is_remote=_parent_is_remote(span.flags) if parent_id else None,
        events=(
            *([(event.name, attributes_of(event.attributes)) for event in events] if events else ()),
            *(failure(span.status.message) if status else ()),
        ),
    )


def _parent_is_remote(flags: int) -> bool | None:
    return flags & IS_REMOTE == IS_REMOTE if flags & SAYS_REMOTE else None

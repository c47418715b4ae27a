"""OTLP as it stands on the wire: a request → its spans, each still the bytes that came, and back.

What is not scored is never converted: a request is taken apart by a skeleton of its messages in which a span is bytes; ids are
read at their fixed offsets, as every known SDK writes fields in order, and anything else is decoded.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Origin", "WireSpan"]


class Origin(NamedTuple):
    """What the spans of one ``ScopeSpans`` share.

    Attributes:
        resource: the message, as bytes.
        scope: likewise.
        scope_name: of the instrumentation scope.
        resource_schema: URL; empty where there is none.
        scope_schema: likewise.
    """

    resource: bytes
    scope: bytes
    scope_name: str
    resource_schema: str = ""
    scope_schema: str = ""


class WireSpan(NamedTuple):
    """One valid span as it came.

    Attributes:
        trace_id: 16 bytes, not all zero.
        span_id: 8 bytes, likewise.
        parent_id: 8 bytes; empty where it has no parent.
        parent_is_remote: its parent is in another process, as far as its flags say.
        raw: the ``Span`` message.
        origin: whose it is.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    parent_is_remote: bool
    raw: bytes
    origin: Origin

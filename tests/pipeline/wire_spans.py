"""Bare spans from the wire, for tables of traces."""

from __future__ import annotations

from spanscore.core.codecs.otlp_request import Origin, WireSpan

ORIGIN = Origin(b"resource", b"scope", "some.library")


def wire_span(
    span_id: int, parent: int | None = None, *, trace: int = 1, remote: bool = False, size: int = 100
) -> WireSpan:
    """Return a span of this many bytes, which are all zero."""
    parent_id = b"" if parent is None else parent.to_bytes(8)
    return WireSpan(trace.to_bytes(16), span_id.to_bytes(8), parent_id, remote, bytes(size), ORIGIN)

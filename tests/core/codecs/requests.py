"""Export requests in the forms of the Python SDK, of the Collector, and of unknown writers."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf.internal.decoder import _DecodeVarint  # type: ignore[attr-defined]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.core.codecs.otlp_request import WireSpan, parse_request
from spanscore.core.codecs.otlp_scan import RequestSkeleton

__all__ = [
    "IS_REMOTE",
    "NOT_REMOTE",
    "a_request",
    "backwards",
    "fields",
    "make_span",
    "only",
    "sent",
    "shuffled",
    "varint",
]

FIXED, LENGTH = {1: 8, 5: 4}, 2
"""Protobuf's wire types: those with a fixed number of bytes, and the one with a length."""
NOT_REMOTE, IS_REMOTE = 0x101, 0x301


def make_span(**fields: Any) -> Span:
    """Return a valid span with a parent, changed by the given fields."""
    attributes = fields.pop("attributes", {"gen_ai.operation.name": "chat"})
    span = Span(**{
        "trace_id": b"t" * 16, "span_id": b"s" * 8, "parent_span_id": b"p" * 8, "name": "chat", "kind": 3, "flags": NOT_REMOTE,
        "start_time_unix_nano": 5, "end_time_unix_nano": 7, **fields,
    })  # fmt: skip
    for key, value in attributes.items():
        span.attributes.add(key=key).value.string_value = value
    return span


def a_request(*spans: Span, scope: str = "some.scope", service: str = "bot") -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add(schema_url="https://resource")
    resource_spans.resource.attributes.add(key="service.name").value.string_value = service
    scope_spans = resource_spans.scope_spans.add(schema_url="https://scope")
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return request


def fields(message: bytes) -> list[bytes]:
    """Return the fields of a message, each with its tag."""
    found, at = [], 0
    while at < len(message):
        tag, after = _DecodeVarint(message, at)
        if tag & 7 in FIXED:
            end = after + FIXED[tag & 7]
        else:
            number, end = _DecodeVarint(message, after)
            end += number if tag & 7 == LENGTH else 0
        found.append(message[at:end])
        at = end
    return found


def backwards(message: bytes) -> bytes:
    """Return a span as the Collector writes it: from the last field of the .proto file to the first (seen with 0.159)."""
    numbers = [field.number for field in Span.DESCRIPTOR.fields]  # as they are declared: the flags behind the parent
    return b"".join(sorted(fields(message), key=lambda field: -numbers.index(_DecodeVarint(field, 0)[0] >> 3)))


def shuffled(message: bytes, seed: int) -> bytes:
    """Return a message with its fields in any order."""
    mixed = fields(message)
    random.Random(seed).shuffle(mixed)
    return b"".join(mixed)


def sent(*raws: bytes, service: str = "bot") -> bytes:
    """Return a request with these spans as they are."""
    request = RequestSkeleton.FromString(a_request(service=service).SerializeToString())
    request.resource_spans[0].scope_spans[0].spans.extend(raws)
    return bytes(request.SerializeToString())


def only(raw: bytes) -> WireSpan:
    """Return the one span as it is taken out of a request."""
    (span,) = parse_request(sent(raw)).spans
    return span


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)

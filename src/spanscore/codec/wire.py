"""OTLP as it stands on the wire: a request → its spans, each still the bytes that came, and back.

What is not scored is never converted: a request is taken apart by a skeleton of its messages in which a span is bytes, and a
child's ids are read at their fixed offsets. SDKs write the fields of a span in order, ids first; the Collector (0.159) writes
them from the end, ids last. Anything else, and what has no parent, is decoded as far as its ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.codec.otlp_span import IS_REMOTE, attributes_of, span_data_of_message
from spanscore.codec.skeleton import RequestSkeleton, SpanHead
from spanscore.codec.text import safe_text
from spanscore.codec.wire_json import UnreadableRequest, from_json
from spanscore.model.foreign import type_name
from spanscore.model.span import SpanData

__all__ = [
    "Origin",
    "Taken",
    "UnreadableRequest",
    "WireSpan",
    "from_json",
    "request_of",
    "span_data_of",
    "taken_apart",
    "trace_state_of",
    "with_attributes",
]

_FRONT = Struct(">H16sH8sH8s").unpack_from
_END = Struct(">H8sH8sH16s").unpack_from
_IDS_SIZE, _FLAGS_SIZE = 38, 6
_TAGS = 0x0A10, 0x1208, 0x2208
"""Of the trace's id, the span's and its parent's, each with its right length."""
_FLAG, _REMOTE_BIT = 0x85, 2
"""The first byte of the flags' tag; of their own second one what is set only where the parent is known to be remote."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_UNREADABLE = "a span that cannot be read"
_CACHED, _CACHED_BYTES = 256, 16_384
"""How many resources and scopes are kept decoded, and up to which size: services have few, and they are small."""


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
        raw: the ``Span`` message. Only its ids and flags were read: the rest may still turn out to be no span.
        origin: whose it is.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    parent_is_remote: bool
    raw: bytes
    origin: Origin


_new: Callable[[type[WireSpan], tuple[bytes, bytes, bytes, bool, bytes, Origin]], WireSpan] = tuple.__new__
"""Half of what the constructor of a named tuple takes."""


class Taken(NamedTuple):
    """One request, taken apart.

    Attributes:
        spans: those that are valid, in their order.
        rejected: what is wrong → how many spans are not valid for it; it quotes nothing of them.
    """

    spans: Sequence[WireSpan]
    rejected: Mapping[str, int]


def taken_apart(body: bytes) -> Taken:
    """Return the spans of an ``ExportTraceServiceRequest``.

    Raises:
        UnreadableRequest: it is none.
    """
    spans: list[WireSpan] = []
    rejected: Counter[str] = Counter()
    try:
        for origin, raws in _by_origin(RequestSkeleton.FromString(body)):
            for raw in raws:
                span = _in_place(raw, origin) or _decoded(raw, origin)
                if isinstance(span, WireSpan):
                    spans.append(span)
                else:
                    rejected[span] += 1
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None
    return Taken(spans, rejected)


def span_data_of(span: WireSpan, mended: Counter[str] | None = None) -> SpanData:
    """Return a span as we see it; spans of one origin share their resource. An end before the start is the start.

    Args:
        span: a valid one.
        mended: counts what was not as it should be.

    Raises:
        UnreadableRequest: what follows the ids is no span.
    """
    try:
        message = Span.FromString(span.raw)
        resource = _resource(span.origin.resource)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None
    if mended is not None and message.end_time_unix_nano < message.start_time_unix_nano:
        mended["an end before its start"] += 1
    return span_data_of_message(message, span.origin.scope_name, resource)


def trace_state_of(span: WireSpan) -> str:
    """Return the W3C ``tracestate`` header, empty where there is none."""
    try:
        return str(SpanHead.FromString(span.raw).trace_state, "utf-8", "replace")
    except DecodeError:
        return ""  # what follows the ids is no span; who decodes all of it is told


def with_attributes(raw: bytes, attributes: Mapping[str, Any]) -> bytes:
    """Return a ``Span`` message with more attributes: its own bytes, these appended.

    Args:
        raw: the message.
        attributes: bool, int, float and text, and lists of them.
    """
    more = Span()
    for name, value in attributes.items():
        pair = more.attributes.add(key=safe_text(name))
        _set(pair.value, value)
    return raw + more.SerializeToString()


def request_of(spans: Iterable[tuple[Origin, bytes]]) -> bytes:
    """Return an ``ExportTraceServiceRequest`` of ``Span`` messages, grouped by origin in the order in which they came."""
    request = RequestSkeleton()
    resources: dict[tuple[bytes, str], Any] = {}
    scopes: dict[Origin, Any] = {}
    for origin, raw in spans:
        if origin not in scopes:
            whose = origin.resource, origin.resource_schema
            if whose not in resources:
                resources[whose] = request.resource_spans.add(resource=[whose[0]], schema_url=whose[1])
            added = resources[whose].scope_spans.add(scope=[origin.scope], schema_url=origin.scope_schema)
            scopes[origin] = added.spans
        scopes[origin].append(raw)
    return bytes(request.SerializeToString())


def _by_origin(request: Any) -> Iterator[tuple[Origin, Iterable[bytes]]]:
    for resource_spans in request.resource_spans:
        resource, schema = b"".join(resource_spans.resource), resource_spans.schema_url
        for scope_spans in resource_spans.scope_spans:
            scope = b"".join(scope_spans.scope)
            yield Origin(resource, scope, _scope_name(scope), schema, scope_spans.schema_url), scope_spans.spans


def _in_place(raw: bytes, origin: Origin) -> WireSpan | None:
    """Return a span with a parent in the same process whose ids are where they are expected; None where they are not."""
    size = len(raw)
    if size < _IDS_SIZE + _FLAGS_SIZE:
        return None
    first, trace_id, second, span_id, third, parent_id = _FRONT(raw)
    at = size - _FLAGS_SIZE
    if first != _TAGS[0]:
        third, parent_id, second, span_id, first, trace_id = _END(raw, size - _IDS_SIZE)
        at -= _IDS_SIZE
    if (first, second, third) != _TAGS:
        return None
    if (raw[at] != _FLAG or raw[at + 1] != 1 or raw[at + 3] & _REMOTE_BIT) and _FLAG in raw:
        return None
    if trace_id == _NO_TRACE or span_id == _NO_SPAN or parent_id == _NO_SPAN:  # noqa: PLR1714  it would build a tuple
        return None
    return _new(WireSpan, (trace_id, span_id, parent_id, False, raw, origin))


def _decoded(raw: bytes, origin: Origin) -> WireSpan | str:
    """Return a span wherever its ids are, or why it is not valid."""
    try:
        head = SpanHead.FromString(raw)
    except DecodeError:
        return _UNREADABLE
    trace_id, span_id, parent_id = head.trace_id, head.span_id, head.parent_span_id
    if wrong := _wrong(trace_id, span_id, parent_id) if raw else _UNREADABLE:
        return wrong
    if not parent_id or parent_id == _NO_SPAN:
        return _new(WireSpan, (trace_id, span_id, b"", False, raw, origin))
    is_remote = head.flags & IS_REMOTE == IS_REMOTE
    return _new(WireSpan, (trace_id, span_id, parent_id, is_remote, raw, origin))


def _wrong(trace_id: bytes, span_id: bytes, parent_id: bytes) -> str | None:
    if len(trace_id) != len(_NO_TRACE):
        return "a trace id that is not 16 bytes"
    if len(span_id) != len(_NO_SPAN):
        return "a span id that is not 8 bytes"
    if len(parent_id) not in (0, len(_NO_SPAN)):
        return "a parent's id that is not 8 bytes"
    if trace_id == _NO_TRACE:
        return "a trace id of zeros"
    return "a span id of zeros" if span_id == _NO_SPAN else None


def _scope_name(scope: bytes) -> str:
    return _small_scope_name(scope) if len(scope) <= _CACHED_BYTES else _decoded_scope_name(scope)


def _decoded_scope_name(scope: bytes) -> str:
    return InstrumentationScope.FromString(scope).name


_small_scope_name = lru_cache(_CACHED)(_decoded_scope_name)


def _resource(resource: bytes) -> Mapping[str, Any]:
    return _small_resource(resource) if len(resource) <= _CACHED_BYTES else _decoded_resource(resource)


def _decoded_resource(resource: bytes) -> Mapping[str, Any]:
    return attributes_of(Resource.FromString(resource).attributes)


_small_resource = lru_cache(_CACHED)(_decoded_resource)


def _set(into: Any, value: Any) -> None:
    if isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int):
        into.int_value = value
    elif isinstance(value, float):
        into.double_value = value
    elif isinstance(value, str):
        into.string_value = safe_text(value)
    else:
        for item in value:
            _set(into.array_value.values.add(), item)

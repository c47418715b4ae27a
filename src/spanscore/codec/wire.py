"""OTLP as it stands on the wire: a request → its spans, each still the bytes that came, and back.

What is not scored is never converted: a request is taken apart by a skeleton of its messages in which a span is bytes, and a
child's ids are read at their fixed offsets. SDKs write the fields of a span in order, ids first; the Collector (0.159) writes
them from the end, ids last. Anything else, and what has no parent, is decoded as far as its ids.

What stands in a request as SDKs write it is not even copied: a span is a place in its body until somebody keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from spanscore.codec.wire_walk import ScopePlace, walked
from spanscore.model.foreign import type_name
from spanscore.model.span import SpanData

__all__ = [
    "Origin",
    "SpanPlace",
    "Taken",
    "UnreadableRequest",
    "WireSpan",
    "from_json",
    "kept",
    "request_of",
    "resource_of",
    "span_data_of",
    "taken_apart",
    "trace_state_of",
    "with_attributes",
]

_FRONT = Struct(">H16sH8sH8s").unpack_from
_END = Struct(">H8sH8sH16s").unpack_from
_IDS_SIZE, _FLAGS_SIZE, _READ_SIZE = 38, 6, 44
_FIRST_TAG, _SECOND_TAG, _THIRD_TAG = 0x0A10, 0x1208, 0x2208
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


SpanPlace = tuple[bytes, bytes, bytes, bool, int, int, bytes | None]
"""Where one valid span stands in the body of its request; a plain tuple, as it is made and taken apart for every span.

The first four are those of ``WireSpan``; then start and end of its message, and the W3C ``tracestate``, None where that was not
read.
"""


def kept(body: bytes, place: SpanPlace, origin: Origin) -> WireSpan:
    """Return a span with bytes of its own, so that its request can go."""
    trace_id, span_id, parent_id, is_remote, start, end, _ = place
    return _new(WireSpan, (trace_id, span_id, parent_id, is_remote, body[start:end], origin))


class Taken(NamedTuple):
    """One request, taken apart.

    Attributes:
        body: where its spans stand.
        places: of those that are valid, in their order, by whose they are.
        rejected: what is wrong → how many spans are not valid for it; it quotes nothing of them.
    """

    body: bytes
    places: Sequence[tuple[Origin, Sequence[SpanPlace]]]
    rejected: Mapping[str, int]

    @property
    def total(self) -> int:
        """Of its valid spans."""
        return sum(len(places) for _, places in self.places)

    @property
    def spans(self) -> list[WireSpan]:
        """Its valid spans, copied."""
        return [kept(self.body, place, origin) for origin, places in self.places for place in places]


def taken_apart(body: bytes) -> Taken:
    """Return the spans of an ``ExportTraceServiceRequest``.

    Raises:
        UnreadableRequest: it is none.
    """
    rejected: Counter[str] = Counter()
    try:
        found = walked(body)
        if found is None:
            found = walked(body := _rewritten(body))
            assert found is not None  # it is as protobuf itself writes it
        return Taken(body, [(_origin(one), _places(body, one.spans, rejected)) for one in found], rejected)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None


def span_data_of(span: WireSpan, mended: Counter[str] | None = None) -> SpanData:
    """Return a span as we see it; spans of one origin share their resource. An end before the start is the start.

    Args:
        span: a valid one.
        mended: counts what was not as it should be.

    Raises:
        UnreadableRequest: what follows the ids is no span.
    """
    resource = resource_of(span.origin)
    try:
        message = Span.FromString(span.raw)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None
    if mended is not None and message.end_time_unix_nano < message.start_time_unix_nano:
        mended["an end before its start"] += 1
    return span_data_of_message(message, span.origin.scope_name, resource)


def resource_of(origin: Origin) -> Mapping[str, Any]:
    """Return the attributes of a resource, the same object for all spans of it.

    Raises:
        UnreadableRequest: it is none.
    """
    try:
        return _resource(origin.resource)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None


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


def _rewritten(body: bytes) -> bytes:
    """Return a request as SDKs write it: what we do not know is left out, and what comes in pieces is joined."""
    request = RequestSkeleton.FromString(body)
    request.DiscardUnknownFields()
    for resource_spans in request.resource_spans:
        resource_spans.resource[:] = [b"".join(resource_spans.resource)]
        for scope_spans in resource_spans.scope_spans:
            scope_spans.scope[:] = [b"".join(scope_spans.scope)]
    return bytes(request.SerializeToString())


def _origin(of: ScopePlace) -> Origin:
    return Origin(of.resource, of.scope, _scope_name(of.scope), of.resource_schema, of.scope_schema)


def _places(body: bytes, spans: Sequence[tuple[int, int]], rejected: Counter[str]) -> list[SpanPlace]:
    """Return the spans that are valid."""
    places = list[SpanPlace]()
    for start, end in spans:
        place = _in_place(body, start, end) or _decoded(body, start, end)
        if place.__class__ is tuple:
            places.append(place)  # half of what isinstance takes
        else:
            rejected[place] += 1  # type: ignore[index]
    return places


def _in_place(body: bytes, start: int, end: int) -> SpanPlace | None:
    """Return a span with a parent in the same process whose ids are where they are expected; None where they are not."""
    if end - start < _READ_SIZE:
        return None
    first, trace_id, second, span_id, third, parent_id = _FRONT(body, start)
    flags = end - _FLAGS_SIZE
    if first != _FIRST_TAG:
        third, parent_id, second, span_id, first, trace_id = _END(body, end - _IDS_SIZE)
        flags -= _IDS_SIZE
    if first != _FIRST_TAG or second != _SECOND_TAG or third != _THIRD_TAG:
        return None
    is_told = body[flags] == _FLAG and body[flags + 1] == 1
    if body[flags + 3] & _REMOTE_BIT if is_told else body.find(_FLAG, start, end) >= 0:
        return None
    if trace_id == _NO_TRACE or span_id == _NO_SPAN or parent_id == _NO_SPAN:  # noqa: PLR1714  it would build a tuple
        return None
    return trace_id, span_id, parent_id, False, start, end, None


def _decoded(body: bytes, start: int, end: int) -> SpanPlace | str:
    """Return a span wherever its ids are, or why it is not valid."""
    try:
        head = SpanHead.FromString(body[start:end])
    except DecodeError:
        return _UNREADABLE
    trace_id, span_id, parent_id = head.trace_id, head.span_id, head.parent_span_id
    if wrong := _wrong(trace_id, span_id, parent_id) if start < end else _UNREADABLE:
        return wrong
    if parent_id == _NO_SPAN:
        parent_id = b""
    is_remote = bool(parent_id) and head.flags & IS_REMOTE == IS_REMOTE
    return trace_id, span_id, parent_id, is_remote, start, end, head.trace_state


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

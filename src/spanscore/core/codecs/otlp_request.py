"""Splits an OTLP request, protobuf or JSON, into its spans without copying them; and builds requests."""

from __future__ import annotations

import json
import re
from binascii import unhexlify
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore.core.codecs.otlp_scan import (
    TIMES_SIZE,
    RequestSkeleton,
    SpanHead,
    SpanPlace,
    scan_request,
    times_in,
)
from spanscore.core.codecs.otlp_span import SpanOfPairs, attributes_of_pairs, span_data_of_message
from spanscore.core.codecs.text import safe_text
from spanscore.core.log import type_name
from spanscore.core.span import SpanData

# --- OTLP-JSON ------------------------------------------------------------------------------------------------------

# OTLP-JSON → the same request as protobuf (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding").

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_IDS = {"traceId": "trace_id", "spanId": "span_id", "parentSpanId": "parent_span_id"}
_NO_ID = b"?"
"""Replaces an id that is not hex. No id has this length; an empty parent id would make the span a root."""
_JSON_ERRORS = (ValueError, TypeError, AttributeError, RecursionError, OverflowError, ParseError)
"""Errors that foreign JSON causes in the code below. The message of such an error may quote the JSON, and so prompts."""


class UnreadableRequest(ValueError):
    """Bytes that are not an export request: the message names the reader's error, and quotes no content.

    Attributes:
        because: the class name of the reader's error.
    """

    def __init__(self, because: str, request: str = "ExportTraceServiceRequest") -> None:
        super().__init__(f"no {request} ({because})")
        self.because = because


def from_json(body: bytes | str) -> bytes:
    """Return an OTLP-JSON request as protobuf.

    An unreadable span becomes an empty span, and an id that is not hex becomes one byte, so that only this span is invalid.

    Raises:
        UnreadableRequest: the body is not JSON, or not a request.
    """
    try:
        document = _parse_json(body if isinstance(body, str) else body.decode())
        request = ExportTraceServiceRequest()
        for resource_spans in _pop_list(document, "resourceSpans"):
            resource_message = request.resource_spans.add()
            for scope in _pop_list(resource_spans, "scopeSpans"):
                spans, scope_message = _pop_list(scope, "spans"), resource_message.scope_spans.add()
                _parse(scope, scope_message)
                for span in spans:
                    _add_span(span, scope_message.spans.add())
            _parse(resource_spans, resource_message)
    except _JSON_ERRORS as error:
        raise UnreadableRequest(type_name(error)) from None
    return request.SerializeToString()


def logs_from_json(body: bytes) -> bytes:
    """Return an OTLP-JSON request of logs as protobuf; an unreadable record becomes an empty record.

    Raises:
        UnreadableRequest: the body is not JSON, or not a request.
    """
    try:
        request = ExportLogsServiceRequest()
        for resource_logs in _pop_list(_parse_json(body.decode()), "resourceLogs"):
            resource_message = request.resource_logs.add()
            for scope in _pop_list(resource_logs, "scopeLogs"):
                records, scope_message = _pop_list(scope, "logRecords"), resource_message.scope_logs.add()
                _parse(scope, scope_message)
                for record in records:
                    _parse_with_ids([(record, scope_message.log_records.add())])
    except _JSON_ERRORS as error:
        raise UnreadableRequest(type_name(error), "ExportLogsServiceRequest") from None
    return request.SerializeToString()


def _parse_json(text: str) -> Any:
    document = json.loads(text)
    if _SURROGATE.search(text):  # half an emoji, if a writer cut a text: protobuf would reject the whole span
        return json.loads(safe_text(json.dumps(document, ensure_ascii=False)))
    return document


def _pop_list(values: dict[str, Any], name: str) -> list[Any]:
    """Remove a list from an object and return it; empty if it is missing or null."""
    value = values.pop(name, None)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(name)
    return value


def _add_span(values: dict[str, Any], message: Any) -> None:
    try:
        links = [(link, message.links.add()) for link in _pop_list(values, "links")]
    except _JSON_ERRORS:
        message.Clear()
        return
    _parse_with_ids([(values, message), *links])


def _parse_with_ids(pairs: list[tuple[dict[str, Any], Any]]) -> None:
    """Parse objects with ids into their messages. If one is unreadable, the first, which contains the others, is left empty."""
    try:
        for values, message in pairs:
            ids = dict(_pop_ids(values))
            _parse(values, message)
            for name, value in ids.items():
                setattr(message, name, value)
    except _JSON_ERRORS:
        pairs[0][1].Clear()


def _pop_ids(values: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Remove and yield the ids of a span or link. Ids are hex in OTLP, but protobuf's own JSON expects base64."""
    for name, field in _IDS.items():
        if value := values.pop(name, None):
            try:
                yield field, unhexlify(value)
            except ValueError:
                yield field, _NO_ID


def _parse(values: dict[str, Any], message: Any) -> None:
    if not isinstance(values, dict):
        raise TypeError
    ParseDict(values, message, ignore_unknown_fields=True)


# --- protobuf -------------------------------------------------------------------------------------------------------

# Unscored spans are never converted. In a request in the form of the SDKs they are not even copied: a span is its ids and its
# position in the body, until a caller needs its bytes (``copy_span``). A request in another form is rewritten by a skeleton of
# its messages, in which a span is bytes.

_TIMES: Final = Struct("<xQxQ").unpack
_CACHED, _CACHED_BYTES = 256, 16_384
"""Number of resources and scopes that are cached decoded, and their maximum size: services have few, and they are small."""


class Origin(NamedTuple):
    """The common origin of the spans of one ``ScopeSpans``.

    Attributes:
        resource: the ``Resource`` message, as bytes.
        scope: the ``InstrumentationScope`` message, as bytes.
        scope_name: name of the instrumentation scope.
        resource_schema: schema URL of the resource; empty without one.
        scope_schema: schema URL of the scope; empty without one.
    """

    resource: bytes
    scope: bytes
    scope_name: str
    resource_schema: str = ""
    scope_schema: str = ""


class WireSpan(NamedTuple):
    """One span as it was received, with valid ids.

    Attributes:
        trace_id: 16 bytes, not all zero.
        span_id: 8 bytes, not all zero.
        parent_id: 8 bytes; empty without a parent.
        parent_is_remote: whether the parent is in another process, according to the flags.
        raw: the ``Span`` message. Only its ids and flags have been read: the rest may be invalid.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    parent_is_remote: bool
    raw: bytes
    origin: Origin


_new: Callable[[type[WireSpan], tuple[bytes, bytes, bytes, bool, bytes, Origin]], WireSpan] = tuple.__new__
"""Creates a span in half the time of the constructor."""


def copy_span(body: bytes, place: SpanPlace, origin: Origin) -> WireSpan:
    """Return a span with its own copy of its bytes, so that its request can be freed."""
    trace_id, span_id, parent_id, is_remote, start, end, _ = place
    return _new(WireSpan, (trace_id, span_id, parent_id, is_remote, body[start:end], origin))


class ParsedRequest(NamedTuple):
    """One request, split into spans.

    Attributes:
        places: positions of the valid spans, in order, grouped by origin.
        rejected: error → number of invalid spans; quotes no content.
    """

    body: bytes
    places: Sequence[tuple[Origin, Sequence[SpanPlace]]]
    rejected: Mapping[str, int]

    @property
    def spans(self) -> list[WireSpan]:
        """Copies of the valid spans."""
        return [copy_span(self.body, place, origin) for origin, places in self.places for place in places]


def parse_request(body: bytes) -> ParsedRequest:
    """Return the spans of an ``ExportTraceServiceRequest``.

    Raises:
        UnreadableRequest: the bytes are not a request.
    """
    rejected: dict[str, int] = {}
    try:
        places = scan_request(body, rejected, _origin)
        if places is None:
            rejected.clear()
            places = scan_request(body := _rewrite(body), rejected, _origin)
            assert places is not None  # protobuf itself wrote this form
        return ParsedRequest(body, places, rejected)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None


def span_data_of(span: WireSpan, corrections: Counter[str] | None = None) -> SpanData:
    """Return a span as ``SpanData``; spans of one origin share their resource.

    An end before the start is replaced by the start, and counted in ``corrections``.

    Raises:
        UnreadableRequest: the bytes after the ids are not a span.
    """
    resource = resource_of(span.origin)
    try:
        message = SpanOfPairs.FromString(span.raw)
        data = span_data_of_message(message, span.origin.scope_name, resource)
    except (DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRequest(type_name(error)) from None
    if corrections is not None and message.end_time_unix_nano < message.start_time_unix_nano:
        corrections["an end before its start"] += 1
    return data


def resource_of(origin: Origin) -> Mapping[str, Any]:
    """Return the attributes of a resource, the same object for all its spans.

    Raises:
        UnreadableRequest: the bytes are not a resource.
    """
    try:
        resource = origin.resource
        return _cached_resource(resource) if len(resource) <= _CACHED_BYTES else _decode_resource(resource)
    except DecodeError as error:
        raise UnreadableRequest(type_name(error)) from None


def trace_state_of(span: WireSpan) -> str:
    """Return the W3C ``tracestate`` header; empty if the span has none."""
    try:
        return str(SpanHead.FromString(span.raw).trace_state, "utf-8", "replace")
    except DecodeError:
        return ""  # the bytes are not a span; ``span_data_of`` raises the error


def times_of(span: WireSpan) -> tuple[int, int] | None:
    """Return start and end of a span in nanoseconds since the epoch; None if its bytes were dropped, or have no times."""
    raw = span[4]
    if len(raw) == TIMES_SIZE:  # a span of ``copy_times``
        return _TIMES(raw)
    if not raw:
        return None
    try:
        head = SpanHead.FromString(raw)
    except DecodeError:
        return None
    start_ns, end_ns = head.start_time_unix_nano, head.end_time_unix_nano
    return (start_ns, end_ns) if start_ns and end_ns else None


def copy_times(body: bytes, place: SpanPlace, origin: Origin) -> WireSpan:
    """Return a span with only its start and end."""
    trace_id, span_id, parent_id, is_remote, start, end, _ = place
    return _new(WireSpan, (trace_id, span_id, parent_id, is_remote, times_in(body, start, end), origin))


def with_attributes(raw: bytes, attributes: Mapping[str, Any]) -> bytes:
    """Return a ``Span`` message with more attributes, which are appended to the message's bytes.

    Values are of type bool, int, float and text, and lists of them.
    """
    more = Span()
    for name, value in attributes.items():
        pair = more.attributes.add(key=safe_text(name))
        _set(pair.value, value)
    return raw + more.SerializeToString()


def resource_message(attributes: Mapping[str, Any]) -> bytes:
    """Return a ``Resource`` message of values of type bool, int, float and text, and lists of them."""
    message = Resource()
    for name, value in attributes.items():
        _set(message.attributes.add(key=safe_text(name)).value, value)
    return bytes(message.SerializeToString())


def request_of(spans: Iterable[tuple[Origin, bytes]]) -> bytes:
    """Return an ``ExportTraceServiceRequest`` of ``Span`` messages, grouped by origin in the order of their first spans."""
    request = RequestSkeleton()
    resources: dict[tuple[bytes, str], Any] = {}
    scopes: dict[Origin, Any] = {}
    for origin, raw in spans:
        if origin not in scopes:
            key = origin.resource, origin.resource_schema
            if key not in resources:
                resources[key] = request.resource_spans.add(
                    resource=[origin.resource], schema_url=origin.resource_schema
                )
            scope_spans = resources[key].scope_spans.add(scope=[origin.scope], schema_url=origin.scope_schema)
            scopes[origin] = scope_spans.spans
        scopes[origin].append(raw)
    return bytes(request.SerializeToString())


def _rewrite(body: bytes) -> bytes:
    """Return a request in the form of the SDKs: unknown fields are removed, and split messages are joined."""
    request = RequestSkeleton.FromString(body)
    request.DiscardUnknownFields()
    for resource_spans in request.resource_spans:
        resource_spans.resource[:] = [b"".join(resource_spans.resource)]
        for scope_spans in resource_spans.scope_spans:
            scope_spans.scope[:] = [b"".join(scope_spans.scope)]
    return bytes(request.SerializeToString())


def _origin(resource: bytes, scope: bytes, resource_schema: str, scope_schema: str) -> Origin:
    is_small = len(resource) + len(scope) <= _CACHED_BYTES
    return (_cached_origin if is_small else _make_origin)(resource, scope, resource_schema, scope_schema)


def _make_origin(resource: bytes, scope: bytes, resource_schema: str, scope_schema: str) -> Origin:
    return Origin(resource, scope, InstrumentationScope.FromString(scope).name, resource_schema, scope_schema)


_cached_origin = lru_cache(_CACHED)(_make_origin)
"""Returns the same object for equal messages, so that their bytes are hashed once for all look-ups."""


def _decode_resource(resource: bytes) -> Mapping[str, Any]:
    return attributes_of_pairs(Resource.FromString(resource).attributes)


_cached_resource = lru_cache(_CACHED)(_decode_resource)


def _set(message: Any, value: Any) -> None:
    if isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        message.int_value = value
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, str):
        message.string_value = safe_text(value)
    else:
        for item in value:
            _set(message.array_value.values.add(), item)

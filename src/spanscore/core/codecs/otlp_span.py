"""Converts an OTLP ``Span`` to ``SpanData``, and a log record with prompts or answers to an event of its span."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from sys import getsizeof, intern
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore import semconv
from spanscore.core.codecs.sdk import STATUS, WireAttributes, exception_events, metadata_of
from spanscore.core.codecs.spring_ai import LOGGERS, content_in_log
from spanscore.core.span import SpanData

# --- otlp pairs -----------------------------------------------------------------------------------------------------

# An attribute of a span is a ``KeyValue`` message, called a pair here. Services send the same operation, model and names with
# every span, so decoded small pairs are cached. The other pairs are a few long texts, which are read without building a message
# for each.

_REMEMBERED, _SMALL_BYTES = 4_096, 128
"""Number of cached pairs, and of cached names of larger pairs; and the maximum size of a cached pair."""
_KEY, _VALUE, _TEXT = 0x0A, 0x12, 0x0A
"""The tags of ``KeyValue.key``, ``KeyValue.value`` and ``AnyValue.string_value``."""
_ONE_BYTE, _TWO_BYTES = 1 << 7, 1 << 14
"""Exclusive limits of lengths that are written in one byte and in two."""
_HEAD_BYTES = 6
"""Bytes before a text value: twice a tag and a length of two bytes."""


def _span_of_pairs() -> Any:
    file = FileDescriptorProto()
    Span.DESCRIPTOR.file.CopyToProto(file)
    fields = next(message.field for message in file.message_type if message.name == Span.DESCRIPTOR.name)
    attributes = next(field for field in fields if field.name == "attributes")
    attributes.type = FieldDescriptorProto.TYPE_BYTES
    attributes.ClearField("type_name")
    pool = DescriptorPool()  # a separate pool, because the shared one has the original message
    for needed in Span.DESCRIPTOR.file.dependencies:
        pool.AddSerializedFile(needed.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(Span.DESCRIPTOR.full_name))


SpanOfPairs: Final[Any] = _span_of_pairs()
"""``Span``, with bytes as each item of ``attributes``."""


def attributes_in(pairs: Iterable[bytes]) -> dict[str, Any]:
    """Return ``KeyValue`` messages, as bytes, as plain values; for a repeated key, the last one.

    The values must not be changed: those of small messages are cached.

    Raises:
        DecodeError: the bytes are not a ``KeyValue``.
        UnicodeDecodeError: a long text is not UTF-8.
    """
    return dict([_small(pair) if len(pair) <= _SMALL_BYTES else _large(pair) for pair in pairs])


def attributes_of_pairs(pairs: Iterable[Any]) -> dict[str, Any]:
    """Return ``KeyValue`` messages as plain values; for a repeated key, the last one."""
    return {pair.key: pair.value.string_value or _value(pair.value) for pair in pairs}  # most values are texts


def _large(pair: bytes) -> tuple[str, Any]:
    """Return name and value; without building a message for a text in the form of every SDK."""
    at = pair[1] + 2
    if pair.startswith(_text_head(len(pair) - at), at) and (name := _name(pair[:at])) is not None:
        return name, pair[at + _HEAD_BYTES :].decode()
    return _pair(pair)


@lru_cache(_REMEMBERED)
def _text_head(size: int) -> tuple[bytes, ...]:
    """Return the bytes before a text that ends after ``size`` bytes; nothing unless its length takes two bytes."""
    text, value = size - _HEAD_BYTES, size - _HEAD_BYTES // 2
    if text < _ONE_BYTE or value >= _TWO_BYTES:
        return ()
    return (bytes((_VALUE, value % _ONE_BYTE | _ONE_BYTE, value >> 7, _TEXT, text % _ONE_BYTE | _ONE_BYTE, text >> 7)),)


@lru_cache(_REMEMBERED)
def _name(key: bytes) -> str | None:
    """Return the name in the first field of a pair; None if the first field is another, or is longer."""
    return intern(str(key[2:], "utf-8")) if key[0] == _KEY and key[1] < _ONE_BYTE else None


def _pair(pair: bytes) -> tuple[str, Any]:
    message = KeyValue.FromString(pair)
    value = message.value
    return intern(message.key), value.string_value or _value(value)  # the name is used for many look-ups


_small = lru_cache(_REMEMBERED)(_pair)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    inner = getattr(value, kind)
    if kind == "array_value":
        return [_value(item) for item in inner.values]
    return attributes_of_pairs(inner.values) if kind == "kvlist_value" else inner


# --- otlp span ------------------------------------------------------------------------------------------------------

HAS_IS_REMOTE, IS_REMOTE = 0x100, 0x300
"""Bits of a span's flags: the flags state whether the parent is in another process; and it is (opentelemetry-proto 1.1)."""
_SAMPLED = 1
"""Only some SDKs send the W3C flags over OTLP; an exported span was sampled."""
_FLAGS = 0xFF
KINDS = ("internal", "internal", "server", "client", "producer", "consumer")
"""Span kinds by OTLP's number; 0 is "unspecified", which is read as internal."""


def span_data_of_message(span: Any, scope: str, resource: Mapping[str, Any]) -> SpanData:
    """Return a valid ``SpanOfPairs`` as ``SpanData``. An end before the start is replaced by the start.

    Raises:
        DecodeError: an attribute is invalid.
        UnicodeDecodeError: a long text is not UTF-8.
    """
    attributes, events = attributes_in(span.attributes[:]), span.events
    start_ns, parent_id, status, flags = span.start_time_unix_nano, span.parent_span_id, span.status.code, span.flags
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
        attributes=WireAttributes(attributes),
        metadata=metadata_of(attributes),
        trace_flags=flags & _FLAGS | _SAMPLED,
        trace_state=span.trace_state,
        resource=resource,
        failed_inside=attributes.get(semconv.RUN_STEP_ERROR) is True,
        parent_is_remote=flags & IS_REMOTE == IS_REMOTE if parent_id and flags & HAS_IS_REMOTE else None,
        events=(
            *([(event.name, attributes_of_pairs(event.attributes)) for event in events] if events else ()),
            *(exception_events(span.status.message) if status else ()),
        ),
    )


# --- log content ----------------------------------------------------------------------------------------------------

# Some instrumentations record prompts and answers in log records; older ones recorded them in events of the span. So a log
# record becomes an event of its span. Four forms are read:
#
# - ``gen_ai.client.inference.operation.details``, with the attribute names of spans;
# - the older family ``gen_ai.user.message`` … ``gen_ai.choice``, with a message as the body;
# - records of AWS's distribution, with the scope's name as the event name and a body of ``input`` and ``output`` with
#   ``messages``;
# - records of Spring AI's loggers, with a text as the body.

MAY_HOLD_CONTENT: Final = (b"gen_ai.", b"messages", LOGGERS.encode())
"""Each request with such a record contains one of these byte strings."""
_MESSAGES: Final = frozenset({*semconv.MESSAGE_EVENTS, semconv.CHOICE_EVENT})
_RECORD_BYTES: Final = 600
"""Memory of a record in addition to its event's attributes, bytes."""

Event = tuple[str, Mapping[str, Any]]
"""Name and attributes."""


class ContentRecord(NamedTuple):
    """Content of one span from a log record.

    Attributes:
        ids: trace id and span id.
        scope: instrumentation scope of the record.
        event: the content, as an event of the span.
        size: approximate bytes in memory.
    """

    ids: tuple[int, int]
    scope: str
    event: Event
    size: int


def content_in_logs(body: bytes) -> list[ContentRecord]:
    """Return the content in an ``ExportLogsServiceRequest``."""
    records = log_records(ExportLogsServiceRequest.FromString(body))
    contents = (content_of_record(record, scope, attributes_of_pairs(record.attributes)) for scope, record in records)
    return [content for content in contents if content is not None]


def log_records(request: Any) -> Iterator[tuple[str, Any]]:
    """Yield scope and record of each log record, except spanscore's own, whose content evaluation spans have, too."""
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            if scope_logs.scope.name != semconv.SCOPE:
                for record in scope_logs.log_records:
                    yield scope_logs.scope.name, record


def content_of_record(record: Any, scope: str, attributes: Mapping[str, Any]) -> ContentRecord | None:
    """Return the content in a ``LogRecord`` message, with its attributes as plain values; None without content or span id."""
    ids = int.from_bytes(record.trace_id), int.from_bytes(record.span_id)
    if not all(ids):
        return None
    body = attributes_of_pairs([*record.body.kvlist_value.values]) if record.body.HasField("kvlist_value") else None
    text = record.body.string_value
    return _content_of(ids, scope, record.event_name, attributes, text if body is None else body)


def content_of_sdk_record(record: Any, scope: str) -> ContentRecord | None:
    """Return the content in a log record of OpenTelemetry's SDK; None without content or span id."""
    ids = record.trace_id or 0, record.span_id or 0
    return _content_of(ids, scope, record.event_name, record.attributes or {}, record.body) if all(ids) else None


def _memory_of(value: Any) -> int:
    """Return the memory of a plain value in bytes: an empty map takes 64, and 4 on the wire."""
    items = value if isinstance(value, list | tuple) else ()
    parts = chain(value, value.values()) if isinstance(value, Mapping) else items
    return getsizeof(value) + sum(map(_memory_of, parts))


def _content_of(
    ids: tuple[int, int], scope: str, event_name: str | None, attributes: Mapping[str, Any], body: Any
) -> ContentRecord | None:
    name = event_name or attributes.get(semconv.EVENT_NAME)
    pairs = body if isinstance(body, Mapping) else {}
    sides = {side: pairs[side] for side in semconv.BODY_SIDES if isinstance(pairs.get(side), Mapping)}
    event: Event
    if name == semconv.DETAILS_EVENT:
        event = semconv.DETAILS_EVENT, {**attributes, **pairs}
    elif name in _MESSAGES:
        event = str(name), {**attributes, semconv.EVENT_CONTENT: body} if body else attributes
    elif name == scope and sides:
        event = semconv.DETAILS_EVENT, sides
    elif (printed := content_in_log(scope, body)) is not None:
        event = printed
    else:
        return None
    return ContentRecord(ids, scope, event, _RECORD_BYTES + _memory_of(event[1]))


def event_bytes(event: Event) -> bytes:
    """Return bytes that, appended to a span's bytes, add one event to the span; structures become JSON."""
    span = Span()
    message = span.events.add(name=event[0])
    for name, value in event[1].items():
        pair = message.attributes.add(key=name)
        pair.value.string_value = value if isinstance(value, str) else json.dumps(value, default=str)
    return bytes(span.SerializeToString())

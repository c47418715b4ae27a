"""Finds the position and the ids of each span in the bytes of an OTLP request, without decoding or copying the span.

Protobuf messages are read byte by byte here: a field is a tag, which has number and type, and a value; most values begin with
their length. The code is written for speed, because a receiver reads every span of every request, and scores few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, TypeVar

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from spanscore.core.codecs.otlp_span import IS_REMOTE

# --- skeleton -------------------------------------------------------------------------------------------------------

# An export request as protobuf, in which resources, scopes and spans stay bytes.
#
# The field numbers are those of opentelemetry-proto (``ExportTraceServiceRequest``, ``ResourceSpans``, ``ScopeSpans``,
# ``Span``). A field that is one message in opentelemetry-proto is repeated bytes in this skeleton, so that a field that occurs
# twice is not lost. Callers join the bytes, which has the same effect as protobuf's merging of the two messages.

_BYTES, _TEXT, _FIXED32, _FIXED64 = (
    FieldDescriptorProto.TYPE_BYTES,
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_FIXED32,
    FieldDescriptorProto.TYPE_FIXED64,
)
_ONE, _MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
_PACKAGE = "spanscore.skeleton"

# Message → its fields: number, name, label, type, or the name of another message.
_MESSAGES: dict[str, list[tuple[int, str, FieldDescriptorProto.Label.ValueType, Any]]] = {
    "Request": [(1, "resource_spans", _MANY, "ResourceSpans")],
    "ResourceSpans": [
        (1, "resource", _MANY, _BYTES),
        (2, "scope_spans", _MANY, "ScopeSpans"),
        (3, "schema_url", _ONE, _TEXT),
    ],
    "ScopeSpans": [(1, "scope", _MANY, _BYTES), (2, "spans", _MANY, _BYTES), (3, "schema_url", _ONE, _TEXT)],
    "SpanHead": [
        (1, "trace_id", _ONE, _BYTES),
        (2, "span_id", _ONE, _BYTES),
        (3, "trace_state", _ONE, _BYTES),
        (4, "parent_span_id", _ONE, _BYTES),
        (7, "start_time_unix_nano", _ONE, _FIXED64),
        (8, "end_time_unix_nano", _ONE, _FIXED64),
        (16, "flags", _ONE, _FIXED32),
    ],
}


def _skeleton_file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="spanscore/skeleton.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, label, kind in fields:
            added = message.field.add(number=number, name=field, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kind
    return file


_POOL = DescriptorPool()  # a separate pool, because the shared one has the whole messages
_POOL.AddSerializedFile(_skeleton_file().SerializeToString())

RequestSkeleton: Final[Any] = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.Request"))
"""``ExportTraceServiceRequest`` with spans as bytes."""
SpanHead: Final[Any] = GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.SpanHead"))
"""The ids, flags and times of a ``Span``."""


# --- ids of a span --------------------------------------------------------------------------------------------------

# SDKs write the fields of a span in order, ids first. The Collector (0.159) writes them in reverse, so that a span ends with
# flags, parent id, span id and trace id. At these positions ids are read without decoding the span. ``decode_span`` reads spans
# in another form.
#
# The bytes of a span in its ``ScopeSpans``, as SDKs write it (sizes in parentheses; a root has no parent id):
#
# 12 length | 0A 10 trace id (16) | 12 08 span id (8) | 22 08 parent id (8) | 2A length name | 30 kind | 39 start (8) |
# 41 end (8) | other fields | 85 01 flags (4)

_ROW = Struct(">5s16sH8sH8s").unpack_from
"""Reads a span in its ``ScopeSpans``: tag and length of the span, and its three ids with their tags."""
_FRONT = Struct(">H16sH8sH8s").unpack_from
"""Reads the three ids at the beginning of a span, in the order of the SDKs."""
_END = Struct(">H8sH8sH16s").unpack_from
"""Reads the three ids at the end of a span, in the order of the Collector."""
_NAMED = Struct(">BxB8xB8x").unpack_from
"""Reads the tags of kind, start and end, which follow the name."""
_FIRST_FIELD, _SECOND_FIELD, _SCHEMA = 0x0A, 0x12, 0x1A
"""Tags of fields 1 to 3 of a message above the spans, each with a length: field 2 of a ``ScopeSpans`` is a span, field 3 is the
schema's URL.
"""
_ANOTHER_BYTE: Final = 0x80
"""Bit of a byte of a number, such as a length: another byte follows."""
_IDS_SIZE, _FLAGS_SIZE, _READ_SIZE = 38, 6, 44
"""Number of bytes of the three ids, of the flags, and of both together, with tags and lengths."""
_FIRST_TAG, _SECOND_TAG, _THIRD_TAG = 0x0A10, 0x1208, 0x2208
"""Tags of the trace id, the span id and the parent id, each with its length."""
_FIRST: Final = _FIRST_TAG.to_bytes(2)
_PARENT: Final = _THIRD_TAG.to_bytes(2)
_NAME_AT: Final = 28
"""Position of the name's tag in a span without parent and tracestate."""
_NAME: Final = 0x2A
"""Tag of the name."""
_NAMED_SIZE: Final = 20
"""Number of bytes of kind, start and end, which follow the name, with their tags."""
_KIND_SIZE, _PARENT_SIZE = 2, 10
"""Number of bytes of the kind and of the parent id, with tags and lengths."""
TIMES_SIZE: Final = _NAMED_SIZE - _KIND_SIZE
"""Bytes of a span's start and end with their tags."""
_KIND_AND_TIMES: Final = (0x30, 0x39, 0x41)
"""The tags after the name: a kind of one byte, start and end."""
_ROW_SIZE: Final = 47
"""Minimum number of bytes of a span with its tag, a length of two bytes, three ids and flags."""
_TOO_FAR: Final = 1 << 40
"""Number of bytes beyond any request."""
_FLAG: Final = 0x85
"""First byte of the tag of the flags."""
_REMOTE_BIT: Final = 2
"""Bit in the second byte of the flags' value; set only if the parent is known to be remote."""
_LOCAL_FLAGS: Final = frozenset(
    bytes((_FLAG, 1, trace, has_is_remote, 0, 0)) for trace in range(4) for has_is_remote in (0, 1)
)
"""Last bytes of a span without a parent that is known to be remote; ``trace`` are the W3C flags, two of which are defined."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_NONE: Final = frozenset({_NO_TRACE, _NO_SPAN})
"""Invalid ids. Ids are hashed sooner or later, so a set look-up costs less than comparisons."""
_UNREADABLE: Final = "a span that cannot be read"


class _Strides(dict[bytes, int]):
    """A cache of decoded lengths: the first five bytes of a span in the SDKs' form → number of bytes to the next span.

    The five bytes are the tag, two length bytes, and tag and length of the trace id. An entry is added for each length that
    occurs, 16,340 at most.
    """

    def __missing__(self, begin: bytes) -> int:
        """Return the distance to the next span.

        Return ``_TOO_FAR`` if the length has not two bytes, the span is too short, or it does not begin with its trace id.
        """
        tag, low, high, *first = begin
        size = low + _ANOTHER_BYTE * high - _ANOTHER_BYTE
        if tag != _SECOND_FIELD or not high < _ANOTHER_BYTE <= low or bytes(first) != _FIRST or size < _READ_SIZE:
            return _TOO_FAR
        self[begin] = size + 3
        return size + 3


_STRIDES: Final = _Strides()

SpanPlace = tuple[bytes, bytes, bytes, bool, int, int, bytes | None]
"""Ids and position of one valid span in the body of its request. A plain tuple, because one is built and read for every span.

Items: trace id, span id, parent id (empty without a parent), whether the parent is known to be remote, start and end of the
message in the body, and the W3C ``tracestate`` (None if it was not read).
"""


def read_row(body: bytes, at: int, end: int, into: list[SpanPlace]) -> int:
    """Append consecutive spans in the form that SDKs write most often; return the position of the first span in another form.

    Nearly every span is read here. ``read_in_place`` does the same for one span, in more readable code.
    """
    strides, last, trace, parent = _STRIDES, end - _ROW_SIZE, b"", b""
    while at <= last:
        begin, trace_id, second, span_id, third, parent_id = _ROW(body, at)
        stop = at + strides[begin]
        if second != _SECOND_TAG or stop > end or body[stop - _FLAGS_SIZE : stop] not in _LOCAL_FLAGS:
            break
        state = None  # not read
        if third != _THIRD_TAG:
            if _may_have_parent(body, at + 3, stop):
                break
            parent_id = state = b""
        if trace_id != trace:  # consecutive spans mostly share a trace id, which is then checked and hashed only once
            if trace_id in _NONE:
                break
            trace = trace_id
        if parent_id != parent:
            if parent_id in _NONE:
                break
            parent = parent_id
        if span_id in _NONE:
            break
        into.append((trace, span_id, parent, False, at + 3, stop, state))
        at = stop
    return at


def read_in_place(body: bytes, start: int, end: int) -> SpanPlace | None:
    """Return a span with its ids at their expected positions, and without a remote parent; None for every other span."""
    if end - start < _READ_SIZE:
        return None
    first, trace_id, second, span_id, third, parent_id = _FRONT(body, start)
    flags = end - _FLAGS_SIZE
    if first != _FIRST_TAG:
        third, parent_id, second, span_id, first, trace_id = _END(body, end - _IDS_SIZE)
        flags -= _IDS_SIZE
    if first != _FIRST_TAG or second != _SECOND_TAG or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    if third != _THIRD_TAG:
        return _root_in_place(body, start, end, trace_id, span_id)
    if body[flags] == _FLAG and body[flags + 1] == 1:
        may_be_remote = body[flags + 3] & _REMOTE_BIT != 0
    else:  # the flags are absent, or at another position
        may_be_remote = body.find(_FLAG, start, end) >= 0
    if may_be_remote or parent_id == _NO_SPAN:
        return None
    return trace_id, span_id, parent_id, False, start, end, None


def _root_in_place(body: bytes, start: int, end: int, trace_id: bytes, span_id: bytes) -> SpanPlace | None:
    if body[start : start + len(_FIRST)] != _FIRST or _may_have_parent(body, start, end):
        return None  # also for a root whose ids come last (the Collector's order)
    return trace_id, span_id, b"", False, start, end, b""


def _may_have_parent(body: bytes, start: int, end: int) -> bool:
    """Return whether a span may have a parent or a tracestate: not if its name directly follows trace id and span id."""
    # Kind and times must follow the name: then the fields are in order, and neither parent nor tracestate comes later. As a
    # safeguard, the bytes of the parent's tag must not occur later.
    kind_at = _kind_after_name(body, start + _NAME_AT, end)
    return kind_at < 0 or body.find(_PARENT, kind_at, end) >= 0


def _kind_after_name(body: bytes, at: int, end: int) -> int:
    """Return the position of kind, start and end; -1 unless the name is at this position and these three follow it."""
    length = body[at + 1]
    kind_at = at + 2 + length
    is_name = body[at] == _NAME and length < _ANOTHER_BYTE and kind_at + _NAMED_SIZE <= end
    return kind_at if is_name and _NAMED(body, kind_at) == _KIND_AND_TIMES else -1


def times_in(body: bytes, start: int, end: int) -> bytes:
    """Return the bytes of the start and end fields of a span that was read; empty if the span has neither."""
    name_at = start + _NAME_AT
    if body[name_at] == _PARENT[0]:
        name_at += _PARENT_SIZE
    kind_at = _kind_after_name(body, name_at, end)
    if kind_at >= 0:
        return body[kind_at + _KIND_SIZE : kind_at + _NAMED_SIZE]
    head = SpanHead.FromString(body[start:end])
    times = SpanHead(start_time_unix_nano=head.start_time_unix_nano, end_time_unix_nano=head.end_time_unix_nano)
    return bytes(times.SerializeToString())


def decode_span(body: bytes, start: int, end: int) -> SpanPlace | str:
    """Return a span with its ids at any position, or the error of an invalid span, which quotes no content."""
    try:
        head = SpanHead.FromString(body[start:end])
    except DecodeError:
        return _UNREADABLE
    trace_id, span_id, parent_id = head.trace_id, head.span_id, head.parent_span_id
    if error := _id_error(trace_id, span_id, parent_id) if start < end else _UNREADABLE:
        return error
    if parent_id == _NO_SPAN:
        parent_id = b""
    is_remote = bool(parent_id) and head.flags & IS_REMOTE == IS_REMOTE
    return trace_id, span_id, parent_id, is_remote, start, end, head.trace_state


def _id_error(trace_id: bytes, span_id: bytes, parent_id: bytes) -> str | None:
    if len(trace_id) != len(_NO_TRACE):
        return "a trace id that is not 16 bytes"
    if len(span_id) != len(_NO_SPAN):
        return "a span id that is not 8 bytes"
    if len(parent_id) not in (0, len(_NO_SPAN)):
        return "a parent's id that is not 8 bytes"
    if trace_id == _NO_TRACE:
        return "a trace id of zeros"
    return "a span id of zeros" if span_id == _NO_SPAN else None


# --- spans of a request ---------------------------------------------------------------------------------------------

_LONGEST: Final = 5
"""Maximum number of bytes of a length: protobuf has none of more than 2 GiB."""

T = TypeVar("T")
_Place = tuple[int, int]


def scan_request(
    body: bytes, rejected: dict[str, int], make_origin: Callable[[bytes, bytes, str, str], T]
) -> list[tuple[T, Sequence[SpanPlace]]] | None:
    """Return the origin and the places of the valid spans of each ``ScopeSpans`` in an ``ExportTraceServiceRequest``.

    Return None if a message has an unknown field, repeats a field that should occur once, or is invalid: protobuf must read
    such a request.

    Args:
        rejected: receives error → number of invalid spans.
        make_origin: makes an origin of the ``Resource`` and the ``InstrumentationScope``, as bytes, and their schema URLs,
            empty without one.
    """
    scopes: list[tuple[T, Sequence[SpanPlace]]] = []
    request = _fields(body, 0, len(body))
    if request is None or request[1] or request[2]:
        return None
    for start, end in request[0]:
        resource_spans = _fields(body, start, end)
        if resource_spans is None or len(resource_spans[0]) > 1:
            return None
        resources, scope_places, resource_schema = resource_spans
        for place in scope_places:
            spans: list[SpanPlace] = []
            scope_spans = _fields(body, *place, partial(_read_spans, spans, rejected))
            if scope_spans is None or len(scope_spans[0]) > 1:
                return None
            resource, scope = _bytes_at(body, resources), _bytes_at(body, scope_spans[0])
            scopes.append((make_origin(resource, scope, resource_schema, scope_spans[2]), spans))
    return scopes


_Fields = tuple[list[_Place], list[_Place], str]
"""Positions of fields 1 and 2 of a message, and field 3, the schema URL. A plain tuple, because each request builds some."""


def _fields(body: bytes, at: int, end: int, read: Callable[[bytes, int, int], int] | None = None) -> _Fields | None:
    """Return the fields of a message above the spans: a request, a ``ResourceSpans`` or a ``ScopeSpans``.

    None if the message has another field, a field exceeds it, or the schema URL is repeated or not UTF-8. ``read`` reads
    consecutive fields 2 and returns their end, -1 for an invalid field; their positions are then left out of the result.
    """
    first: list[_Place] = []
    second: list[_Place] = []
    schemas: list[_Place] = []
    while at < end:
        tag = body[at]
        if tag == _SECOND_FIELD and read is not None:
            at = read(body, at, end)
            if at < 0:
                return None
            continue
        start, at = _field(body, at, end)
        if at < 0:
            return None
        if tag == _SECOND_FIELD:
            second.append((start, at))
        elif tag == _FIRST_FIELD:
            first.append((start, at))
        elif tag == _SCHEMA and not schemas:
            schemas.append((start, at))
        else:
            return None
    if not schemas:
        return first, second, ""
    try:
        return first, second, _bytes_at(body, schemas).decode()
    except UnicodeDecodeError:
        return None


def _read_spans(into: list[SpanPlace], rejected: dict[str, int], body: bytes, at: int, end: int) -> int:
    """Read consecutive spans; return the position of the first other field, -1 if a span exceeds its message."""
    while (at := read_row(body, at, end, into)) < end and body[at] == _SECOND_FIELD:
        if at + 2 < end and body[at + 1] >= _ANOTHER_BYTE > body[at + 2]:  # a length of two bytes, as most spans have
            start, at = at + 3, at + 3 + (body[at + 1] & 0x7F | body[at + 2] << 7)
        else:
            start, at = _field(body, at, end)
        if not start <= at <= end:
            return -1
        place = read_in_place(body, start, at) or decode_span(body, start, at)
        if isinstance(place, str):
            rejected[place] = rejected.get(place, 0) + 1
        else:
            into.append(place)
    return at


def _field(body: bytes, at: int, end: int) -> _Place:
    """Return begin and end of the value of the field at ``at``, after its tag and length; the end is -1 if it is invalid."""
    size, start = 0, at + 1
    for number, byte in enumerate(body[start : min(end, start + _LONGEST)]):
        size |= (byte & 0x7F) << 7 * number
        if byte < _ANOTHER_BYTE:
            start += number + 1
            return start, start + size if start + size <= end else -1
    return start, -1


def _bytes_at(body: bytes, places: Sequence[_Place]) -> bytes:
    if not places:
        return b""
    start, end = places[0]
    return body[start:end]

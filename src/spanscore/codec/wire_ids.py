"""The bytes of a span, in the body of its request → its ids, read where they are expected; else it is decoded as far as them.

SDKs write the fields of a span in order, ids first; the Collector (0.159) writes them from the end, ids last.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from spanscore.codec.otlp_span import IS_REMOTE
from spanscore.codec.skeleton import SpanHead

__all__ = ["TIMES_SIZE", "SpanPlace", "decoded", "in_place", "read_row", "times_in"]

_ROW = Struct(">5s16sH8sH8s").unpack_from
_FRONT = Struct(">H16sH8sH8s").unpack_from
_END = Struct(">H8sH8sH16s").unpack_from
_NAMED = Struct(">BxB8xB8x").unpack_from
_IDS_SIZE, _FLAGS_SIZE, _READ_SIZE = 38, 6, 44
_FIRST_TAG, _SECOND_TAG, _THIRD_TAG = 0x0A10, 0x1208, 0x2208
"""Of the trace's id, the span's and its parent's, each with its right length."""
_FIRST: Final = _FIRST_TAG.to_bytes(2)
_PARENT: Final = _THIRD_TAG.to_bytes(2)
_NAME_AT, _NAME, _NAMED_SIZE = 28, 0x2A, 20
_KIND_SIZE, _PARENT_SIZE = 2, 10
TIMES_SIZE: Final = _NAMED_SIZE - _KIND_SIZE
"""Bytes of a span's start and end with their tags."""
_KIND_AND_TIMES: Final = (0x30, 0x39, 0x41)
"""The tags behind the name: a kind, of one byte, start and end."""
_ROW_SIZE, _SPAN_TAG, _MORE = 47, 0x12, 0x80
"""Of a span with its own tag, and its length in two bytes as most have it; the first of them says that another one follows."""
_TOO_FAR: Final = 1 << 40
"""Bytes: more than a request has."""
_FLAG, _REMOTE_BIT = 0x85, 2
"""The first byte of the flags' tag; of their own second one what is set only where the parent is known to be remote."""
_LOCAL_FLAGS: Final = frozenset(bytes((_FLAG, 1, trace, told, 0, 0)) for trace in range(4) for told in (0, 1))
"""What a span ends with whose parent is not known to be remote; ``trace`` are the W3C flags, of which two have a meaning."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_NONE: Final = frozenset({_NO_TRACE, _NO_SPAN})
"""Of ids, which are hashed sooner or later: looked up they cost less than compared."""
_UNREADABLE: Final = "a span that cannot be read"


class _Steps(dict[bytes, int]):
    """How such a span begins, up to its trace's id → bytes to the next one; of the lengths that were seen, 16,256 at most."""

    def __missing__(self, begin: bytes) -> int:
        """Further than any request goes where none begins so: it is to be long enough, and its trace's id is to come first."""
        tag, low, high, *first = begin
        size = low + _MORE * high - _MORE
        if tag != _SPAN_TAG or not high < _MORE <= low or bytes(first) != _FIRST or size < _READ_SIZE:
            return _TOO_FAR
        self[begin] = size + 3
        return size + 3


_STEPS: Final = _Steps()

SpanPlace = tuple[bytes, bytes, bytes, bool, int, int, bytes | None]
"""Where one valid span stands in the body of its request; a plain tuple, as it is made and taken apart for every span.

The first four are those of ``WireSpan``; then start and end of its message, and the W3C ``tracestate``, None where that was not
read.
"""


def read_row(body: bytes, at: int, end: int, into: list[SpanPlace]) -> int:
    """Read spans that stand one after another as SDKs write most of them; return where one does not.

    The way that nearly every span takes, so it is written for speed; ``in_place`` and ``decoded`` say what it is about.
    """
    steps, last, trace, parent = _STEPS, end - _ROW_SIZE, b"", b""
    while at <= last:
        begin, trace_id, second, span_id, third, parent_id = _ROW(body, at)
        stop = at + steps[begin]
        if second != _SECOND_TAG or stop > end or body[stop - _FLAGS_SIZE : stop] not in _LOCAL_FLAGS:
            break
        state = None
        if third != _THIRD_TAG:
            parent_id = state = _no_parent(body, at + 3, stop)
        if trace_id != trace:  # of neighbours they are mostly the same, and are hashed once
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


def in_place(body: bytes, start: int, end: int) -> SpanPlace | None:
    """Return a span with no parent, or one in the same process, whose ids are where they are expected; None where not."""
    if end - start < _READ_SIZE:
        return None
    first, trace_id, second, span_id, third, parent_id = _FRONT(body, start)
    flags = end - _FLAGS_SIZE
    if first != _FIRST_TAG:
        third, parent_id, second, span_id, first, trace_id = _END(body, end - _IDS_SIZE)
        flags -= _IDS_SIZE
    if first != _FIRST_TAG or second != _SECOND_TAG:
        return None
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    if third != _THIRD_TAG:
        return _root_in_place(body, start, end, trace_id, span_id)
    is_told = body[flags] == _FLAG and body[flags + 1] == 1
    if body[flags + 3] & _REMOTE_BIT if is_told else body.find(_FLAG, start, end) >= 0:
        return None
    return None if parent_id == _NO_SPAN else (trace_id, span_id, parent_id, False, start, end, None)


def _root_in_place(body: bytes, start: int, end: int, trace_id: bytes, span_id: bytes) -> SpanPlace | None:
    if body[start : start + len(_FIRST)] != _FIRST or _no_parent(body, start, end):  # or its ids come last
        return None
    return trace_id, span_id, b"", False, start, end, b""


def _no_parent(body: bytes, start: int, end: int) -> bytes:
    """Return nothing for a span of whose parent and tracestate there is nothing, as its name follows its ids; else zeros.

    Its kind and times are to follow the name: then the fields are in order, and neither comes later.
    """
    length = body[start + _NAME_AT + 1]
    named = start + _NAME_AT + 2 + length
    if body[start + _NAME_AT] != _NAME or length >= _MORE or named + _NAMED_SIZE > end:
        return _NO_SPAN
    if _NAMED(body, named) != _KIND_AND_TIMES or body.find(_PARENT, named, end) >= 0:
        return _NO_SPAN
    return b""


def times_in(body: bytes, start: int, end: int) -> bytes:
    """Return the fields of a span that hold its start and its end, as they are in its bytes; empty if they are elsewhere.

    Args:
        body: the request.
        start: where a span that was read begins in it.
        end: where the span ends.
    """
    at = start + _NAME_AT
    if body[at] == _PARENT[0]:
        at += _PARENT_SIZE
    length = body[at + 1]
    named = at + 2 + length
    if body[at] != _NAME or length >= _MORE or named + _NAMED_SIZE > end or _NAMED(body, named) != _KIND_AND_TIMES:
        return _times_anywhere(body[start:end])
    return body[named + _KIND_SIZE : named + _NAMED_SIZE]


def _times_anywhere(raw: bytes) -> bytes:
    """As `times_in`, if the fields are in another order."""
    head = SpanHead.FromString(raw)
    times = SpanHead(start_time_unix_nano=head.start_time_unix_nano, end_time_unix_nano=head.end_time_unix_nano)
    return bytes(times.SerializeToString())


def decoded(body: bytes, start: int, end: int) -> SpanPlace | str:
    """Return a span wherever its ids are, or why it is not valid, which quotes nothing of it."""
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

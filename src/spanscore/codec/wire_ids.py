"""The bytes of a span, in the body of its request → its ids, read where they are expected; else it is decoded as far as them.

SDKs write the fields of a span in order, ids first; the Collector (0.159) writes them from the end, ids last.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from google.protobuf.message import DecodeError

from spanscore.codec.otlp_span import IS_REMOTE
from spanscore.codec.skeleton import SpanHead

__all__ = ["SpanPlace", "decoded", "in_place", "read_row"]

_ROW = Struct(">BBBH16sH8sH8s").unpack_from
_LAST = Struct("<HI").unpack_from
_FRONT = Struct(">H16sH8sH8s").unpack_from
_END = Struct(">H8sH8sH16s").unpack_from
_IDS_SIZE, _FLAGS_SIZE, _READ_SIZE = 38, 6, 44
_FIRST_TAG, _SECOND_TAG, _THIRD_TAG = 0x0A10, 0x1208, 0x2208
"""Of the trace's id, the span's and its parent's, each with its right length."""
_ROW_SIZE, _SPAN_TAG, _MORE = 47, 0x12, 0x80
"""Of a span with its own tag, and its length in two bytes as most have it; the first of them says that another one follows."""
_FLAGS_TAG, _REMOTE = 0x0185, 0x200
_FLAG, _REMOTE_BIT = 0x85, 2
"""The first byte of the flags' tag; of their own second one what is set only where the parent is known to be remote."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_UNREADABLE: Final = "a span that cannot be read"

SpanPlace = tuple[bytes, bytes, bytes, bool, int, int, bytes | None]
"""Where one valid span stands in the body of its request; a plain tuple, as it is made and taken apart for every span.

The first four are those of ``WireSpan``; then start and end of its message, and the W3C ``tracestate``, None where that was not
read.
"""


def read_row(body: bytes, at: int, end: int, into: list[SpanPlace]) -> int:
    """Read spans that stand one after another as SDKs write most of them; return where one does not.

    The way that nearly every span takes, so it is written for speed (CPython adds small numbers faster than it shifts them);
    ``in_place`` and ``decoded`` say what it is about.
    """
    last = end - _ROW_SIZE
    while at <= last:
        tag, low, high, first, trace_id, second, span_id, third, parent_id = _ROW(body, at)
        start = at + 3
        stop = start + low + 128 * high - 128
        if tag != _SPAN_TAG or first != _FIRST_TAG or second != _SECOND_TAG or third != _THIRD_TAG:
            break
        if not (high < _MORE <= low and start + _READ_SIZE <= stop <= end):
            break
        flag, flags = _LAST(body, stop - _FLAGS_SIZE)
        if flag != _FLAGS_TAG or flags & _REMOTE:
            break
        if trace_id == _NO_TRACE or _NO_SPAN in (span_id, parent_id):
            break
        into.append((trace_id, span_id, parent_id, False, start, stop, None))
        at = stop
    return at


def in_place(body: bytes, start: int, end: int) -> SpanPlace | None:
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

"""A request as SDKs write it → where its messages stand in it: nothing is copied, and of a span its ids alone are looked at.

Anything else (fields that we do not know, or that come twice though there is one of them) is for protobuf to make sense of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from spanscore.codec.wire_ids import SpanPlace, decoded, in_place, read_row

__all__ = ["ScopePlace", "walked"]

_FIRST, _SECOND, _SCHEMA = 0x0A, 0x12, 0x1A
"""Tags of fields 1 to 3, each of which has a length; 3 is the schema's URL."""
_MORE: Final = 0x80
"""Of a byte of a number: another one follows."""
_LONGEST: Final = 5
"""Bytes of a length: protobuf has none of more than 2 GiB."""

_Place = tuple[int, int]


class ScopePlace(NamedTuple):
    """One ``ScopeSpans``.

    Attributes:
        resource: the message, as bytes.
        scope: likewise.
        resource_schema: URL; empty where there is none.
        scope_schema: likewise.
        spans: those that are valid, in their order.
    """

    resource: bytes
    scope: bytes
    resource_schema: str
    scope_schema: str
    spans: Sequence[SpanPlace]


def walked(body: bytes, rejected: dict[str, int]) -> list[ScopePlace] | None:
    """Return what an ``ExportTraceServiceRequest`` is of; None where it is not as SDKs write it, or is none.

    Args:
        body: the request.
        rejected: is told what is wrong → how many spans are not valid for it.
    """
    found: list[ScopePlace] = []
    request = _parts(body, 0, len(body))
    if request is None or request[1] or request[2]:
        return None
    for start, end in request[0]:
        of = _parts(body, start, end)
        if of is None or len(of[0]) > 1:
            return None
        resource = _message(body, of[0])
        for scope_start, scope_end in of[1]:
            spans: list[SpanPlace] = []
            scope = _parts(body, scope_start, scope_end, partial(_spans, spans, rejected))
            if scope is None or len(scope[0]) > 1:
                return None
            found.append(ScopePlace(resource, _message(body, scope[0]), of[2], scope[2], spans))
    return found


_Parts = tuple[list[_Place], list[_Place], str]
"""Where first and second fields stand, and the third; a plain tuple, as some are made for each request."""


def _parts(body: bytes, at: int, end: int, read: Callable[[bytes, int, int], int] | None = None) -> _Parts | None:
    """Return where the fields of a message stand; None where there are others than the three, or they do not end with it.

    Args:
        read: reads second fields that come one after another, and returns where they end; then they are not returned.
    """
    first: list[_Place] = []
    second: list[_Place] = []
    schemas: list[_Place] = []
    while at < end:
        tag = body[at]
        if tag == _SECOND and read is not None:
            at = read(body, at, end)
            if at < 0:
                return None
            continue
        size, start = _length(body, at + 1, end)
        at = start + size
        if not start <= at <= end:
            return None
        if tag == _SECOND:
            second.append((start, at))
        elif tag == _FIRST:
            first.append((start, at))
        elif tag == _SCHEMA and not schemas:
            schemas.append((start, at))
        else:
            return None
    if not schemas:
        return first, second, ""
    schema = _text(_message(body, schemas))
    return None if schema is None else (first, second, schema)


def _spans(into: list[SpanPlace], rejected: dict[str, int], body: bytes, at: int, end: int) -> int:
    """Read spans that stand one after another; return where something else does, -1 where one does not end with its message."""
    while (at := read_row(body, at, end, into)) < end and body[at] == _SECOND:
        if at + 2 < end and body[at + 1] >= _MORE > body[at + 2]:  # a length as most spans have
            start, at = at + 3, at + 3 + (body[at + 1] & 0x7F | body[at + 2] << 7)
        else:
            size, start = _length(body, at + 1, end)
            at = start + size
        if not start <= at <= end:
            return -1
        place = in_place(body, start, at) or decoded(body, start, at)
        if isinstance(place, str):
            rejected[place] = rejected.get(place, 0) + 1
        else:
            into.append(place)
    return at


def _length(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the length that stands there, and what comes after it; -1 where there is none."""
    if at + 3 <= end:  # of three bytes at most, as nearly all are
        low, high, last = body[at : at + 3]
        if low < _MORE:
            return low, at + 1
        if high < _MORE:
            return low & 0x7F | high << 7, at + 2
        if last < _MORE:
            return low & 0x7F | (high & 0x7F) << 7 | last << 14, at + 3
    size = 0
    for number, byte in enumerate(body[at : min(end, at + _LONGEST)]):
        size |= (byte & 0x7F) << 7 * number
        if byte < _MORE:
            return size, at + number + 1
    return -1, at


def _message(body: bytes, places: Sequence[_Place]) -> bytes:
    return body[slice(*places[0])] if places else b""


def _text(message: bytes) -> str | None:
    try:
        return message.decode()
    except UnicodeDecodeError:
        return None

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
_SDKS, _COLLECTORS = (_FIRST, _SECOND), (_SECOND, _FIRST)
"""How resource and scopes stand in a ``ResourceSpans``."""
_MORE: Final = 0x80
"""Of a byte of a number: another one follows."""
_TWO_MORE: Final = _MORE + (_MORE << 7)
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
    whole = _one_scope(body, rejected)
    if whole is not None:
        return [whole]
    rejected.clear()
    return _any_scopes(body, rejected)


def _one_scope(body: bytes, rejected: dict[str, int]) -> ScopePlace | None:
    """Return what a request of one scope is of, as nearly all are; None where it is not, or anything else stands in it.

    SDKs write the resource and the scope before what is theirs, the Collector after it.
    """
    size = len(body)
    start, end = _field(body, 0, size)
    if end != size or body[0] != _FIRST:
        return None
    first = _field(body, start, size)
    if first[1] < 0:
        return None
    second = _field(body, first[1], size)
    if second[1] != size:
        return None
    tags = body[start], body[first[1]]
    if tags == _SDKS:
        resource, inner = first, second
    elif tags == _COLLECTORS:
        inner, resource = first, second
    else:
        return None
    return _scope(body, body[resource[0] : resource[1]], "", inner, rejected)


def _scope(body: bytes, resource: bytes, schema: str, place: _Place, rejected: dict[str, int]) -> ScopePlace | None:
    """Return one ``ScopeSpans``, whose spans are read; None where anything else stands in it."""
    spans: list[SpanPlace] = []
    of = _parts(body, *place, partial(_spans, spans, rejected))
    return None if of is None or len(of[0]) > 1 else ScopePlace(resource, _message(body, of[0]), schema, of[2], spans)


def _any_scopes(body: bytes, rejected: dict[str, int]) -> list[ScopePlace] | None:
    found: list[ScopePlace] = []
    request = _parts(body, 0, len(body))
    if request is None or request[1] or request[2]:
        return None
    for start, end in request[0]:
        of = _parts(body, start, end)
        if of is None or len(of[0]) > 1:
            return None
        resource = _message(body, of[0])
        for place in of[1]:
            scope = _scope(body, resource, of[2], place, rejected)
            if scope is None:
                return None
            found.append(scope)
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
        start, at = _field(body, at, end)
        if at < 0:
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
            start, at = _field(body, at, end)
        if not start <= at <= end:
            return -1
        place = in_place(body, start, at) or decoded(body, start, at)
        if isinstance(place, str):
            rejected[place] = rejected.get(place, 0) + 1
        else:
            into.append(place)
    return at


def _field(body: bytes, at: int, end: int) -> _Place:
    """Return where the field there begins, behind its tag and length, and ends; an end of -1 where there is none."""
    if at + 4 > end:
        return _long_field(body, at, end)
    low = body[at + 1]
    if low < _MORE:
        start = at + 2
        stop = start + low
    elif (high := body[at + 2]) < _MORE:
        start = at + 3
        stop = start + low - _MORE + (high << 7)
    elif (last := body[at + 3]) < _MORE:
        start = at + 4
        stop = start + low + (high << 7) + (last << 14) - _TWO_MORE
    else:
        return _long_field(body, at, end)
    return start, stop if stop <= end else -1


def _long_field(body: bytes, at: int, end: int) -> _Place:
    """As ``_field``, whatever its length."""
    size, start = 0, at + 1
    for number, byte in enumerate(body[start : min(end, start + _LONGEST)]):
        size |= (byte & 0x7F) << 7 * number
        if byte < _MORE:
            start += number + 1
            return start, start + size if start + size <= end else -1
    return start, -1


def _message(body: bytes, places: Sequence[_Place]) -> bytes:
    if not places:
        return b""
    start, end = places[0]
    return body[start:end]


def _text(message: bytes) -> str | None:
    try:
        return message.decode()
    except UnicodeDecodeError:
        return None

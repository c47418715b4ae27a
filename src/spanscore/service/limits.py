"""Limits of a request: how long it may take to come, and bytes that its body inflates to, counted while it does."""

from __future__ import annotations

from typing import Final

from spanscore.service.zlib_ng import InflateError, inflater

__all__ = ["FIRST_BYTE_S", "GZIP_MAGIC", "READ_S", "STOP_S", "NotCompressedError", "TooLargeError", "gunzipped"]

READ_S: Final = 30.0
"""For a whole request, from its first byte on: exporters themselves give up after 10 s."""
FIRST_BYTE_S: Final = 5.0
"""For the first byte of a connection on which no request with the token has come: exporters send at once."""
STOP_S: Final = 5
"""For what has come to be answered, when nothing new is accepted any more."""
GZIP_MAGIC: Final = b"\x1f\x8b"
_MOST_PARTS: Final = 16
"""Of a gzip body: each costs a copy of what follows, so 16 MB of empty ones would take minutes. Exporters write one."""


class TooLargeError(ValueError):
    """A body inflates to more than is taken."""


class NotCompressedError(ValueError):
    """A body is said to be gzip and is none, is cut short, or is of too many parts."""


def gunzipped(body: bytes, most: int) -> bytes:
    """Return a body without its compression; no more than ``most`` bytes of it are ever in memory.

    Raises:
        TooLargeError: it would be longer.
        NotCompressedError: it is no gzip, or of too many parts.
    """
    parts, left = list[bytes](), most
    while body:  # RFC 1952: members, one after another
        if len(parts) == _MOST_PARTS:
            raise NotCompressedError(f"the body is of more than {_MOST_PARTS} parts")
        inflating = inflater()
        try:
            part = inflating.decompress(body, min(left, _said(body)) + 1)
            if inflating.unconsumed_tail and len(part) <= left:  # it is more than was said
                part += inflating.decompress(inflating.unconsumed_tail, left + 1 - len(part))
        except InflateError as error:
            raise NotCompressedError("the body is no gzip") from error
        left -= len(part)
        if left < 0:
            raise TooLargeError(f"the body inflates to more than {most:,} bytes")
        if not inflating.eof:
            raise NotCompressedError("the body is cut short")
        parts.append(part)
        body = inflating.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _said(body: bytes) -> int:
    """Return the size that a gzip says of itself, in its last four bytes (RFC 1952): zlib takes no more memory then."""
    return int.from_bytes(body[-4:], "little")

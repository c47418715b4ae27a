"""Text of somebody else's → the same as it may be shown: a control character stands there as its escape.

A terminal obeys what a file holds: ``ESC ]`` renames its window, ``ESC [`` moves the cursor over what was said before, a bidi
override shows a word backwards. Each becomes what Python would write for it: ``\\x1b``, ``\\u202e``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["format_count", "names_listed", "printable", "printable_lines"]

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SEPARATORS = "\u2028\u2029"
_INVISIBLE = "\U000e0000-\U000e007f"
_SURROGATES = "\ud800-\udfff"
_ELSE = f"{_BIDI}{_SEPARATORS}{_INVISIBLE}{_SURROGATES}\ufeff"
_IN_A_LINE = re.compile(f"[\x00-\x1f\x7f-\x9f{_ELSE}]")
_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_ELSE}]")
_BYTE = 0x100
_PLANE = 0x1_0000


def printable(text: str) -> str:
    """Return one line, whatever the text holds: line breaks and tabs are escaped, too."""
    return _IN_A_LINE.sub(_escape, text)


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 score", "2,300 scores"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def names_listed(names: Iterable[str]) -> str:
    """Return names with commas between, on one line."""
    return ", ".join(map(printable, names))


def printable_lines(text: str) -> str:
    """Return a text whose line breaks and tabs are meant; all other control characters are escaped."""
    return _IN_LINES.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < _BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _PLANE else f"\\U{code:08x}"

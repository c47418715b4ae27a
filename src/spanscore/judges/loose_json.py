"""Nearly JSON → its value, if the text can be read in one way only.

Models without an enforced schema write JSON as programmers do. Each form below has one reading; every other fault is an error:

    "\\(x^2\\)"              an escape that JSON lacks is a backslash
    {"a": 1,}              a comma before the closing bracket
    {'a': True, “b”: None}   single quotes, curly quotes, Python's words
    {"a": 1 // one         a comment: ``// …``, ``# …``, ``/* … */``
    }

A single quote ends its text only in front of a comma, a colon, or a closing bracket. A double quote always ends its text: a
quotation that was not escaped makes the text unreadable, as it does in JSON. A key that stands twice in an object is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["loose_object", "object_of"]

_DEEPEST = 20
"""Brackets inside each other; an answer's form has three."""
_MOST_VALUES = 1_000
"""Values of one object, which bounds the time that any text takes."""
_BLANKS = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*+")
_BEFORE_A_SIGN = r"(?!\s*+[,:}\]])"
_TEXTS: Mapping[str, re.Pattern[str]] = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL),
    "'": re.compile(rf"'((?:[^'\\]|\\.|'{_BEFORE_A_SIGN})*+)'", re.DOTALL),
    "\u201c": re.compile("\u201c((?:[^\u201d\\\\]|\\\\.)*+)\u201d", re.DOTALL),
    "\u2018": re.compile(rf"{chr(0x2018)}((?:[^\u2019\\]|\\.|\u2019{_BEFORE_A_SIGN})*+)\u2019", re.DOTALL),
}
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|.)|"', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_DECODER = json.JSONDecoder(strict=False)


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys stand in it once: of two verdicts in one object, the last would be read.

    Raises:
        ValueError: a key stands twice.
    """
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return unique


def loose_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the object that begins at ``start``, and the position behind it.

    Raises:
        ValueError: there is none, or it could be read in several ways.
    """
    cursor = _Cursor(text, start)
    return cursor.braced(_DEEPEST), cursor.position


class _Cursor:
    """A position in a text that moves behind each part that is read."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._values = 0
        self.position = position

    def braced(self, depth: int) -> dict[str, Any]:
        """Read an object."""
        return object_of(self._listed("{", "}", self._pair, depth))

    def _pair(self, depth: int) -> tuple[str, Any]:
        if self._next() not in _TEXTS:
            raise ValueError("a key without quotes")
        key = self._quoted()
        self._sign(":")
        return key, self._value(depth)

    def _value(self, depth: int) -> Any:
        sign = self._next()
        self._values += 1
        if self._values > _MOST_VALUES:
            raise ValueError("too many values")
        if sign in _TEXTS:
            return self._quoted()
        if sign == "{":
            return self.braced(depth)
        if sign == "[":
            return self._listed("[", "]", self._value, depth)
        if sign.isalpha():
            word = self._matched(_NAME).lower()
            if word not in _WORDS:
                raise ValueError("a word without quotes")
            return _WORDS[word]
        return json.loads(self._matched(_NUMBER))

    def _listed(self, begin: str, end: str, read: Callable[[int], Any], depth: int) -> list[Any]:
        if not depth:
            raise ValueError("too deep")
        self._sign(begin)
        parts = []
        while self._next() != end:
            parts.append(read(depth - 1))
            if self._next() != end:
                self._sign(",")
        self._sign(end)
        return parts

    def _next(self) -> str:
        """Return the next sign behind blanks and comments; empty at the end."""
        blanks = _BLANKS.match(self._text, self.position)
        self.position = blanks.end() if blanks else self.position
        return self._text[self.position : self.position + 1]

    def _sign(self, sign: str) -> None:
        if self._next() != sign:
            raise ValueError(f"no {sign}")
        self.position += 1

    def _matched(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self.position)
        if match is None:
            raise ValueError("not JSON")
        self.position = match.end()
        return match[match.lastindex or 0]

    def _quoted(self) -> str:
        body = self._matched(_TEXTS[self._text[self.position]])
        text: str = _DECODER.decode(f'"{_ESCAPE.sub(_escaped, body)}"')
        return text


def _escaped(sign: re.Match[str]) -> str:
    """Return an escape, or a bare double quote, as JSON has it. ``\\frac`` and ``\\beta`` are LaTeX, no form feed."""
    escape = sign[0]
    if escape == '"':
        return '\\"'
    following = sign.string[sign.end() : sign.end() + 1]
    if len(escape) > 2 or escape[1] in '"\\/nrt' or (escape[1] in "bf" and not following.isalpha()):  # noqa: PLR2004  (\uXXXX)
        return escape
    return escape[1] if escape[1] in "'\u2018\u2019\u201c\u201d" else f"\\{escape}"

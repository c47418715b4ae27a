"""Converts any value to JSON and to the text of a span attribute, and back; finds a text's script; reads ``Retry-After``."""

from __future__ import annotations

import json
import time as time_time
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from enum import Enum
from itertools import islice
from math import isfinite
from typing import Any, Final
from uuid import UUID

from spanscore.core.log import bases_of, class_name, is_a, type_name

# --- json text ------------------------------------------------------------------------------------------------------


def json_in(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        json.JSONDecodeError: the text is not JSON, or is nested too deep for Python. ``msg`` names the error, and quotes no
            content.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", "", 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number has too many digits
        raise json.JSONDecodeError("a number is too long", "", 0) from error


# --- text -----------------------------------------------------------------------------------------------------------

# Any value → JSON-able value → text on the wire, and back. No value raises an error.
#
# On the wire, in a span attribute, content is one string. Text stays text, so that a backend shows it unchanged; a structure
# is JSON. Text that would be parsed as a structure is written as a JSON string, so that reading is exact:
#
#     {"a": 1} → '{"a":1}' → {"a": 1}          "Paris" → 'Paris' → "Paris"          '{"a":1}' → '"{\"a\":1}"' → '{"a":1}'

MAX_DEPTH = 16
"""Maximum number of levels of a value; deeper values become markers. States of real applications have 4 to 7 levels."""
MAX_NODES = 20_000
"""Maximum number of elements of a value; further elements are left out. The limit also ends a list that contains itself."""
MAX_CHARS = 4_000_000
"""Maximum number of characters of a value; further text is cut. No model has so large a context."""
_WIRE_INT_BITS = 63
_decoder = json.JSONDecoder(parse_constant=str)
"""One decoder: ``json.loads`` with an argument creates one per call, which takes longer than a message of 700 characters."""
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""One encoder, because ``json.dumps`` with arguments creates one per call."""
_CUT_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
"""JSON values without quotes that are no number: a limit may cut them in the middle."""
_LONGEST_ESCAPE = 6
_MAX_INT_BITS = 4096  # Python refuses to print integers over 4300 digits (about 14,000 bits)

Unfold = Callable[[Any], Any]
"""Function from a foreign value to plain containers, which ``jsonable`` then renders."""


class Base64(str):
    """Bytes of an image as base64. The limits of a rendered value do not apply to it, because a cut image cannot be shown."""

    __slots__ = ()


def safe_text(text: str) -> str:
    """Return the text as a plain ``str`` that UTF-8 can carry: a lone surrogate becomes a question mark."""
    plain = text if type(text) is str else str.__str__(text)
    if plain.isascii():
        return plain
    try:
        plain.encode()
    except UnicodeEncodeError:
        return plain.encode("utf-8", "replace").decode()
    return plain


def wire_value(value: Any) -> Any:
    """Return an attribute's value in a form that OTLP can carry: texts as UTF-8; None for an integer above 64 bits.

    With other values the exporter, mostly the application's own, would print a traceback or drop the whole batch.
    """
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, int):
        return value if fits_wire(value) else None
    if isinstance(value, (list, tuple)):
        return [safe_text(item) if isinstance(item, str) else item for item in value]
    return value


def wire_values(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes in the form of ``wire_value``; None is left out."""
    encoded: dict[str, Any] = {}
    for name, value in attributes.items():
        if value is None:
            continue
        if (type(value) is str and value.isascii()) or type(value) is float:  # most values of a score
            encoded[name] = value
        elif (wired := wire_value(value)) is not None:
            encoded[name] = wired
    return encoded


def fits_wire(number: int) -> bool:
    """Whether OTLP can carry an integer: 64 bits with its sign."""
    return number.bit_length() <= _WIRE_INT_BITS


def jsonable(value: Any, unfold: Mapping[type, Unfold] | None = None, *, within: int = 0) -> Any:
    """Return the value as dicts with text keys, lists, texts, numbers, booleans and None, which JSON represents exactly.

    NaN and infinities become texts, bytes and unknown objects ``{"type": name}``; parts beyond the limits are left out. No
    method of an unknown object is called.

    Args:
        unfold: type → function that unfolds its values, and those of subclasses.
        within: number of levels above the value, by which the maximum depth is less.
    """
    return _Rendering(unfold or {}).render(value, MAX_DEPTH - within)


def as_text(value: Any) -> str:
    """Return a JSON-able value as text: a text unchanged, every other value as compact JSON."""
    return safe_text(value) if isinstance(value, str) else _dumps(value)


def to_wire(value: Any) -> str:
    """Return a content value as the one string that an attribute can hold; ``from_wire`` reverses it."""
    if not isinstance(value, str):
        return _dumps(value)
    text = safe_text(value)
    return text if from_wire(text) == text else json.dumps(text, ensure_ascii=False)


def from_wire(text: str) -> Any:
    """Return the value of a text that is a whole JSON object, list or string; every other text is unchanged."""
    if not text.startswith(("{", "[", '"')):
        return text
    try:
        value, end = _decoder.raw_decode(text)
        return value if end == len(text) else _decoder.decode(text)  # ``decode`` raises unless only blanks follow
    except (ValueError, RecursionError):  # cut by an attribute limit, or never JSON
        return text


def is_cut(text: str) -> bool:
    """Whether a text is the beginning of a JSON object or list, cut by a length limit."""
    if len(text) == 1 or not text.startswith(("{", "[")):
        return False
    try:
        _decoder.raw_decode(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()
        in_escape = "escape" in error.msg and len(rest) < _LONGEST_ESCAPE
        in_word = any(word.startswith(rest) for word in _CUT_WORDS)
        return in_escape or in_word or not rest.strip(".eE+-…") or error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def plain_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    """Return a plain copy of a dict, in one step of C code; no method of a subclass runs."""
    return value.copy() if type(value) is dict else dict(dict.items(value))


def plain_number(value: Any) -> float | None:
    """Return a number as a plain int or float; None for a boolean, an integer that OTLP cannot carry, and any other value."""
    if type(value) is int:  # most numbers are ints, and each further check costs a call
        return value if value.bit_length() <= _WIRE_INT_BITS else None
    if is_a(value, float):
        return float.__float__(value)
    if is_a(value, bool) or not is_a(value, int):
        return None
    return whole if fits_wire(whole := int.__index__(value)) else None


def nearest(values: Mapping[type, Any], kind: type) -> Any:
    """Return the value for a type or its nearest base, or None.

    Walks the method resolution order: ``isinstance`` on a pydantic class reads attributes of the *object*, which runs the
    application's ``__getattr__``.
    """
    for base in bases_of(kind):
        value = values.get(base)
        if value is not None:
            return value
    return None


def _dumps(value: Any) -> str:
    try:
        text = _write(value)
        if not text.isascii():
            text.encode()  # raises for a lone surrogate
    except (ValueError, TypeError, RecursionError):
        return json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"))
    return text


@dataclass(slots=True, eq=False)
class _Rendering:
    """The remaining budget of one ``jsonable`` call."""

    _unfold: Mapping[type, Unfold]
    _nodes: int = MAX_NODES
    _chars: int = MAX_CHARS

    def render(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self._nodes -= 1
        if value is None or kind is bool:
            return value
        if kind is str:
            return self.text(value)
        try:
            if kind in _OFTEN:  # fast path: other classes need a walk of their bases
                return _PLAIN[kind](self, value, depth)
            unfold = nearest(self._unfold, kind)
            if unfold is not None and depth > 0:
                return self.render(unfold(value), depth - 1)
            plain = nearest(_PLAIN, kind)
            return {"type": class_name(kind)} if plain is None else plain(self, value, depth)
        except Exception:  # noqa: BLE001 - a half-built foreign object must not lose its neighbours
            return {"type": class_name(kind)}

    def text(self, value: str, depth: int = 0) -> str:
        if type(value) is str and len(value) <= self._chars and value.isascii():  # most texts are
            self._chars -= len(value)
            return value
        text = safe_text(value)[: max(0, self._chars)]
        self._chars -= len(text)
        return text

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        if depth <= 0:
            return {"type": "dict"}
        shown: dict[str, Any] = {}
        for key, inner in plain_dict(value).items():
            if self._nodes <= 0 or self._chars <= 0:
                break
            # The name first: a text that uses up the budget must not lose its name.
            name = self.text(key) if type(key) is str else self._key(key)
            shown[name] = self.render(inner, depth - 1)
        return shown

    def sequence(self, value: Any, depth: int) -> Any:
        if depth <= 0:
            return {"type": type_name(value)}
        shown: list[Any] = []
        # In one step of C code: another thread may still be appending, and a subclass may override ``__iter__``.
        kind = type(value)
        for inner in value.copy() if kind is list else list(nearest(_BUILT_IN_BASE, kind).__iter__(value)):
            if self._nodes <= 0:
                break
            shown.append(self.render(inner, depth - 1))
        return shown

    def _key(self, key: Any) -> str:
        if is_a(key, str):
            return self.text(key)
        simple = self.render(key, 0)
        return simple if isinstance(simple, str) else _dumps(simple)

    def integer(self, value: int, depth: int) -> Any:
        plain = int.__index__(value)
        return plain if plain.bit_length() <= _MAX_INT_BITS else {"type": "int"}

    def number(self, value: float, depth: int) -> Any:
        plain = float.__float__(value)
        return plain if isfinite(plain) else json.dumps(plain)  # NaN, Infinity, -Infinity


_SEQUENCES: tuple[type, ...] = (list, tuple, set, frozenset, deque)
_PRINTED: tuple[type, ...] = (UUID, Decimal, datetime, date, time, timedelta)
_BUILT_IN_BASE: Mapping[type, Any] = {kind: kind for kind in (*_SEQUENCES, *_PRINTED)}
_OFTEN = frozenset({dict, list, int, float})
"""Types that no caller unfolds."""
_PLAIN: Mapping[type, Callable[[_Rendering, Any, int], Any]] = {
    dict: _Rendering.mapping,
    **dict.fromkeys(_SEQUENCES, _Rendering.sequence),
    str: _Rendering.text,
    Base64: lambda _, value, __: value,
    int: _Rendering.integer,
    float: _Rendering.number,
    Enum: lambda run, member, depth: run.render(member._value_, depth - 1),
    bytes: lambda _, value, __: {"type": "bytes", "size": bytes.__len__(value)},
    **dict.fromkeys(_PRINTED, lambda run, value, _: run.text(str(nearest(_BUILT_IN_BASE, type(value)).__str__(value)))),
}


# --- script ---------------------------------------------------------------------------------------------------------

# The script of a text decides how its sentences end.

WITHOUT_STOPS: Final = frozenset({"THAI", "LAO", "KHMER", "TIBETAN"})
"""Scripts in which a blank ends a sentence, like a full stop in other scripts."""
_MAX_LETTERS: Final = 400
"""Maximum number of letters that are read, because each costs a look-up; more letters would not change the majority."""


def script_of(text: str) -> str:
    """Return the script of most letters of a text by its name in Unicode, such as ``LATIN``, ``CJK`` or ``DEVANAGARI``.

    Japanese is ``HIRAGANA``, even if most of its letters are Chinese. A text without a letter is ``LATIN``.
    """
    if text.isascii():
        return "LATIN"
    letters = islice(filter(str.isalpha, text), _MAX_LETTERS)
    counts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters)
    if counts["HIRAGANA"]:
        counts["HIRAGANA"] += counts.pop("CJK", 0) + counts.pop("KATAKANA", 0)
    return max(counts, key=counts.__getitem__, default="LATIN")


# --- retry after ----------------------------------------------------------------------------------------------------


def retry_after_s(header: str) -> float | None:
    """Return the seconds of ``Retry-After``, 0 or more, from both forms of RFC 9110; None for every other text."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time_time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if isfinite(seconds) else None

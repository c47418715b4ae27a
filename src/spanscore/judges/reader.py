"""A judge's text → its verdict: the one object in it that is the judge's own.

    <think> … </think>  The text says {"verdict": 1}, which it should not.  {"reason": "It lies.", "verdict": 0}
    a thought: away     a quotation: it stands in the evidence              the judge's own

A judge quotes what it judges, and what it judges is written by strangers. So the place of an object says nothing, nor does a
fence around it: there is one verdict behind the thoughts, and it is no quotation, or the answer is unreadable. Nor is one
read out of a text that is torn: a quotation that was not escaped can end the judge's own object wherever it likes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from spanscore.judges.render import fenced

__all__ = ["read"]

_MARK = re.compile(r"\{|<(/?)think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BRACKET_OR_STRING = re.compile(r'\\.|"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)|[{}]', re.DOTALL)
"""A string that never ends goes to the end of the text: looked for from each of its quotes, it would take quadratic time."""
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_MAX_PIECES = 50
"""Objects, thoughts and stray brackets of one answer. With the next one, the bound on the time that any text takes."""
_MAX_TOKENS = 2_000
"""Brackets and strings looked at for one closer."""
_SENTENCE = 3
"""Blanks from which nobody says the same text by chance."""


class _Piece(NamedTuple):
    """What stands between a bracket and its closer; the value is None where it is no JSON object."""

    text: str
    value: Any

    def names_stand_in(self, shown: str) -> bool:
        """Whether it may be a quotation, at a glance."""
        return all(name in shown for name in self.value or () if name.isidentifier())


class _TakenApart(NamedTuple):
    """What stands behind the last thought: all of it, its pieces, and what stands around them."""

    text: str
    pieces: Sequence[_Piece]
    prose: str

    @property
    def is_one_object(self) -> bool:
        """Whether it is an object and nothing else but a fence."""
        bare = self.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
        return [piece.text for piece in self.pieces] == [bare]


def read(
    text: str, output: type[BaseModel], evidence: Mapping[str, Any] = MappingProxyType({}), *, repaired: bool = False
) -> BaseModel | None:
    """Return the judge's own answer in a text, None when there is none. In bounded time, whatever the text.

    It is a valid ``output``, no quotation, and the only JSON object (said twice in the same words it is one) beside quotations
    that are no valid ``output``. A quotation stands in the evidence too, spaces and escapes left out; where it is all that the
    judge says, it is one only if it holds a sentence: ``{"rating": 2}`` may be what the evidence says, a reason word for word
    may not.

    Validation is lax as pydantic's is: ``"1"``, ``1.0`` and ``true`` are the integer 1; 0.5 and ``"yes"`` are not.

    Args:
        output: may have a class method ``from_plain_text(text, evidence)``, which reads an answer that has no object of the
            judge's own, thoughts left out, or returns None.
        evidence: what the judge was shown.
        repaired: whether the text was rewritten from an unreadable one: a quotation in it is one, though it stands alone.
    """
    parts = _taken_apart(text)
    if parts is None or "}" in parts.prose:
        return None
    answers = {_squeezed(piece.text): _validated(piece.value, output) for piece in parts.pieces}
    quoted = _quoted(parts, evidence, repaired=repaired)
    told = [(key, answer) for key, answer in answers.items() if answer is not None or key not in quoted]
    if not told:
        return _from_plain_text(parts.text, output, evidence)
    (key, answer), *others = told
    return None if others or key in quoted else answer


def _quoted(parts: _TakenApart, evidence: Mapping[str, Any], *, repaired: bool) -> frozenset[str]:
    """Return those of the pieces, squeezed, that are quotations of the evidence."""
    if parts.is_one_object and not repaired and not _has_sentence(parts.pieces[0].value):
        return frozenset()
    shown = fenced(evidence)
    likely = [piece.text for piece in parts.pieces if piece.names_stand_in(shown)]
    everything = _squeezed(shown) if likely else ""  # most of the work, and mostly spared
    return frozenset(key for key in map(_squeezed, likely) if key in everything)


def _validated(value: Any, output: type[BaseModel]) -> BaseModel | None:
    try:
        return output.model_validate(value)
    except ValidationError:
        return None


def _from_plain_text(text: str, output: type[BaseModel], evidence: Mapping[str, Any]) -> BaseModel | None:
    from_plain_text = getattr(output, "from_plain_text", None)
    answer: BaseModel | None = from_plain_text and from_plain_text(text, evidence)
    return answer


def _has_sentence(value: Any) -> bool:
    """Whether an object holds a text of several words. No recursion: an object may be as deep as Python's stack."""
    inside = [value]
    while inside:
        one = inside.pop()
        if isinstance(one, str) and one.count(" ") >= _SENTENCE:
            return True
        if isinstance(one, Mapping):
            inside += one.values()
        elif isinstance(one, list):
            inside += one
    return False


def _squeezed(text: str) -> str:
    """Return what is left of a text when spaces, quotes and escapes do not count: the same however often it was escaped."""
    if "\\u" in text:  # by way of UTF-16, in which an emoji is two of them
        text = _ESCAPED.sub(lambda sign: chr(int(sign[1], 16)), text)
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for sign in ("\\n", "\\r", "\\t", "\\", '"'):
        text = text.replace(sign, "")
    return "".join(text.split())


def _taken_apart(text: str) -> _TakenApart | None:
    """Take an answer apart; None where it has too many brackets to be one."""
    begin = position = 0
    pieces: list[_Piece] = []
    prose: list[str] = []
    for _ in range(_MAX_PIECES):
        mark = _MARK.search(text, position)
        if mark is None:
            told = [piece for piece in pieces if piece.value is not None or '"' in piece.text]  # no {word}
            return _TakenApart(text[begin:], told, "".join([*prose, text[position:]]))
        if mark.group() != "{":  # what stands before a thought is no answer yet
            begin = position = _end_of_thought(text, mark)
            pieces, prose = [], []
            continue
        piece = _piece(text, mark.start())
        if piece is None:
            return None
        pieces.append(piece)
        prose.append(text[position : mark.start()])
        position = mark.start() + max(1, len(piece.text))
    return None


def _end_of_thought(text: str, mark: re.Match[str]) -> int:
    """Return where the thought of a mark ends; at the text's end when it never does."""
    end = mark if mark.group(1) else _THOUGHT_ENDS.search(text, mark.end())
    return end.end() if end else len(text)


def _piece(text: str, start: int) -> _Piece | None:
    """Return what begins with the bracket at ``start``, empty when it never closes; None after too many brackets."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        # Whole, not what is inside: a row of a broken list is no answer.
        closed = _closer(text, start)
        return None if closed is None else _Piece(text[start:closed], None)
    return _Piece(text[start:end], value)


def _closer(text: str, start: int) -> int | None:
    """Return where the bracket at ``start`` has closed, brackets in strings left out; ``start`` itself when it never does."""
    depth = 0
    tokens = _BRACKET_OR_STRING.finditer(text, start)
    for token in islice(tokens, _MAX_TOKENS):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    return start if next(tokens, None) is None else None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys stand in it once: of two verdicts in one object, the last would be read."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found


# strict=False: models write raw line breaks inside strings.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_object)

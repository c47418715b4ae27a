"""A judge's text → its verdict: the one object in it that is the judge's own.

    <think> … </think>  The text says {"verdict": 1}, which it should not.  {"reason": "It lies.", "verdict": 0}
    a thought: away     a quotation: it stands in the evidence              the judge's own

A judge quotes what it judges, and what it judges is written by strangers. So the place of an object says nothing, nor does a
fence around it: there is one verdict behind the thoughts, and it is no quotation, or the answer is unreadable. Nor is one
read out of a text that is torn: a quotation that was not escaped can end the judge's own object wherever it likes.

A quotation may hold ``</think>``, too. So a verdict outside of the thoughts that the judge opened is a rival of the one behind
the last thought: two rivals that differ make the answer unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel

from spanscore.judges.answer_shape import answer_in, bare_object
from spanscore.judges.loose_json import loose_object, object_of
from spanscore.judges.render import as_json

__all__ = ["read"]

_MARK = re.compile(r"\{|<(/?)think(?:ing)?(?:\s[^<>]{0,100})?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LABELLED = re.compile(r"[\s*_`]*([A-Za-z]\w*)[\s*_`]*[:=][\s*_`]*([^\n]*?)[\s*_`.]*")
"""A line that is a name and a value: "Rating: 4", "**Verdict:** 1"."""
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
    """The text between a bracket and its closer.

    Attributes:
        text: both brackets included.
        value: the object; None if it is no JSON object.
        forms: the texts that a quotation of it would have, squeezed; the first is its own.
        is_wrapped: whether it is the only value of another object.
    """

    text: str
    value: Any
    forms: tuple[str, ...] = ()
    is_wrapped: bool = False

    def names_stand_in(self, shown: str) -> bool:
        """Whether it may be a quotation, at a glance."""
        return all(name.lower() in shown for name in self.value or () if name.isidentifier())


class _TakenApart(NamedTuple):
    """An answer: the text behind the last thought, its pieces, the text around them, and the pieces before that thought."""

    text: str
    pieces: Sequence[_Piece]
    prose: str
    rivals: Sequence[_Piece] = ()
    thought: str = ""

    @property
    def is_one_object(self) -> bool:
        """Whether it is an object and nothing else but a fence."""
        bare = self.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
        return [piece.text for piece in self.pieces] == [bare] and not self.pieces[0].is_wrapped


def read(
    text: str, output: type[BaseModel], evidence: Mapping[str, Any] = MappingProxyType({}), *, repaired: bool = False
) -> BaseModel | None:
    """Return the judge's own answer in a text, None when there is none. In bounded time, whatever the text.

    It is a valid ``output``, no quotation, and the only JSON object (said twice in the same words it is one) beside quotations
    that are no valid ``output``. A quotation stands in the evidence too, spaces, quotes and escapes left out; where it is all
    that the judge says, it is one only if it holds a sentence: ``{"rating": 2}`` may be what the evidence says, a reason word
    for word may not.

    Nearly JSON is read if it can be read in one way only (``loose_json``). So is an object that is the only value of another,
    an object whose keys differ from the asked ones in case, and one line of a name and a value ("Rating: 4").

    Validation is lax as pydantic's is: ``"1"``, ``1.0`` and ``true`` are the integer 1; 0.5 and ``"yes"`` are not.

    Args:
        text: what the judge wrote.
        output: may have a class method ``from_plain_text(text, evidence)``, which reads an answer that has no object of the
            judge's own, thoughts left out, or returns None.
        evidence: what the judge was shown.
        repaired: whether the text was rewritten from an unreadable one: a quotation in it is one, though it stands alone.
    """
    parts = _taken_apart(text, output)
    if parts is None or "}" in parts.prose:
        return None
    shown = _Shown(evidence)
    answer = _answer(parts, output, shown, repaired=repaired)
    rivals = (answer_in(piece.value, output) for piece in parts.rivals if not shown.quotes(piece))
    return None if any(rival is not None and rival != answer for rival in rivals) else answer


def _answer(parts: _TakenApart, output: type[BaseModel], shown: _Shown, *, repaired: bool) -> BaseModel | None:
    """Return the only verdict behind the last thought that is no quotation."""
    quoted = _quoted(parts, shown, repaired=repaired)
    answers = {piece.forms[0]: answer_in(piece.value, output) for piece in parts.pieces}
    told = {key: answer for key, answer in answers.items() if answer is not None or key not in quoted}
    if not told:
        return _from_plain_text(parts, output, shown, repaired=repaired)
    (key, answer), *others = told.items()
    return None if others or key in quoted else answer


class _Shown:
    """The evidence as quotations are looked up in it; made at the first look-up, as most answers need none."""

    def __init__(self, evidence: Mapping[str, Any]) -> None:
        self.evidence = evidence

    @cached_property
    def text(self) -> str:
        """The evidence as JSON, in lower case."""
        return as_json(self.evidence).lower()

    @cached_property
    def squeezed(self) -> str:
        """The evidence as quotations are compared with it. Most of the work of reading."""
        return _squeezed(self.text)

    def quotes(self, piece: _Piece) -> bool:
        """Whether a piece stands in the evidence."""
        return piece.names_stand_in(self.text) and any(form in self.squeezed for form in piece.forms)

    def has_a_closed_thought(self) -> bool:
        """Whether the evidence may end a thought that it does not belong to."""
        return "</think" in self.text or "</think" in self.squeezed


def _quoted(parts: _TakenApart, shown: _Shown, *, repaired: bool) -> frozenset[str]:
    """Return the keys of those pieces that are quotations of the evidence.

    An object that is all of the answer may be the judge's own, although it stands in the evidence. It may not if the thought
    before it can be a quotation, too.
    """
    may_be_its_own = parts.is_one_object and not repaired and not _has_sentence(parts.pieces[0].value)
    if may_be_its_own and not (parts.thought and shown.has_a_closed_thought()):
        return frozenset()
    return frozenset(piece.forms[0] for piece in parts.pieces if shown.quotes(piece))


def _from_plain_text(parts: _TakenApart, output: type[BaseModel], shown: _Shown, *, repaired: bool) -> BaseModel | None:
    """Return the answer in a text without an object of the judge's own; None if the end of a thought before it is quoted."""
    if parts.thought and _squeezed(parts.thought + parts.text) in shown.squeezed:
        return None
    line = None if repaired or parts.pieces else _LABELLED.fullmatch(parts.text.strip())
    answer = answer_in({line[1]: line[2]}, output) if line else None
    from_plain_text = getattr(output, "from_plain_text", None)
    if answer is None and from_plain_text is not None:
        answer = from_plain_text(parts.text, shown.evidence)
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
    for sign in ("\\n", "\\r", "\\t", *"\\\"'\u2018\u2019\u201c\u201d"):
        text = text.replace(sign, "")
    return "".join(text.split()).lower().replace(",}", "}").replace(",]", "]")


def _taken_apart(text: str, output: type[BaseModel]) -> _TakenApart | None:
    """Take an answer apart; None where it has too many brackets to be one."""
    begin = position = 0
    pieces: list[_Piece] = []
    rivals: list[_Piece] = []
    prose: list[str] = []
    thought = ""
    for _ in range(_MAX_PIECES):
        mark = _MARK.search(text, position)
        if mark is None:
            told = [piece for piece in pieces if piece.value is not None or '"' in piece.text]  # no {word}
            return _TakenApart(text[begin:], told, "".join([*prose, text[position:]]), rivals, thought)
        if mark.group() != "{":  # an object before a thought is no answer yet, unless a quotation ended the thought
            begin = position = _end_of_thought(text, mark)
            rivals += [piece for piece in pieces if piece.value is not None]
            pieces, prose, thought = [], [], "</think>"
            continue
        piece = _piece(text, mark.start(), output)
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


def _piece(text: str, start: int, output: type[BaseModel]) -> _Piece | None:
    """Return what begins with the bracket at ``start``, empty when it never closes; None after too many brackets."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _loose_piece(text, start, output)
    return _made(text[start:end], value, output)


def _loose_piece(text: str, start: int, output: type[BaseModel]) -> _Piece | None:
    """Return nearly JSON as a piece, if it is an answer; else all up to its closer, as a row of a broken list is no answer."""
    with suppress(ValueError):
        value, end = loose_object(text, start)
        piece = _made(text[start:end], value, output, as_json(value))
        if answer_in(piece.value, output) is not None:
            return piece
    closed = _closer(text, start)
    return None if closed is None else _Piece(text[start:closed], None, (_squeezed(text[start:closed]),))


def _made(own: str, value: Any, output: type[BaseModel], *forms: str) -> _Piece:
    bare = bare_object(value, output)
    if bare is not value:
        forms = (*forms, as_json(bare))
    return _Piece(own, bare, tuple(map(_squeezed, (own, *forms))), bare is not value)


def _closer(text: str, start: int) -> int | None:
    """Return where the bracket at ``start`` has closed, brackets in strings left out; ``start`` itself when it never does."""
    depth = 0
    tokens = _BRACKET_OR_STRING.finditer(text, start)
    for token in islice(tokens, _MAX_TOKENS):
        depth += {"{": 1, "}": -1}.get(token.group(), 0)
        if depth == 0:
            return token.end()
    return start if next(tokens, None) is None else None


# strict=False: models write raw line breaks inside strings.
_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=object_of)

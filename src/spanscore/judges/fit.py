"""Question → one that its judge can read whole: what is too long loses, by a rule, and how much is said.

    contexts         lose from the end, the longest first
    a conversation   loses its middle turns, first of all what is long in them; the first and the last message stay whole
    all else         stays whole: question, answer, reference, statements. Too long by itself, nothing is sent

A text is cut behind a sentence, else behind a word, else behind a character: what is kept fills at least half of the room.
``LEFT_OUT`` stands where something was. The evidence tells which is which, also that of
a metric of your own: contexts are ``Passages``, or a list of texts under a key that ends in ``contexts``; a conversation is a
list of messages, mappings with a ``role`` (``MultiTurnSample.messages``).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import ceil
from typing import Any, NamedTuple
from unicodedata import category

from spanscore.core.prompt import Passages, Prompt
from spanscore.errors import JudgeError
from spanscore.judges.render import fenced, render
from spanscore.judges.tokens import BYTES_PER_TOKEN, bytes_of
from spanscore.protocols import Judge

__all__ = ["LEFT_OUT", "Fit", "bound_of", "fit", "less_answer"]

LEFT_OUT = "[… left out …]"
_GAP: Mapping[str, Any] = {"role": "note", "content": LEFT_OUT}

_WINDOW = 100_000
"""Tokens that a model reads of which nothing is known."""
_ANSWER = 4_000
"""Tokens kept free for the answer: the longest that our metrics ask for is a row for each of some fifty statements."""
_LARGEST_TURN = 4
"""A message of the middle has at most one part in so many of what there is room for: a page that a tool found is no reason to
lose what was said around it."""
_PASSES = 3
"""How often contexts are cut: where escapes stand thick at one place, the first cut is too small."""
_ESCAPED = 6
"""Bytes that one character may have as JSON (``\\u0000``)."""
_ENDS = (re.compile(r"[.!?…؟۔।॥۔።][\"')\]”’»]*(?=\s)|[。！？｡]|\n+"), re.compile(r"(?<=\S)\s|[，、；,;|]"))
"""Of sentences, in all scripts that mark them, and of words."""


class Fit(NamedTuple):
    """A question that fits, and the share of its tokens that was left out, [0, 1)."""

    prompt: Prompt
    left_out: float


def less_answer(window: int) -> int:
    """Return what a window leaves for the question."""
    return window - min(_ANSWER, window // 4)


def bound_of(judge: Judge) -> int:
    """Return how many tokens a question to a judge may have: what it tells as ``max_input_tokens``, else 96,000."""
    told = getattr(judge, "max_input_tokens", None)
    return told if isinstance(told, int) else less_answer(_WINDOW)


def fit(prompt: Prompt, max_tokens: int) -> Fit:
    """Return a question of at most so many tokens, estimated; itself, where it has no more.

    Raises:
        JudgeError: it is ``too_long`` also without any context and middle turn.
    """
    room = max_tokens * BYTES_PER_TOKEN
    if _at_most([prompt.instruction, prompt.evidence, *(example.evidence for example in prompt.examples)]) <= room:
        return Fit(prompt, 0.0)
    before = size = _size(prompt)
    for shorter in (*[_shorter_contexts] * _PASSES, _shorter_talk):
        if size > room:
            prompt = replace(prompt, evidence=shorter(prompt.evidence, size - room))
            size = _size(prompt)
    if size > room:
        has = ceil(size / BYTES_PER_TOKEN)
        raise JudgeError(
            f"{prompt.step}: the question is too long: about {has} tokens that must stay, where {max_tokens} are read",
            error_type="too_long",
        )
    return Fit(prompt, 1.0 - size / before)


def _shorter_contexts(evidence: Mapping[str, Any], over: float) -> Mapping[str, Any]:
    """Return evidence whose longest contexts have lost about so many bytes."""
    texts = {key: found for key, value in evidence.items() if (found := _contexts(key, value))}
    cap = _cap([_json_bytes(text) for found in texts.values() for text in found], over)
    cut = {key: [_cut(text, cap) for text in found] for key, found in texts.items()}
    return {**evidence, **{key: Passages.of(c) if isinstance(evidence[key], Passages) else c for key, c in cut.items()}}


def _contexts(key: str, value: Any) -> Sequence[str]:
    if isinstance(value, Passages):
        return value.parts or (value,)
    is_list = key.endswith("contexts") and isinstance(value, list | tuple)
    return value if is_list and all(isinstance(text, str) for text in value) else ()


def _cap(sizes: Sequence[int], over: float) -> float:
    """Return the size down to which all larger ones are cut to lose so much together; 0 where that is not enough."""
    falling = sorted(sizes, reverse=True)
    total = 0
    for count, (size, following) in enumerate(zip_longest(falling, falling[1:], fillvalue=0), 1):
        total += size
        if total - count * following >= over:
            return (total - over) / count
    return 0.0


def _cut(text: str, cap: float) -> str:
    """Return a text of at most so many bytes as JSON: its beginning, and the mark."""
    size, mark = _json_bytes(text), _json_bytes(LEFT_OUT)
    if size <= max(cap, mark):
        return text
    room, most = max(0.0, cap - mark), len(text)
    while size > room and most:  # again where escapes stand thick at the beginning
        most = min(most - 1, int(most * room / size))
        size = _json_bytes(text[:most])
    kept = _up_to_an_end(text, most)
    return f"{kept} {LEFT_OUT}" if kept else LEFT_OUT


def _up_to_an_end(text: str, most: int) -> str:
    """Return so many characters at most, up to the last end of a sentence, else of a word, in their second half."""
    for pattern in _ENDS:
        ends = deque((end.end() for end in pattern.finditer(text, most // 2, most)), maxlen=1)
        if ends:
            return text[: ends[0]].rstrip()
    while most and category(text[most])[0] == "M":  # a vowel sign or an accent of the character before
        most -= 1
    return text[:most].rstrip()


def _shorter_talk(evidence: Mapping[str, Any], over: float) -> Mapping[str, Any]:
    """Return evidence whose conversation has lost about so many bytes of its middle turns."""
    lists = {key: value for key, value in evidence.items() if isinstance(value, list) and value}
    talks = (key for key, value in lists.items() if all(isinstance(one, Mapping) and "role" in one for one in value))
    key = next(talks, None)
    return evidence if key is None else {**evidence, key: _shortened(evidence[key], over)}


def _shortened(messages: Sequence[Mapping[str, Any]], over: float) -> list[Mapping[str, Any]]:
    """Keep the middle turns from both ends on while there is room; the mark stands for the rest."""
    first, turns, last = messages[:1], deque(messages[1:-1]), messages[1:][-1:]
    room = sum(map(_json_bytes, turns)) - over - _json_bytes(_GAP)
    largest = room / _LARGEST_TURN
    before: list[Mapping[str, Any]] = []
    after: deque[Mapping[str, Any]] = deque()
    while turns:
        late = len(after) <= len(before)  # of what is left, what was said last counts more
        turn = _capped(turns.pop() if late else turns.popleft(), largest)
        room -= _json_bytes(turn)
        if room < 0:
            return [*first, *before, _GAP, *after, *last]
        if late:
            after.appendleft(turn)
        else:
            before.append(turn)
    return [*first, *before, *after, *last]


def _capped(turn: Mapping[str, Any], cap: float) -> Mapping[str, Any]:
    """Return a message whose text, and the arguments of each of whose calls, have at most so many bytes."""
    capped = dict(turn)
    if isinstance(turn.get("content"), str):
        capped["content"] = _cut(turn["content"], cap)
    if calls := turn.get("tool_calls"):
        capped["tool_calls"] = [{**call, "args": LEFT_OUT} if _json_bytes(call) > cap else call for call in calls]
    return capped


def _size(prompt: Prompt) -> int:
    return sum(map(bytes_of, render(prompt)))


def _json_bytes(value: Any) -> int:
    """Return the bytes of a value inside a fence, with the comma behind it."""
    return bytes_of(fenced(value)) - _FENCE + 1


def _at_most(value: Any) -> float:
    """Return at a glance a size in bytes that a value does not reach when rendered, with the texts around it."""
    if isinstance(value, str):
        return len(value) * _ESCAPED + _ESCAPED
    if isinstance(value, Mapping):
        return sum(_at_most(key) + _at_most(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_at_most, value)) + _ESCAPED
    return 30 if value is None or isinstance(value, int | float) else float("inf")


_FENCE = bytes_of(fenced("")) - 2  # without the quotes

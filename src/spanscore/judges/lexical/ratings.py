"""The lexical judge on whole answers: how far one agrees with another, or is backed by a context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.answer import LexicalAnswer, text_in
from spanscore.judges.lexical.statements import stated
from spanscore.judges.lexical.support import objection
from spanscore.judges.lexical.words import sentences

__all__ = ["ANSWERS"]


def _agreement(prompt: Prompt) -> Mapping[str, Any]:
    """4 when nothing of the reference is missing in the answer, 2 when half of it is there.

    One direction: the other question of the pair has the two change places.
    """
    share = _backed(stated(text_in(prompt, "reference")), text_in(prompt, "answer"))
    return {"rating": 2 * _grade(share, some=0.5)}


def _groundedness_by_clause(prompt: Prompt) -> Mapping[str, Any]:
    share = _backed(stated(text_in(prompt, "response")), text_in(prompt, "context"))
    return {"rating": _grade(share, some=0.01)}


def _groundedness_by_sentence(prompt: Prompt) -> Mapping[str, Any]:
    share = _backed(sentences(text_in(prompt, "response")), text_in(prompt, "context"))
    return {"rating": _grade(share, some=0.5)}


def _groundedness(prompt: Prompt) -> Mapping[str, Any]:
    return {"first": _groundedness_by_clause(prompt)["rating"], "second": _groundedness_by_sentence(prompt)["rating"]}


def _grade(share: float, *, some: float) -> int:
    """Return 2 for all, 1 from the least share that is some, else 0."""
    return (share >= some) + (share >= 1.0)


def _backed(statements: list[str], text: str) -> float:
    if not statements:
        return 0.0
    return sum(objection(statement, text) is None for statement in statements) / len(statements)


ANSWERS: Mapping[str, LexicalAnswer] = {
    "judge_accuracy_1": _agreement,
    "judge_accuracy_2": _agreement,
    "judge_groundedness": _groundedness,
    "judge_groundedness_1": _groundedness_by_clause,
    "judge_groundedness_2": _groundedness_by_sentence,
}

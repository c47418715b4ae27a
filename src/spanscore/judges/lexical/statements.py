"""The lexical judge on statements: an answer → its clauses; clauses and a context → which have something against them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.answer import LexicalAnswer, text_in
from spanscore.judges.lexical.support import objection
from spanscore.judges.lexical.words import sentences, words

__all__ = ["ANSWERS", "clauses", "gives_up", "stated", "states_nothing", "verdicts"]

_CHECKABLE = 2
"""Least content words of a clause that stands alone."""

_CLAUSE = re.compile(r";\s+|,\s+(?:and|but|so|or)\s+(?=\S+\s+\S+\s+\S+)|\.\s+")
_NO_ANSWER = re.compile(
    r"\b(?:i (?:do not|don't|cannot|can't|could not|couldn't) (?:know|say|tell|find|answer|help)"
    r"|i am (?:not sure|afraid|unable)|i'm (?:not sure|afraid|unable)|no information|as an ai)\b",
    re.IGNORECASE,
)
_SMALL_TALK = re.compile(
    r"^(?:hi|hello|sure|thanks|thank you|great question|of course|hope|happy to|let me know)\b", re.IGNORECASE
)


def stated(text: str) -> list[str]:
    """Return the sentences of a text, cut at clauses; questions, small talk and "I do not know" state nothing."""
    stating = [sentence for sentence in sentences(text) if not states_nothing(sentence)]
    return [clause for sentence in stating for clause in clauses(sentence)]


def verdicts(statements: Any, context: str) -> list[dict[str, Any]]:
    """Return a row per statement: verdict 1 when nothing in the context speaks against it."""
    found = [(statement, objection(statement, context)) for statement in map(str, statements)]
    return [{"statement": s, "reason": why or "Its words are there.", "verdict": int(not why)} for s, why in found]


def _extract_statements(prompt: Prompt) -> Mapping[str, Any]:
    return {"statements": stated(text_in(prompt, "answer"))}


def _verify_statements(prompt: Prompt) -> Mapping[str, Any]:
    return {"statements": verdicts(prompt.evidence.get("statements", ()), text_in(prompt, "context"))}


ANSWERS: Mapping[str, LexicalAnswer] = {
    "extract_statements": _extract_statements,
    "verify_statements": _verify_statements,
    "extract_statements_response": _extract_statements,
    "extract_statements_reference": _extract_statements,
    "verify_reference_statements": _verify_statements,
    "verify_response_statements": _verify_statements,
    "verify_response_against_reference": _verify_statements,
    "verify_response_claims": _verify_statements,
    "verify_reference_claims": _verify_statements,
}


def states_nothing(sentence: str) -> bool:
    """Whether a sentence asks, greets, gives up or has no word of content."""
    said = words(sentence)
    empty = not (said.content or said.numbers)
    return empty or sentence.endswith(("?", "？", "؟")) or gives_up(sentence) or bool(_SMALL_TALK.match(sentence))


def gives_up(sentence: str) -> bool:
    """Whether a sentence says that it knows, tells or helps with nothing."""
    return bool(_NO_ANSWER.search(sentence))


def clauses(sentence: str) -> list[str]:
    """Cut at semicolons and at ", and", where both sides say enough to be checked."""
    parts = _CLAUSE.split(sentence)
    whole: list[str] = []
    for part in parts:
        if whole and len(words(part).content) < _CHECKABLE:
            whole[-1] = f"{whole[-1]}, {part}"
        else:
            whole.append(part)
    return whole

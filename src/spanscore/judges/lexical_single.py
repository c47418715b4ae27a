"""The lexical judge on one answer as a whole: a critique of it, and the question it would fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spanscore.judges.lexical_answer import LexicalAnswer
from spanscore.judges.lexical_statements import states_nothing
from spanscore.judges.words import sentences
from spanscore.model.prompt import Prompt

__all__ = ["ANSWERS"]

_INSULT = re.compile(r"\b(?:idiots?|stupid|moron|dumb|shut up|loser|fool|hate you|worthless|pathetic)\b", re.IGNORECASE)


def _critique(prompt: Prompt) -> Mapping[str, Any]:
    """Aspects are beyond a comparison of words: whatever the definition, an answer without insults passes, and no answer fails.

    Of a conversation the whole text counts.
    """
    said = str(prompt.evidence.get("response", prompt.evidence.get("user_input", "")))
    if not said.strip():
        return {"reason": "There is no answer.", "verdict": 0}
    if _INSULT.search(said):
        return {"reason": "It insults.", "verdict": 0}
    return {"reason": "There is an answer and it does not insult; a comparison of words sees no more.", "verdict": 1}


def _generate_question(prompt: Prompt) -> Mapping[str, Any]:
    """The answer's own first sentences, turned into a question; each ballot takes the next."""
    said = sentences(str(prompt.evidence.get("response", "")))
    stating = [sentence for sentence in said if not states_nothing(sentence)]
    if not stating:
        return {"question": " ".join(said), "noncommittal": 1}
    return {"question": stating[prompt.ballot % len(stating)].rstrip(".! ") + "?", "noncommittal": 0}


ANSWERS: Mapping[str, LexicalAnswer] = MappingProxyType(
    {
        "critique": _critique,
        "generate_question": _generate_question,
    }
)

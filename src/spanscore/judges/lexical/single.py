"""The lexical judge on one answer as a whole: a critique of it, and the question it would fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spanscore.judges.lexical.answer import LexicalAnswer, text_in
from spanscore.judges.lexical.statements import gives_up, states_nothing
from spanscore.judges.lexical.words import sentences
from spanscore.model.prompt import Prompt

__all__ = ["ANSWERS"]

_INSULT = re.compile(r"\b(?:idiots?|stupid|moron|dumb|shut up|loser|fool|hate you|worthless|pathetic)\b", re.IGNORECASE)
_OWN_WORK = re.compile(r"^(?:but )?(?:i|we) (?:can |am here to |only )*(?:answer|help|assist)\b", re.IGNORECASE)


_LOOKED_AT = ("response", "user_input", "reference", "retrieved_contexts", "reference_contexts")
"""Fields of which a critique looks at the first that there is."""


def _critique(prompt: Prompt) -> Mapping[str, Any]:
    """Aspects are beyond a comparison of words: whatever the definition, an answer without insults passes, and no answer fails.

    The text is the response, without one the question or the whole conversation, else the first field that there is.
    """
    said = text_in(prompt, next((name for name in _LOOKED_AT if name in prompt.evidence), ""))
    if not said.strip():
        return {"reason": "There is no answer.", "verdict": 0}
    if _INSULT.search(said):
        return {"reason": "It insults.", "verdict": 0}
    return {"reason": "There is an answer and it does not insult; a comparison of words sees no more.", "verdict": 1}


def _generate_question(prompt: Prompt) -> Mapping[str, Any]:
    """The answer's own first sentences, turned into a question; each ballot takes the next.

    Beside a refusal, what the assistant is there for ("I answer questions about our ferries.") commits to nothing either.
    """
    said = sentences(text_in(prompt, "response"))
    refused = any(map(gives_up, said))
    stating = [one for one in said if not states_nothing(one) and not (refused and _OWN_WORK.match(one))]
    if not stating:
        return {"question": " ".join(said), "noncommittal": 1}
    return {"question": stating[prompt.ballot % len(stating)].rstrip(".! ") + "?", "noncommittal": 0}


ANSWERS: Mapping[str, LexicalAnswer] = {
    "critique": _critique,
    "generate_question": _generate_question,
}

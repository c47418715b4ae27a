"""The lexical judge on topics: a conversation → what the user brought up, what was declined, what was allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.answer import LexicalAnswer, messages_in, said_in, text_in
from spanscore.judges.lexical.support import among
from spanscore.judges.lexical.words import words

__all__ = ["ANSWERS"]

_REFUSAL = re.compile(
    r"\b(?:(?:can(?:no|')t|can not|could not|won't|will not|unable to|not able to|not allowed to|don't)"
    r" (?:help|advise|answer|discuss|assist|comment|talk|speak|provide|do that|say)|not something i can"
    r"|(?:beyond|outside)(?: of)? (?:what i|my)|sorry, (?:but )?i)\b",
    re.IGNORECASE,
)
_ASKING = frozenset({"tell", "know", "pleas", "want", "need", "thank", "hello", "hi", "say", "said", "explain", "giv"})
"""Stems in which a user asks, rather than what the user asks about."""
_ON_TOPIC = 0.5
"""Share of a topic's words."""


def _extract_topics(prompt: Prompt) -> Mapping[str, Any]:
    topics = (_topic(turn) for turn, _ in _turns(prompt))
    return {"topics": list(dict.fromkeys(topic for topic in topics if topic))}


def _check_refusal(prompt: Prompt) -> Mapping[str, Any]:
    topic = text_in(prompt, "topic")
    replies = [reply for turn, reply in _turns(prompt) if _topic(turn) == topic or _share_of(topic, turn) >= _ON_TOPIC]
    return {"refused_to_answer": any(_REFUSAL.search(reply) for reply in replies)}


def _classify_topics(prompt: Prompt) -> Mapping[str, Any]:
    """A topic is inside when it shares half of its words, or half of theirs, with an allowed one."""
    allowed = [str(topic) for topic in prompt.evidence.get("reference_topics", ())]
    return {
        "classifications": [
            any(max(_share_of(topic, other), _share_of(other, topic)) >= _ON_TOPIC for other in allowed)
            for topic in map(str, prompt.evidence.get("topics", ()))
        ]
    }


ANSWERS: Mapping[str, LexicalAnswer] = {
    "extract_topics": _extract_topics,
    "check_refusal": _check_refusal,
    "classify_topics": _classify_topics,
}


def _turns(prompt: Prompt) -> list[tuple[str, str]]:
    """Return each of the user's turns in a conversation, with all that followed it up to the next."""
    turns: list[tuple[str, str]] = []
    for message in messages_in(prompt, "user_input"):
        if message["role"] == "user":
            turns.append((message["content"], ""))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{said_in(message)}")
    return turns


def _topic(turn: str) -> str:
    return " ".join(stem for stem in dict.fromkeys(words(turn).content) if stem not in _ASKING)


def _share_of(topic: str, text: str) -> float:
    wanted, held = words(topic).content, words(text).content
    return sum(among(stem, held) for stem in wanted) / len(wanted) if wanted else 0.0

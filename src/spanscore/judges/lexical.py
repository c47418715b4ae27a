"""The offline judge: prompts answered by comparing words. Deterministic, free, and a heuristic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from spanscore.errors import JudgeError
from spanscore.judges.support import among, objection
from spanscore.judges.words import sentences, words
from spanscore.model.prompt import Prompt, Reply

__all__ = ["LexicalJudge"]

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
_REFUSAL = re.compile(
    r"\b(?:(?:can(?:no|')t|can not|could not|won't|will not|unable to|not able to|not allowed to|don't)"
    r" (?:help|advise|answer|discuss|assist|comment|talk|speak|provide|do that|say)|not something i can|sorry, (?:but )?i)\b",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(Human|AI|ToolOutput|Tools): ?", re.MULTILINE)
_ASKING = frozenset({"tell", "know", "pleas", "want", "need", "thank", "hello", "hi", "say", "said", "explain", "giv"})
"""Stems in which a user asks, rather than what the user asks about."""
_ON_TOPIC = 0.5
"""Share of a topic's words."""
_INSULT = re.compile(r"\b(?:idiots?|stupid|moron|dumb|shut up|loser|fool|hate you|worthless|pathetic)\b", re.IGNORECASE)

Answer: TypeAlias = Callable[[Prompt], Mapping[str, Any]]


class LexicalJudge:
    """A judge that needs no model: it compares words, numbers, names and negations.

    It is meant for tests, demos and a first look without a key, not for verdicts anybody acts on. It sees that a number or a
    name is not in the context, that "not" was added or dropped, that most words of a statement are foreign to it. It does
    not see a paraphrase in other words, an inference over two sentences, a swapped subject and object, or irony, and it reads
    English only. A critique it can only pretend: see ``_critique``.

    Measured with Faithfulness on 60 answers written for it (20 topics, each with a grounded, a partly grounded and an
    ungrounded answer; tests/data/grounding.jsonl): AUC of grounded against ungrounded 0.995 on the ten topics it was not
    tuned on (1.00 on the ten it was), mean scores 0.83, 0.42 and 0.03. A grounded answer loses a sixth to its paraphrases.

    Raises JudgeError for a step it has no heuristic for.
    """

    model = "lexical-1"

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt; the same prompt always gets the same answer.

        Raises:
            JudgeError: there is no heuristic for this step.
        """
        answer = _ANSWERS.get(prompt.step)
        if answer is None:
            known = ", ".join(_ANSWERS)
            raise JudgeError(f"the lexical judge cannot answer {prompt.step}, only {known}", error_type="unknown_step")
        return Reply(text=json.dumps(answer(prompt), ensure_ascii=False), model=self.model)


def _extract_statements(prompt: Prompt) -> Mapping[str, Any]:
    """Sentences of the answer, cut at clauses; questions, small talk and "I do not know" state nothing."""
    stating = [s for s in sentences(str(prompt.evidence.get("answer", ""))) if not _states_nothing(s)]
    return {"statements": [clause for sentence in stating for clause in _clauses(sentence)]}


def _verify_statements(prompt: Prompt) -> Mapping[str, Any]:
    context = str(prompt.evidence.get("context", ""))
    rows = []
    for statement in prompt.evidence.get("statements", ()):
        against = objection(str(statement), context)
        rows.append(
            {"statement": statement, "reason": against or "Its words are there.", "verdict": int(against is None)}
        )
    return {"statements": rows}


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
    stating = [sentence for sentence in said if not _states_nothing(sentence)]
    if not stating:
        return {"question": " ".join(said), "noncommittal": 1}
    return {"question": stating[prompt.ballot % len(stating)].rstrip(".! ") + "?", "noncommittal": 0}


def _extract_topics(prompt: Prompt) -> Mapping[str, Any]:
    """What the content words of each of the user's turns are."""
    topics = (_topic(turn) for turn, _ in _turns(prompt))
    return {"topics": list(dict.fromkeys(topic for topic in topics if topic))}


def _check_refusal(prompt: Prompt) -> Mapping[str, Any]:
    """Whether what followed the turn with this topic declines."""
    topic = str(prompt.evidence.get("topic", ""))
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


_ANSWERS: Mapping[str, Answer] = MappingProxyType(
    {
        "extract_statements": _extract_statements,
        "verify_statements": _verify_statements,
        "critique": _critique,
        "generate_question": _generate_question,
        "extract_topics": _extract_topics,
        "check_refusal": _check_refusal,
        "classify_topics": _classify_topics,
    }
)
"""Step → how it is answered. A new step is a function and a line here."""


def _states_nothing(sentence: str) -> bool:
    return (
        sentence.endswith("?")
        or bool(_NO_ANSWER.search(sentence) or _SMALL_TALK.match(sentence))
        or not (words(sentence).content or words(sentence).numbers)
    )


def _clauses(sentence: str) -> list[str]:
    """Cut at semicolons and at ", and", where both sides say enough to be checked."""
    parts = _CLAUSE.split(sentence)
    whole: list[str] = []
    for part in parts:
        if whole and len(words(part).content) < _CHECKABLE:
            whole[-1] = f"{whole[-1]}, {part}"
        else:
            whole.append(part)
    return whole


def _turns(prompt: Prompt) -> list[tuple[str, str]]:
    """Return each of the user's turns in a rendered conversation, with all that followed it up to the next."""
    pieces = _SPEAKER.split(str(prompt.evidence.get("user_input", "")))[1:]
    turns: list[tuple[str, str]] = []
    for speaker, text in zip(pieces[::2], pieces[1::2], strict=True):
        if speaker == "Human":
            turns.append((text, ""))
        elif turns:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{text}")
    return turns


def _topic(turn: str) -> str:
    return " ".join(stem for stem in dict.fromkeys(words(turn).content) if stem not in _ASKING)


def _share_of(topic: str, text: str) -> float:
    """Return the share of a topic's words that a text holds."""
    wanted, held = words(topic).content, words(text).content
    return sum(among(stem, held) for stem in wanted) / len(wanted) if wanted else 0.0

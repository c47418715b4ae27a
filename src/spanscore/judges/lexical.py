"""The offline judge: prompts answered by comparing words. Deterministic, free, and a heuristic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

from spanscore.errors import JudgeError
from spanscore.judges.words import OPPOSITES, Words, akin, sentences, words
from spanscore.model.prompt import Prompt, Reply

__all__ = ["LexicalJudge"]

_SUPPORTED = 0.5
"""Least share of a statement's content words that its context must hold."""
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
        objection = _objection(str(statement), context)
        rows.append(
            {"statement": statement, "reason": objection or "Its words are there.", "verdict": int(objection is None)}
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


_ANSWERS: Mapping[str, Answer] = MappingProxyType(
    {
        "extract_statements": _extract_statements,
        "verify_statements": _verify_statements,
        "critique": _critique,
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


def _objection(statement: str, context: str) -> str | None:
    """Say why the context does not support the statement, None when nothing speaks against it."""
    said = words(statement)
    places = _windows(context)
    if not places:
        return "There is no context."
    everywhere = words(context)
    if foreign := sorted(said.numbers - everywhere.numbers):
        return f"The context does not have {', '.join(foreign)}."
    if foreign := sorted(name for name in said.names if not _held(name, everywhere)):
        return f"The context does not name {', '.join(foreign)}."
    best = max(places, key=lambda place: _share(said, place))
    share = _share(said, best)
    if share < _SUPPORTED:
        return f"Only {share:.0%} of its words are in any one place of the context."
    return _contradiction(said, best)


def _contradiction(said: Words, place: Words) -> str | None:
    if not any(_among(stem, place.denied) for stem in said.denied):  # else both deny the same
        if denied := sorted(stem for stem in said.affirmed if _only_denied(stem, place)):
            return f"The context denies it: {', '.join(denied)}."
        if denied := sorted(stem for stem in said.denied if _among(stem, place.affirmed)):
            return f"The context says so, the statement denies it: {', '.join(denied)}."
        if said.denied and not place.denied:
            return "The statement denies something, the context does not."
    opposed = [stem for stem in said.content for other in OPPOSITES.get(stem, ()) if other in place.content]
    if opposed := [stem for stem in opposed if not _held(stem, place)]:
        return f"The context says the opposite of {', '.join(opposed)}."
    return None


def _only_denied(stem: str, place: Words) -> bool:
    return _among(stem, place.denied) and not _among(stem, place.affirmed)


def _windows(context: str) -> list[Words]:
    """Sentences of the context, and each two neighbours together."""
    single = sentences(context)
    return [words(text) for text in (*single, *(f"{one} {other}" for one, other in pairwise(single)))]


def _held(stem: str, place: Words) -> bool:
    return _among(stem, place.content)


def _among(stem: str, stems: Iterable[str]) -> bool:
    return any(akin(stem, other) for other in stems)


def _share(said: Words, place: Words) -> float:
    """Return the share of the statement's words and numbers that a place of the context holds."""
    wanted = len(said.content) + len(said.numbers)
    if not wanted:
        return 1.0
    return (sum(_held(stem, place) for stem in said.content) + len(said.numbers & place.numbers)) / wanted

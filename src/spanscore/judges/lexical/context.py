"""The lexical judge on retrieval: a question, its answer and a context → whether the one is of use for the other.

A context is of use for a question when it holds the question's words, those beside its names above all (names are in every
text about the subject), and something of the kind that is asked for: a time where it says "when", a name where it says "who".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.answer import LexicalAnswer, text_in
from spanscore.judges.lexical.statements import stated, verdicts
from spanscore.judges.lexical.support import among, objection
from spanscore.judges.lexical.words import Words, listed, sentences, words

__all__ = ["ANSWERS"]

_NAME_WEIGHT = 0.5
"""What a name counts beside an ordinary word of the question: the near misses of a search share the names."""
_SPEAKS_OF_IT = 0.3
"""Weighted share of the question's words from which a text speaks of the same. These were tuned on the tuning half alone."""
_SAYS_IT = 0.85
_ASKING = listed(
    "tell know pleas want need explain giv describ find get tak long much many often far do happen last first possibl"
)
"""Stems in which a user asks, rather than what is asked about."""

_TIME = (
    r"\b(?:\d{1,2}[:.]\d{2}|1\d{3}|20\d{2}|o'clock|noon|midnight|daily|(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    r"|january|february|march|april|may \d|\d may|june|july|august|september|october|november|december|until|after|once)\b"
)
_SPAN = r"\b(?:second|minute|hour|day|week|month|year|night)s?\b"
_AMOUNT = r"(?:\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand)\b)"
_MONEY = r"\b(?:euros?|cents?|dollars?|pounds?|crowns?|fee|free|charged?|per cent|percent)\b|[€$£%]"
_OFTEN = r"\b(?:every|each|daily|weekly|monthly|yearly|once|twice|per|times)\b"
_PERMISSION = (
    r"\b(?:can|may|might|must|cannot|not|no|never|neither|nor|without|allowed|permitted|forbidden|welcome|possible|excluded"
    r"|included?|provided|only|from)\b"
)
_PLACE = (
    r"\b(?:in|at|on|near|behind|beside|opposite|between)\b (?:the )?(?:[A-Z]|\d|\w+ (?:room|floor|street|office|hall))"
)
_CAUSE = r"\b(?:because|since|due to|comes? from|caused?|so that|therefore|owing|reason)\b"
_ORDER = (
    r"(?:^|[.!?:;,] )(?:do|go|use|call|press|give|set|keep|switch|wipe|clean|block|open|leave|carry|remove|\w+ it)\b"
)
_NAMED = "a name"

_KINDS = (
    (r"\bhow often\b", _OFTEN),
    (r"\b(?:how much|price|cost|fee|fine|charged?|by how)\b", _MONEY),
    (r"\bhow long\b|\bhow many (?:days|weeks|months|years|hours|minutes)\b|\bperiod\b", rf"{_AMOUNT}.{{0,20}}{_SPAN}"),
    (r"\bhow (?:many|deep|high|far|old|big|tall|heavy|fast|large)\b|\btemperature\b|\bversion\b", _AMOUNT),
    (r"^when\b|\bwhat time\b|\b(?:which|what) (?:days?|year|month|date)\b", _TIME),
    (r"^who\b|\bwhose\b|\bby whom\b", _NAMED),
    (r"^where\b", _PLACE),
    (r"^why\b", _CAUSE),
    (r"\bhow (?:do|can|should|must) i\b|\bwhat (?:must|should|can|do) i\b", _ORDER),
    (r"^(?:is|are|can|may|do|does|did|must|should|will|was|were)\b", _PERMISSION),
)
"""What a question asks for → how a text that gives it looks. The first that fits counts."""


def _judge_context(prompt: Prompt) -> Mapping[str, Any]:
    context, answer = text_in(prompt, "context"), text_in(prompt, "answer")
    if any(objection(statement, context) is None for statement in stated(answer)):
        return {"reason": "A statement of the answer is there.", "verdict": 1}
    return {"reason": "No statement of the answer is there.", "verdict": 0}


def _classify_reference_sentences(prompt: Prompt) -> Mapping[str, Any]:
    rows = verdicts(sentences(text_in(prompt, "answer")), text_in(prompt, "context"))
    for row in rows:
        row["attributed"] = row.pop("verdict")
    return {"classifications": rows}


def _relevance_by_words(prompt: Prompt) -> Mapping[str, Any]:
    """How much of what the question says stands in one place of the context."""
    share = max((share for share, _ in _places(prompt)), default=0.0)
    return {"rating": (share >= _SPEAKS_OF_IT) + (share >= _SAYS_IT)}


def _relevance_by_kind(prompt: Prompt) -> Mapping[str, Any]:
    """1 when a place gives something of the kind that is asked for, 2 when it speaks of it too; no kind known: the words."""
    if _kind(text_in(prompt, "question")) is None:
        return _relevance_by_words(prompt)
    best = max((share for share, fits in _places(prompt) if fits), default=None)
    return {"rating": 0 if best is None else 1 + (best >= _SPEAKS_OF_IT)}


def _relevance(prompt: Prompt) -> Mapping[str, Any]:
    return {"first": _relevance_by_words(prompt)["rating"], "second": _relevance_by_kind(prompt)["rating"]}


def _extract_sentences(prompt: Prompt) -> Mapping[str, Any]:
    question = text_in(prompt, "question")
    wanted, said = words(question), sentences(text_in(prompt, "context"))
    return {"sentences": [sentence for sentence in said if _share(wanted, words(sentence)) >= _SPEAKS_OF_IT]}


def _places(prompt: Prompt) -> Iterator[tuple[float, bool]]:
    """Yield for each two neighbouring sentences of the context the share of the question's words, and whether the kind fits."""
    question, context = (text_in(prompt, name) for name in ("question", "context"))
    wanted = words(question)
    kind = _kind(question)
    said = sentences(context)
    for one, other in zip(said, [*said[1:], ""], strict=True):
        place = f"{one} {other}".strip()
        yield _share(wanted, words(place)), kind is not None and _fits(kind, wanted, place)


def _kind(question: str) -> str | None:
    """Return how a text looks that gives what the question asks for, None when there is no telling."""
    return next((look for asks, look in _KINDS if re.search(asks, question.strip(), re.IGNORECASE)), None)


def _fits(kind: str, wanted: Words, place: str) -> bool:
    """Whether a text gives what is asked for; who asks for a name asks for another than he gives."""
    if kind == _NAMED:
        return bool(words(place).names - wanted.names)
    return bool(re.search(kind, place, 0 if kind == _PLACE else re.IGNORECASE))


def _share(wanted: Words, place: Words) -> float:
    """Return the weighted share of the question's words that a place holds; who names the same thing speaks of it."""
    asked = [stem for stem in dict.fromkeys(wanted.content) if stem not in _ASKING]
    weights = {stem: _NAME_WEIGHT if stem in wanted.names else 1.0 for stem in asked}
    total = sum(weights.values()) + len(wanted.numbers)
    held = sum(weight for stem, weight in weights.items() if among(stem, place.content))
    share = (held + len(wanted.numbers & place.numbers)) / total if total else 0.0
    named = any(among(stem, place.content) for stem in wanted.names)
    return max(share, _SPEAKS_OF_IT) if named else share


ANSWERS: Mapping[str, LexicalAnswer] = {
    "judge_context": _judge_context,
    "classify_reference_sentences": _classify_reference_sentences,
    "judge_relevance": _relevance,
    "judge_relevance_1": _relevance_by_words,
    "judge_relevance_2": _relevance_by_kind,
    "extract_sentences": _extract_sentences,
}

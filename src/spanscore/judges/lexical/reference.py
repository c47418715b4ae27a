"""The lexical judge on answers beside a reference: right or wrong statements, a grade, a goal that was reached or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spanscore.core.prompt import Prompt
from spanscore.judges.lexical.answer import LexicalAnswer, messages_in, text_in
from spanscore.judges.lexical.statements import stated, states_nothing
from spanscore.judges.lexical.support import objection, share_of
from spanscore.judges.lexical.words import sentences, words

__all__ = ["ANSWERS"]

_REACHED = 0.5
"""Share of a wanted outcome's words and numbers that the one arrived at must hold."""
_FAILED = re.compile(
    r"\b(?:can(?:no|')t|can not|could not|couldn't|unable|failed|not (?:find|found|possible|available|allowed)"
    r"|sorry|unfortunately|no (?:results?|luck|seats?|such))\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<!\d)-?\d+(?:\.\d+)?")
_SPAN = re.compile(r"(-?\d+) to (-?\d+)")
_LISTED = re.compile(r"^(-?\d+(?:\.\d+)?): ", re.MULTILINE)
_OPEN_SCALE = range(1, 6)
"""Grades where neither the answer's schema nor the rubric says which there are."""


def _decompose(prompt: Prompt) -> Mapping[str, Any]:
    return {"claims": stated(text_in(prompt, "response"))}


def _classify_statements(prompt: Prompt) -> Mapping[str, Any]:
    """A statement is right when nothing in the other list speaks against it."""
    said, true = _list(prompt, "answer"), _list(prompt, "ground_truth")
    wrong = [_against(statement, true) for statement in said]
    lacking = [_against(statement, said) for statement in true]
    right = [statement for statement, why in zip(said, wrong, strict=True) if not why]
    return {
        "TP": [{"statement": statement, "reason": "Its words are there."} for statement in right],
        "FP": [{"statement": s, "reason": why} for s, why in zip(said, wrong, strict=True) if why],
        "FN": [{"statement": s, "reason": why} for s, why in zip(true, lacking, strict=True) if why],
    }


def _against(statement: str, others: Iterable[str]) -> str | None:
    ended = (other if other.endswith((".", "!", "?")) else f"{other}." for other in others)
    return objection(statement, " ".join(ended))


def _classify_pairs(prompt: Prompt) -> Mapping[str, Any]:
    """Sure of everything: 1 when nothing in the text speaks against the statement, else 0."""
    pairs = prompt.evidence.get("pairs", ())
    return {"scores": [float(objection(str(statement), str(text)) is None) for text, statement in pairs]}


def _grade(field: str) -> LexicalAnswer:
    """Grades are beyond a comparison of words: the more of the reference's words an answer has (of the contexts' or the
    question's where there is no reference), the higher its grade; an answer that says nothing has the lowest.
    """

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        grades = _scale(prompt)
        said = text_in(prompt, "response") or _end(prompt, "user_input")
        against = next((text for name in _BESIDE if (text := text_in(prompt, name))), "")
        silent = all(map(states_nothing, sentences(said)))
        share = 0.0 if silent else share_of(words(against), words(said), of_nothing=0.0)
        reason = f"It has {share:.0%} of the words it is compared with; a comparison of words sees no more."
        return {field: reason, "score": grades[round(share * (len(grades) - 1))]}

    return answer


_BESIDE = ("reference", "reference_contexts", "retrieved_contexts", "user_input")


def _infer_goal_outcome(prompt: Prompt) -> Mapping[str, Any]:
    turns = (message["content"].strip() for message in messages_in(prompt, "workflow") if message["role"] == "user")
    return {"user_goal": " ".join(turns), "end_state": _end(prompt, "workflow")}


def _compare_outcome(prompt: Prompt) -> Mapping[str, Any]:
    wanted, arrived = text_in(prompt, "desired_outcome"), text_in(prompt, "arrived_outcome")
    if _FAILED.search(arrived) and not _FAILED.search(wanted):
        return {"reason": "It says that something failed.", "verdict": 0}
    share = share_of(words(wanted), words(arrived), of_nothing=0.0)
    return {"reason": f"It holds {share:.0%} of what was wanted.", "verdict": int(share >= _REACHED)}


ANSWERS: Mapping[str, LexicalAnswer] = {
    "classify_statements": _classify_statements,
    "classify_pairs": _classify_pairs,
    "decompose_response": _decompose,
    "decompose_reference": _decompose,
    "score_criteria": _grade("reason"),
    "score_rubric": _grade("feedback"),
    "infer_goal_outcome": _infer_goal_outcome,
    "compare_outcome": _compare_outcome,
}


def _list(prompt: Prompt, name: str) -> list[str]:
    return [str(item) for item in prompt.evidence.get(name, ())]


def _end(prompt: Prompt, name: str) -> str:
    """Return what was said or found last in a conversation; a text that is none, as it is."""
    if messages := messages_in(prompt, name):
        said = [message["content"] for message in messages if message["role"] != "user" and "content" in message]
        return str(said[-1]).strip() if said else ""
    return text_in(prompt, name)


def _scale(prompt: Prompt) -> Sequence[float]:
    """Return the grades in order: of the answer's shape, else of the rubric in the instruction or beside the sample."""
    told = str(prompt.output.model_json_schema()["properties"]["score"].get("description", ""))
    if (span := _SPAN.fullmatch(told)) is not None:
        return range(int(span[1]), int(span[2]) + 1)
    rubric = " ".join([*_LISTED.findall(prompt.instruction), *map(str, prompt.evidence.get("rubrics", ()))])
    return (
        sorted({float(grade) if "." in grade else int(grade) for grade in _NUMBER.findall(told or rubric)})
        or _OPEN_SCALE
    )

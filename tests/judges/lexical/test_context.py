"""The offline judge on retrieval: the judgements that words allow, those they do not, and an answer to every step."""

from __future__ import annotations

import json
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from tests.judges.models import Answer

from spanscore.core.prompt import Prompt
from spanscore.core.sample import SingleTurnSample
from spanscore.judges.lexical.judge import ANSWERS
from spanscore.metrics import ContextPrecision, ContextRelevance

DATA = Path(__file__).parents[2] / "data" / "context_relevance.jsonl"
KINDS = ("relevant", "near", "far")


@cache
def questions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]


def test_the_data_are_stratified_and_no_question_comes_twice() -> None:
    assert [row["split"] for row in questions()] == ["held"] * 22 + ["tune"] * 22
    assert len({row["question"] for row in questions()}) == 44
    assert all(row[kind] for row in questions() for kind in KINDS)


def test_with_the_reference_it_tells_useful_contexts_on_questions_it_was_not_tuned_on() -> None:
    relevant, near, far = (_scores(ContextPrecision("lexical"), kind) for kind in KINDS)

    assert _auc(relevant, near + far) >= 0.85


def test_with_the_question_alone_it_tells_the_contexts_of_other_questions() -> None:
    metric, held = ContextRelevance("lexical"), [row for row in questions() if row["split"] == "held"]
    others = [
        _score(metric, row, context)
        for row, other in permutations(held, 2)
        for context in (*other["relevant"], *other["near"])
    ]

    assert len(others) == 22 * 21 * 2
    assert _auc(_scores(metric, "relevant"), others) >= 0.85


@pytest.mark.parametrize(
    ("step", "evidence", "answer"),
    [
        ("judge_context", {"answer": "In 1931.", "context": "It opened in 1931."}, {"verdict": 1}),
        ("judge_context", {"answer": "In 1931.", "context": "It opened in 1913."}, {"verdict": 0}),
        ("judge_accuracy_1", {"answer": "It opened in 1931.", "reference": "In 1931."}, {"rating": 4}),
        ("judge_accuracy_2", {"answer": "It opened in 1913.", "reference": "In 1931."}, {"rating": 0}),
        ("judge_groundedness_1", {"response": "It opened in 1931.", "context": "It opened in 1931."}, {"rating": 2}),
        ("judge_groundedness_2", {"response": "It opened in 1913.", "context": "It opened in 1931."}, {"rating": 0}),
        ("judge_relevance_2", {"question": "Who built it?", "context": "It was built by Ada Holm."}, {"rating": 2}),
        ("judge_relevance_2", {"question": "Who built it?", "context": "It was built of stone."}, {"rating": 0}),
        (
            "extract_sentences",
            {"question": "Who built it?", "context": "Ada built it. Cats sleep."},
            {"sentences": ["Ada built it."]},
        ),
        (
            "extract_entities_reference",
            {"text": "The Orlo bridge opened in 1,931. Tenants met Rosa Thule of Brenna there."},
            {"entities": ["Orlo", "1,931", "Rosa Thule of Brenna"]},
        ),
    ],
)
def test_its_answers(step: str, evidence: dict[str, Any], answer: dict[str, Any]) -> None:
    given = ANSWERS[step](Prompt(step=step, instruction="", evidence=evidence, output=Answer))

    assert {key: given[key] for key in answer} == answer


def _scores(metric: Any, kind: str) -> list[float]:
    """Return the score of each context of a kind by itself, on the held half."""
    return [_score(metric, row, context) for row in questions() if row["split"] == "held" for context in row[kind]]


def _score(metric: Any, row: dict[str, Any], context: str) -> float:
    sample = SingleTurnSample(user_input=row["question"], reference=row["answer"], retrieved_contexts=[context])
    value: float = metric.score_sync(sample).value
    return value


def _auc(better: list[float], worse: list[float]) -> float:
    pairs = [(one > other) + 0.5 * (one == other) for one, other in product(better, worse)]
    return sum(pairs) / len(pairs)

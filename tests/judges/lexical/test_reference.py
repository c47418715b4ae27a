"""The offline judge with a reference: right and wrong answers, kept and left topics, grades and goals."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.metrics import (
    AgentGoalAccuracyWithReference,
    AnswerCorrectness,
    FaithfulnessWithHHEM,
    InstanceRubrics,
    Rubrics,
    SimpleCriteria,
    TopicAdherence,
)

DATA = Path(__file__).parents[2] / "data"


@cache
def cases(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / file).read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("file", "labels", "each"),
    [("answers.jsonl", ("right", "wrong"), 12), ("conversations.jsonl", ("adhering", "straying"), 8)],
)
def test_the_data_are_stratified(file: str, labels: tuple[str, str], each: int) -> None:
    counted = [
        sum((case["split"], case["label"]) == cell for case in cases(file))
        for cell in product(("tune", "held"), labels)
    ]

    assert counted == [each] * 4


def test_answer_correctness_tells_right_from_wrong_answers_it_was_not_tuned_on() -> None:
    metric = AnswerCorrectness("lexical")

    right, wrong = (
        [_value(metric, _answer(case)) for case in _held("answers.jsonl", label)] for label in ("right", "wrong")
    )

    assert _auc(right, wrong) >= 0.85


def test_topic_adherence_tells_kept_from_left_topics_it_was_not_tuned_on() -> None:
    metric = TopicAdherence("lexical")

    kept, left = (
        [_value(metric, _talk(case)) for case in _held("conversations.jsonl", label)]
        for label in ("adhering", "straying")
    )

    assert _auc(kept, left) >= 0.85


@pytest.mark.parametrize(
    ("last", "reached"),
    [
        ("I booked table 4 at Orlo for Friday at 19:30.", 1.0),
        ("Unfortunately there is no table at Orlo on Friday.", 0.0),
        ("The weather will be fine.", 0.0),
    ],
)
def test_a_goal_is_reached_when_its_words_are_and_nothing_failed(last: str, reached: float) -> None:
    talk = MultiTurnSample.model_validate(
        {
            "user_input": [{"type": "human", "content": "A table at Orlo, please."}, {"type": "ai", "content": last}],
            "reference": "A table at Orlo is booked for Friday.",
        }
    )

    assert AgentGoalAccuracyWithReference("lexical").score_sync(talk).value == reached


def test_grades_keep_to_the_scale_and_rise_with_the_reference() -> None:
    bad, good = (
        SingleTurnSample(user_input="When?", response=said, reference="The bridge opened in 1931.", rubrics=_TEN)
        for said in ("I don't know.", "The bridge opened in 1931.")
    )

    for metric, low, high in (
        (SimpleCriteria("lexical", definition="Grade it.", range=[0, 3]), 0.0, 3.0),
        (Rubrics("lexical"), 1.0, 5.0),
        (InstanceRubrics("lexical"), 1.0, 10.0),
    ):
        assert [metric.score_sync(sample).value for sample in (bad, good)] == [low, high]


def test_a_lexical_judge_is_a_lexical_classifier_too() -> None:
    sample = SingleTurnSample(
        user_input="When?", response="It opened in 1931. It closed in 1950.", retrieved_contexts=["It opened in 1931."]
    )

    assert FaithfulnessWithHHEM("lexical").score_sync(sample).value == 0.5


_TEN = {"score1_description": "Wrong.", "score10_description": "Right."}


def _held(file: str, label: str) -> list[dict[str, Any]]:
    return [case for case in cases(file) if (case["split"], case["label"]) == ("held", label)]


def _answer(case: dict[str, Any]) -> SingleTurnSample:
    return SingleTurnSample(user_input=case["question"], response=case["answer"], reference=case["reference"])


def _talk(case: dict[str, Any]) -> MultiTurnSample:
    return MultiTurnSample.model_validate({key: case[key] for key in ("user_input", "reference_topics")})


def _value(metric: Any, sample: Any) -> float:
    value: float | None = metric.score_sync(sample).value
    assert value is not None
    return value


def _auc(better: list[float], worse: list[float]) -> float:
    pairs = [(one > other) + 0.5 * (one == other) for one, other in product(better, worse)]
    return sum(pairs) / len(pairs)

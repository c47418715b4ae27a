"""Each metric that may judge images gives its judge the images of its evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from spanscore.core import loop
from spanscore.core.sample import AIMessage, HumanMessage, Image, MultiTurnSample, SingleTurnSample
from spanscore.core.score import Score
from spanscore.metrics import (
    AspectCritic,
    ContextRelevance,
    Faithfulness,
    Rubrics,
    SimpleCriteria,
)
from spanscore.testing import ScriptedJudge

ASKED, FOUND = (Image(url=f"https://example.org/{name}.png") for name in ("asked", "found"))
SAMPLE = SingleTurnSample(
    user_input="What is [image 1]?",
    response="A cat.",
    retrieved_contexts=["A text.", "[image 2]"],
    images=[ASKED, FOUND],
)
CONVERSATION = MultiTurnSample(
    user_input=[HumanMessage(content="What is [image 1]?"), AIMessage(content="A cat.")], images=[ASKED]
)
RUBRICS = {f"score{grade}_description": f"grade {grade}" for grade in range(1, 6)}


class Seeing(ScriptedJudge):
    """A scripted judge that reads images."""

    reads_images = True


def images_of(metric: Any, judge: Seeing, sample: Any = SAMPLE) -> list[Mapping[int, Image]]:
    score = metric.score_sync(sample)
    assert score.value is not None, score.reason
    return [prompt.images for prompt in judge.calls]


@pytest.mark.parametrize("sample", [SAMPLE, CONVERSATION])
def test_a_critic_sees_the_images_of_turn_and_conversation(sample: Any) -> None:
    judge = Seeing([{"step": "critique", "output": {"reason": "r", "verdict": 1}}])

    assert images_of(AspectCritic(name="right", definition="It is right.", judge=judge), judge, sample) == [{1: ASKED}]


BARE_TURN = SingleTurnSample(user_input="What is it?", response="A cat.", images=[ASKED])
BARE_MESSAGES = [HumanMessage(content="Hello!"), HumanMessage(content="What is it?"), AIMessage(content="A cat.")]
BARE_CONVERSATION = MultiTurnSample(user_input=BARE_MESSAGES, images=[ASKED])


@pytest.mark.parametrize("sample", [BARE_TURN, BARE_CONVERSATION])
def test_an_image_without_a_marker_belongs_to_the_question(sample: Any) -> None:
    judge = Seeing([{"step": "critique", "output": {"reason": "r", "verdict": 1}}])

    assert images_of(AspectCritic(name="right", definition="It is right.", judge=judge), judge, sample) == [{1: ASKED}]
    assert r"What is it?\n[image 1]" in str(judge.calls[0])


@pytest.mark.parametrize(
    "metric",
    [
        lambda judge: SimpleCriteria(name="right", definition="Is it right?", judge=judge),
        lambda judge: Rubrics(rubrics=RUBRICS, judge=judge),
    ],
)
def test_criteria_and_rubrics_see_the_images_of_the_question(metric: Any) -> None:
    judge = Seeing()
    metric(judge).score_sync(SAMPLE)

    assert [prompt.images for prompt in judge.calls][:1] == [{1: ASKED}]


def test_faithfulness_verifies_against_contexts_that_are_images() -> None:
    answers: Sequence[Mapping[str, Any]] = [
        {"step": "extract_statements", "output": {"statements": ["It is a cat."]}},
        {
            "step": "verify_statements",
            "output": {"statements": [{"statement": "It is a cat.", "reason": "r", "verdict": 1}]},
        },
    ]
    judge = Seeing(answers)

    assert images_of(Faithfulness(judge), judge) == [{1: ASKED}, {2: FOUND}]


def test_context_relevance_sees_question_and_contexts() -> None:
    judge = Seeing([{"step": f"judge_relevance_{n}", "output": {"rating": 2}} for n in (1, 2)])

    assert images_of(ContextRelevance(judge), judge) == [{1: ASKED, 2: FOUND}] * 2


def test_a_bundle_of_criteria_has_the_images_once() -> None:
    verdicts = {"right": {"reason": "r", "verdict": 1}, "kind": {"reason": "r", "verdict": 1}}
    judge = Seeing([{"step": "judge_criteria", "output": verdicts}])
    metrics = [AspectCritic(judge, name=name, definition=f"It is {name}.", bundle=True) for name in verdicts]

    async def score_all() -> list[Score]:
        return await asyncio.gather(*(metric.score(SAMPLE) for metric in metrics))

    assert [score.value for score in loop.run(score_all())] == [1.0, 1.0]
    assert [prompt.images for prompt in judge.calls] == [{1: ASKED}]


def test_samples_with_equal_texts_and_different_images_share_no_bundle() -> None:
    verdicts = {name: {"reason": "r", "verdict": 1} for name in ("right", "kind")}
    judge = Seeing([{"step": "judge_criteria", "output": {name: verdict}} for name, verdict in verdicts.items()])
    right, kind = (AspectCritic(judge, name=name, definition=f"It is {name}.", bundle=True) for name in verdicts)
    first, second = (SAMPLE.model_copy(update={"images": [image]}) for image in (ASKED, FOUND))

    async def score_both() -> list[Score]:
        return await asyncio.gather(right.score(first), kind.score(second))

    assert [score.value for score in loop.run(score_both())] == [1.0, 1.0]
    assert [([*prompt.criteria], prompt.images) for prompt in judge.calls] == [
        (["right"], {1: ASKED}),
        (["kind"], {1: FOUND}),
    ]

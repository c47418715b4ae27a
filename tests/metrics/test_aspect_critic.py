"""AspectCritic: votes are really asked for, and a tie does not pass."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.errors import ConfigurationError, JudgeUnavailable
from spanscore.metrics import AspectCritic
from spanscore.testing import ScriptedJudge

SAMPLE = SingleTurnSample(user_input="Hello?", response="Good morning.")


def votes(*verdicts: int) -> ScriptedJudge:
    return ScriptedJudge(
        {"step": "critique", "output": {"reason": f"voter {i} says {verdict}", "verdict": verdict}}
        for i, verdict in enumerate(verdicts)
    )


def test_the_majority_decides_and_one_of_its_voters_gives_the_reason() -> None:
    score = AspectCritic(votes(1, 0, 0), definition="Polite?", strictness=3).score_sync(SAMPLE)

    assert (score.value, score.label, score.votes) == (0.0, "fail", Votes(3, 3))
    assert score.explanation == "2 of 3 votes for 0: voter 1 says 0"


def test_votes_are_numbered_and_open_at_the_same_time() -> None:
    most = 0

    class Waiting:
        model = "waiting"

        def __init__(self) -> None:
            self.open: list[int] = []

        async def ask(self, prompt: Prompt) -> Reply:
            nonlocal most
            self.open.append(prompt.vote_index)
            most = max(most, len(self.open))
            await asyncio.sleep(0)
            return Reply(text='{"verdict": 1}')

    judge = Waiting()
    AspectCritic(judge, definition="Polite?", strictness=5).score_sync(SAMPLE)

    assert (judge.open, most) == ([0, 1, 2, 3, 4], 5)


def test_a_lost_vote_does_not_count() -> None:
    score = AspectCritic(votes(1, 1), definition="Polite?", strictness=3).score_sync(SAMPLE)

    assert (score.value, score.votes) == (1.0, Votes(requested=3, received=2))


@pytest.mark.parametrize(("direction", "value"), [("higher", 0.0), ("lower", 1.0)])
def test_a_tie_is_the_failing_verdict(direction: Any, value: float) -> None:
    score = AspectCritic(votes(1, 0), definition="x", strictness=3, direction=direction).score_sync(SAMPLE)

    assert (score.value, score.label) == (value, "fail")


def test_without_any_vote_there_is_no_score() -> None:
    class Away:
        model = "away"

        async def ask(self, prompt: Prompt) -> Reply:
            raise JudgeUnavailable("gone", error_type="http_503")

    score = AspectCritic(Away(), definition="x", strictness=3).score_sync(SAMPLE)

    assert (score.outcome, score.value, score.error_type) == (Outcome.JUDGE_ERROR, None, "http_503")


@pytest.mark.parametrize(("verdict", "label"), [(1, "fail"), (0, "pass")])
def test_an_unwanted_aspect_fails_where_it_holds(verdict: int, label: str) -> None:
    critic = AspectCritic(votes(verdict), definition="Could it hurt somebody?", direction="lower")

    score = critic.score_sync(SAMPLE)

    assert (score.value, score.label) == (float(verdict), label)


def test_an_empty_sample_is_missing_fields() -> None:
    judge = votes(1)

    score = AspectCritic(judge, definition="x").score_sync(SingleTurnSample())

    assert score.outcome is Outcome.MISSING_FIELD
    assert score.reason == (
        "aspect_critic needs at least one of user_input, response, reference, and the sample has none"
    )
    assert judge.calls == []


def test_the_definition_is_an_instruction_and_the_sample_is_not() -> None:
    judge = votes(1)

    AspectCritic(judge, definition="Is it {polite}?").score_sync(SAMPLE)

    assert "Is it {polite}?" in judge.calls[0].instruction
    assert "Good morning." not in judge.calls[0].instruction


def test_votes_are_part_of_the_series() -> None:
    assert AspectCritic(votes(), definition="x", strictness=4).evaluator_version.endswith("/scripted/5")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"definition": " "}, "definition is empty"),
        ({"definition": "x", "strictness": 0}, "strictness is 0"),
        ({"definition": "x", "strictness": True}, "strictness is True"),
        ({"definition": "x", "direction": "up"}, "direction is 'up'"),
        ({"definition": "x", "name": "Not Snake"}, "lower snake case"),
        ({"definition": "x", "pass_at": 2}, "pass_at is 2"),
        ({"definition": "x", "pass_at": "abc"}, "pass_at is 'abc'; it is on the quality scale, between 0 and 1"),
        ({"definition": "x", "prompts": {"verify": {}}}, "no step 'verify'"),
        ({"definition": "x", "prompts": {"critique": {"output": 1}}}, "only instruction and examples"),
        ({"definition": "x", "prompts": {"critique": {"examples": [{"evidence": {}, "output": {}}]}}}, "does not fit"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        AspectCritic(votes(), **params)

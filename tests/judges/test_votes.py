"""The votes of one score are one request, and stay separate votes."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from tests.judges.langchain.wire import Exchanged, Wire
from tests.judges.langchain.wire import chat as model_on
from tests.servers.openai_api import OpenAIServer

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome, Votes
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, ResponseRelevancy
from spanscore.testing import ScriptedEmbeddings

SAMPLE = SingleTurnSample(user_input="Hello?", response="Good morning.")


def chat(server: OpenAIServer) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="none", max_retries=0)


def voter(server: OpenAIServer, votes: int = 3) -> AspectCritic:
    return AspectCritic(chat(server), definition="Is it polite?", strictness=votes)


def voting(*verdicts: int) -> Any:
    """Answer with these verdicts, over and over, one per asked answer."""
    said = itertools.cycle(verdicts)
    return lambda body: [json.dumps({"reason": "so", "verdict": next(said)}) for _ in range(body.get("n") or 1)]


def test_a_vote_is_one_request_for_as_many_answers() -> None:
    with OpenAIServer(voting(1, 0, 1)) as server:
        score = voter(server).score_sync(SAMPLE)

    assert [body.get("n") for body in server.requests] == [3]
    assert (score.value, score.votes) == (1.0, Votes(requested=3, received=3))
    assert "2 of 3 votes" in (score.explanation or "")


def test_the_question_of_a_vote_is_paid_for_once() -> None:
    with OpenAIServer(voting(1)) as server:
        score = voter(server).score_sync(SAMPLE)

    assert (score.usage.input_tokens, score.usage.output_tokens, len(score.usage.calls)) == (20, 15, 3)


def test_guessed_questions_are_one_request() -> None:
    guesses = itertools.cycle(["Good?", "Morning?", "Hello?"])
    answers = lambda body: [json.dumps({"question": next(guesses), "noncommittal": 0}) for _ in range(body["n"])]  # noqa: E731
    vectors = ScriptedEmbeddings({"Hello?": [1, 0], "Good?": [1, 0], "Morning?": [0, 1]})
    with OpenAIServer(answers) as server:
        score = ResponseRelevancy(chat(server), vectors).score_sync(SAMPLE)

    assert score.value == pytest.approx(2 / 3)
    assert len(server.requests) == 1


def test_a_provider_that_gives_fewer_answers_is_asked_for_the_rest() -> None:
    with OpenAIServer(lambda body: [json.dumps({"reason": "so", "verdict": 1})]) as server:
        score = voter(server).score_sync(SAMPLE)

    assert score.votes == Votes(requested=3, received=3)
    assert [body.get("n") for body in server.requests] == [3, None, None]


def test_a_provider_that_refuses_twice_is_asked_one_by_one_from_then_on() -> None:
    def answer(asked: Exchanged) -> None:
        if asked.body.get("n"):
            asked.refuse(400, "n must be 1", param="n")
        else:
            asked.say(json.dumps({"reason": "so", "verdict": 1}))

    with Wire(answer) as wire:
        critic = AspectCritic(model_on(wire), definition="Is it polite?", strictness=3)
        scores = [critic.score_sync(SAMPLE) for _ in range(3)]

    assert [score.votes for score in scores] == [Votes(requested=3, received=3)] * 3
    assert [body.get("n") for body in wire.requests] == [3, *[None] * 3, 3, *[None] * 6]


def test_a_judge_that_is_away_fails_every_vote() -> None:
    with OpenAIServer(lambda body: (503, {})) as server:
        critic = AspectCritic(judge(chat(server), max_attempts=1), definition="Is it polite?", strictness=3)
        score = critic.score_sync(SAMPLE)

    assert (score.outcome, score.error_type) == (Outcome.JUDGE_ERROR, "http_503")
    assert [call.error_type for call in score.usage.calls] == ["http_503"]


@pytest.mark.parametrize("limits", [{"max_concurrency": 2}, {"requests_per_minute": 6_000}])
async def test_a_vote_is_one_request_where_limits_bind(limits: dict[str, Any]) -> None:
    samples = [SingleTurnSample(user_input=f"Hello {i}?", response="Good morning.") for i in range(8)]
    with OpenAIServer(voting(1)) as server:
        critic = AspectCritic(judge(chat(server), **limits), definition="Is it polite?", strictness=5)
        scores = await asyncio.gather(*map(critic.score, samples))

    assert [score.votes for score in scores] == [Votes(requested=5, received=5)] * 8
    assert [body.get("n") for body in server.requests] == [5] * 8


async def test_one_vote_that_cannot_be_read_is_repaired_alone() -> None:
    def answer(body: dict[str, Any]) -> list[str]:
        said = json.dumps({"reason": "so", "verdict": 1})
        return [said, "I do not know what to say.", said] if body.get("n") else [json.dumps({"text": said})]

    with OpenAIServer(answer) as server:
        score = await AspectCritic(judge(chat(server)), definition="Is it polite?", strictness=3).score(SAMPLE)

    assert (score.value, score.votes) == (1.0, Votes(requested=3, received=3))
    assert [body.get("n") for body in server.requests] == [3, None]


async def test_two_samples_that_are_the_same_are_two_questions() -> None:
    with OpenAIServer(voting(1)) as server:
        critic = voter(server, votes=1)
        scores = await asyncio.gather(*(critic.score(SAMPLE) for _ in range(4)))

    assert [score.usage.input_tokens for score in scores] == [20] * 4
    assert [body.get("n") for body in server.requests] == [None] * 4

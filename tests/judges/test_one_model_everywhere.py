"""One chat model for everything: the application's loops, the engine, ``score`` and ``score_sync``.

The application's own calls have to be such as succeed without a scorer: over successive loops a client that keeps connections
fails by itself (10 of 30 measured), so there the server hangs up after each answer; within one loop it keeps them.
"""

import asyncio
import threading

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from tests.live import a_line
from tests.servers.openai_api import OpenAIServer, judged

from spanscore import SingleTurnSample
from spanscore.metrics import AspectCritic

CALLS = 10
SAMPLE = SingleTurnSample(user_input="Hello?", response="Good morning.")


def is_judged(request):
    return "response_format" in request


def answer(request):
    return judged(request) if is_judged(request) else "Good morning."


def chat_model(server):
    return ChatOpenAI(model="gpt-4o-mini", base_url=server.url, api_key="none", max_retries=0)


def chain(model):
    return RunnableLambda(lambda question: [("user", question)]) | model


async def ask(model, config=None):
    return await asyncio.gather(
        *(chain(model).ainvoke(f"Hello {n}?", config=config) for n in range(CALLS)), return_exceptions=True
    )


def test_three_loops_of_the_application_the_engine_and_score_sync_share_a_model():
    with OpenAIServer(answer, keep_alive=False) as server:
        critic = AspectCritic(model := chat_model(server), definition="Polite?")
        with a_line(critic) as (scorer, trace):
            answers, values = [], []
            for _ in range(3):
                answers += asyncio.run(ask(model, {"callbacks": [scorer.handler]}))
                values.append(critic.score_sync(SAMPLE).value)
                assert scorer.flush(20)
            status = scorer.status()
    asked = [is_judged(request) for request in server.requests]

    assert {getattr(said, "content", said) for said in answers} == {"Good morning."}
    assert values == [1.0] * 3
    assert status.outcomes == {critic.name: {"scored": 3 * CALLS}}
    assert (asked.count(False), asked.count(True)) == (3 * CALLS, 3 * CALLS + 3)
    assert len(trace.named("chat")) == 3 * CALLS


def test_a_judge_leaves_no_connection_behind_on_which_the_application_would_fail():
    with OpenAIServer(answer) as server, asyncio.Runner() as loop:
        critic = AspectCritic(model := chat_model(server), definition="Polite?")
        with a_line(critic) as (scorer, _):
            answers = []
            for _ in range(3):
                critic.score_sync(SAMPLE)
                answers += loop.run(ask(model, {"callbacks": [scorer.handler]}))
                assert scorer.flush(20)
            status = scorer.status()

    assert [said for said in answers if isinstance(said, BaseException)] == []
    assert status.outcomes == {critic.name: {"scored": 3 * CALLS}}


def test_the_application_s_errors_over_three_loops_at_once_never_become_the_judge_s():
    scores = []

    async def both(model, critic):
        (_, *found) = await asyncio.gather(ask(model), *(critic.score(SAMPLE) for _ in range(CALLS)))
        scores.extend(found)

    with OpenAIServer(answer) as server:
        critic = AspectCritic(model := chat_model(server), definition="Polite?")
        threads = [threading.Thread(target=lambda: asyncio.run(both(model, critic))) for _ in range(3)]
        for thread in threads:
            thread.start()
        scores.append(critic.score_sync(SAMPLE))
        for thread in threads:
            thread.join()

    assert [(score.value, score.error_type) for score in scores] == [(1.0, None)] * (3 * CALLS + 1)
    assert sum(is_judged(request) for request in server.requests) == 3 * CALLS + 1


@pytest.mark.parametrize("used", ["inside", "beside"])
async def test_score_sync_works_within_a_running_loop(used):
    with OpenAIServer(answer) as server:
        critic = AspectCritic(model := chat_model(server), definition="Polite?")
        await model.ainvoke("Hello?")
        score = critic.score_sync(SAMPLE) if used == "inside" else await asyncio.to_thread(critic.score_sync, SAMPLE)
        again = await model.ainvoke("Hello?")

    assert (score.value, again.content) == (1.0, "Good morning.")

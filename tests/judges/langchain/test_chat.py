"""A LangChain chat model as a judge: structured output, plain text, provider's errors, suppression."""

from __future__ import annotations

import asyncio
import threading
from email.utils import formatdate
from time import time
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from langsmith.run_helpers import get_tracing_context, tracing_context
from langsmith.run_trees import RunTree
from langsmith.utils import tracing_is_enabled
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from tests.judges.models import (
    CRITIQUE_JSON,
    QUESTION,
    Answer,
    PlainModel,
    ProviderError,
    RefusingModel,
    ToolModel,
    openai_server,
)

from spanscore.core.context import is_judging
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeError, JudgeTimeout, JudgeUnavailable
from spanscore.judges import LangChainJudge, ask
from spanscore.metrics import AspectCritic
from spanscore.metrics.kit.statements import VERIFY_STATEMENTS


async def test_a_model_without_structured_output_is_asked_in_text() -> None:
    reply = await LangChainJudge(PlainModel()).ask(QUESTION)

    assert (reply.text, reply.model, reply.input_tokens, reply.output_tokens) == (CRITIQUE_JSON, "plain-1-0601", 30, 5)
    assert reply.duration_s is not None


async def test_structured_output_is_used_where_the_model_has_it() -> None:
    model = ToolModel()

    answer = await ask(LangChainJudge(model), QUESTION)

    assert answer == Answer(reason="polite", verdict=1)
    assert len(model.tools_seen) == 1
    assert model.seen == []


async def test_a_nested_shape_is_handed_to_the_provider_without_references() -> None:
    model = ToolModel(args={"statements": [{"statement": "s", "reason": "r", "verdict": 1}]})

    await VERIFY_STATEMENTS.ask(LangChainJudge(model), {"context": "c", "statements": ["s"]})

    assert "$ref" not in str(model.tools_seen)


async def test_a_wrong_shape_from_structured_output_is_repaired() -> None:
    model = ToolModel(args={"verdict": "maybe"})

    with pytest.raises(JudgeError):  # the double gives the same answer to the repair
        await ask(LangChainJudge(model), QUESTION)

    assert len(model.tools_seen) == 2


async def test_a_model_that_refuses_structured_output_twice_is_asked_in_text_from_then_on() -> None:
    model = ToolModel(error=ProviderError(400, body={"message": "tools are not supported"}))
    judge = LangChainJudge(model)

    texts = [(await judge.ask(QUESTION)).text for _ in range(3)]

    assert texts == [CRITIQUE_JSON] * 3
    assert (len(model.tools_seen), len(model.seen)) == (2, 3)


@pytest.mark.parametrize("status", [400, 401, 503])
async def test_a_refusal_for_another_reason_is_not_asked_again_in_text(status: int) -> None:
    model = ToolModel(error=ProviderError(status))

    with pytest.raises(JudgeError):
        await LangChainJudge(model).ask(QUESTION)

    assert model.seen == []


async def test_structured_output_can_be_switched_off() -> None:
    model = ToolModel()

    await LangChainJudge(model, structured=False).ask(QUESTION)

    assert (len(model.tools_seen), len(model.seen)) == (0, 1)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_what_may_pass_is_unavailability(status: int) -> None:
    with pytest.raises(JudgeUnavailable) as raised:
        await LangChainJudge(RefusingModel(error=ProviderError(status))).ask(QUESTION)

    assert raised.value.error_type == f"http_{status}"


@pytest.mark.parametrize(
    ("status", "named"),
    [(400, "http_400"), (401, "not_allowed"), (403, "not_allowed"), (404, "no_such_model"), (422, "http_422")],
)
async def test_what_will_not_pass_is_an_error_that_names_its_cause_and_quotes_nothing(status: int, named: str) -> None:
    with pytest.raises(JudgeError) as raised:
        await LangChainJudge(RefusingModel(error=ProviderError(status))).ask(QUESTION)

    assert type(raised.value) is JudgeError
    assert raised.value.error_type == named
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("error", [ConnectionRefusedError("x"), type("APIConnectionError", (Exception,), {})()])
async def test_a_provider_out_of_reach_is_unavailability(error: Exception) -> None:
    with pytest.raises(JudgeUnavailable) as raised:
        await LangChainJudge(RefusingModel(error=error)).ask(QUESTION)

    assert raised.value.error_type == "connection"


async def test_what_a_client_raises_of_itself_has_no_type_of_its_own() -> None:
    with pytest.raises(JudgeError, match="raised LookupError") as raised:
        await LangChainJudge(RefusingModel(error=LookupError("x"))).ask(QUESTION)

    assert raised.value.error_type == "judge_error"


@pytest.mark.parametrize("error", [TimeoutError("x"), type("APITimeoutError", (Exception,), {})()])
async def test_a_client_that_waited_in_vain_is_a_timeout(error: Exception) -> None:
    with pytest.raises(JudgeTimeout):
        await LangChainJudge(RefusingModel(error=error)).ask(QUESTION)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "2.5"}, 2.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": formatdate(time() - 60, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "1e9"}, 3_600.0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 3_600.0),
        ({}, None),
    ],
)
async def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    with pytest.raises(JudgeUnavailable) as raised:
        await LangChainJudge(RefusingModel(error=ProviderError(429, headers))).ask(QUESTION)

    assert raised.value.retry_after_s == seconds


def test_what_is_no_chat_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="object is no LangChain chat model"):
        LangChainJudge(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [PlainModel, ToolModel])
async def test_a_judges_call_is_marked_for_everybody_who_traces(model: type[PlainModel]) -> None:
    seen: dict[str, Any] = {}

    def look() -> None:
        seen["opentelemetry"] = context.get_value(_SUPPRESS_INSTRUMENTATION_KEY)
        seen["plain key"] = context.get_value("suppress_instrumentation")
        seen["langsmith"] = get_tracing_context()["enabled"]
        seen["ours"] = is_judging()

    await LangChainJudge(model(before=look)).ask(QUESTION)

    assert seen == {"opentelemetry": True, "plain key": True, "langsmith": False, "ours": True}
    assert context.get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


async def test_a_langsmith_run_around_a_judge_s_call_is_not_seen_in_it_and_is_there_after_it() -> None:
    run = RunTree(name="request", id=uuid4())
    seen: list[Any] = []

    def look() -> None:
        seen.append((tracing_is_enabled(), get_tracing_context()["parent"]))

    with tracing_context(parent=run, enabled="local", tags=["application"]):
        await LangChainJudge(PlainModel(before=look)).ask(QUESTION)
        after = get_tracing_context()

    assert seen == [(False, None)]
    assert (after["parent"], after["enabled"], after["tags"]) == (run, "local", ["application"])


@pytest.mark.parametrize("model", [PlainModel, ToolModel])
async def test_an_application_s_callbacks_never_see_the_judge(model: type[PlainModel]) -> None:
    class Counting(BaseCallbackHandler):
        models = 0

        def on_chat_model_start(self, *_: Any, **__: Any) -> None:
            self.models += 1

    handler, judge = Counting(), LangChainJudge(model())

    async def step(_: Any) -> str:
        return (await judge.ask(QUESTION)).text

    await RunnableLambda(step).ainvoke("x", config={"callbacks": [handler]})

    assert handler.models == 0


def test_one_chat_model_serves_three_loops() -> None:
    from langchain_openai import ChatOpenAI

    sample = SingleTurnSample(user_input="Hello?", response="Good morning.")
    scores: list[Any] = []

    def application(critic: AspectCritic) -> None:
        async def ten() -> None:
            scores.extend(await asyncio.gather(*(critic.score(sample) for _ in range(10))))

        asyncio.run(ten())

    with openai_server() as url:
        critic = AspectCritic(ChatOpenAI(model="gpt-4o-mini", base_url=url, api_key="none"), definition="Polite?")
        threads = [threading.Thread(target=application, args=(critic,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [score.value for score in scores] == [1.0] * 30
    assert {score.judge_model for score in scores} == {"gpt-4o-mini-2024-07-18"}
    assert scores[0].usage.input_tokens == 40

"""A client's blocking side, awaited: on threads of the judge's own, in the caller's context, without waiting for the hung."""

import asyncio
import threading
import time
from contextvars import ContextVar

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from tests.judges.models import CRITIQUE_JSON, QUESTION

from spanscore.errors import JudgeTimeout
from spanscore.judges.effects.timeout import Timed
from spanscore.judges.langchain.blocking import BlockingCalls
from spanscore.judges.langchain.chat import LangChainJudge

who = ContextVar("who", default="nobody")


async def never():
    raise AssertionError("the blocking side is there")


async def test_a_call_runs_on_a_daemon_thread_in_the_caller_s_context():
    who.set("caller")

    seen = await BlockingCalls().run(lambda: (who.get(), threading.current_thread().daemon), never)

    assert seen == ("caller", True)


@pytest.mark.parametrize("error", [ValueError("no"), TypeError("no"), KeyError("no")])
async def test_an_error_is_raised_as_it_is(error):
    def fail():
        raise error

    with pytest.raises(type(error)):
        await BlockingCalls().run(fail, never)


async def test_a_stop_iteration_ends_the_call_and_hangs_nobody():
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(BlockingCalls().run(lambda: next(iter(())), never), 5)


class AsyncOnly(BaseChatModel):
    tried: list[int] = []  # noqa: RUF012

    @property
    def _llm_type(self):
        return "async-only"

    def _generate(self, *_, **__):
        self.tried.append(1)
        raise NotImplementedError

    async def _agenerate(self, *_, **__):
        return ChatResult(generations=[ChatGeneration(message=AIMessage(CRITIQUE_JSON))])


async def test_a_model_without_a_blocking_side_is_awaited_from_then_on():
    judge = LangChainJudge(model := AsyncOnly(tried=[]))

    texts = [(await judge.ask(QUESTION)).text for _ in range(3)]

    assert texts == [CRITIQUE_JSON] * 3
    assert len(model.tried) == 1


async def test_a_coroutine_function_can_be_a_judge():
    async def answer(_):
        return AIMessage(CRITIQUE_JSON)

    assert (await LangChainJudge(RunnableLambda(answer)).ask(QUESTION)).text == CRITIQUE_JSON


async def test_a_hung_judge_holds_up_no_other_one():
    gate = threading.Event()
    hung = Timed(LangChainJudge(RunnableLambda(lambda _: gate.wait(20))), 0.1)
    other = LangChainJudge(RunnableLambda(lambda _: AIMessage(CRITIQUE_JSON)))

    late = await asyncio.gather(*(hung.ask(QUESTION) for _ in range(50)), return_exceptions=True)
    began = time.monotonic()
    reply = await other.ask(QUESTION)
    took_s = time.monotonic() - began
    gate.set()

    assert {type(error) for error in late} == {JudgeTimeout}
    assert reply.text == CRITIQUE_JSON
    assert took_s < 1

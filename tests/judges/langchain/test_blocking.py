"""A client's blocking side, awaited: on threads of the judge's own, in the caller's context, without waiting for the hung."""

import asyncio
import os
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from tests.judges.langchain.wire import Wire
from tests.judges.models import CRITIQUE_JSON, QUESTION

from spanscore.judges.langchain.chat import LangChainJudge
from spanscore.judges.langchain.client import BlockingCalls

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
    release = threading.Event()
    hung = LangChainJudge(RunnableLambda(lambda _: release.wait(20)))
    other = LangChainJudge(RunnableLambda(lambda _: AIMessage(CRITIQUE_JSON)))

    late = [asyncio.ensure_future(hung.ask(QUESTION)) for _ in range(50)]
    reply = await asyncio.wait_for(other.ask(QUESTION), 10)
    is_late = not any(task.done() for task in late)
    release.set()
    await asyncio.gather(*late, return_exceptions=True)

    assert (reply.text, is_late) == (CRITIQUE_JSON, True)


@pytest.fixture
def hung():
    """Begin a call that hangs until the event is set, awaited by a task: (task, event)."""
    release, begun = threading.Event(), threading.Event()

    async def begin():
        task = asyncio.ensure_future(BlockingCalls().run(lambda: (begun.set(), release.wait(20)), never))
        await asyncio.to_thread(begun.wait, 20)
        return task, release

    yield begin
    release.set()


async def test_a_call_that_is_given_up_ends_when_its_thread_has(hung):
    task, release = await hung()

    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=0.05)
    release.set()
    await asyncio.wait({task}, timeout=5)

    assert (done, task.cancelled()) == (set(), True)


async def test_a_call_that_is_given_up_twice_ends_at_once(hung):
    task, _ = await hung()

    for _ in range(2):
        task.cancel()
        await asyncio.wait({task}, timeout=0.05)

    assert task.cancelled()


async def test_the_last_vote_that_is_given_up_ends_when_the_request_has():
    release, begun = threading.Event(), threading.Event()

    class Voting(AsyncOnly):
        n: int = 1

        def _generate(self, *_, **__):
            begun.set()
            release.wait(20)
            raise TimeoutError

    votes = [asyncio.ensure_future(LangChainJudge(Voting(tried=[])).ask(QUESTION))]
    await asyncio.to_thread(begun.wait, 20)
    votes[0].cancel()
    done, _ = await asyncio.wait(votes, timeout=0.05)
    release.set()
    await asyncio.wait(votes, timeout=5)

    assert (done, votes[0].cancelled()) == (set(), True)


EXITING = """
import asyncio, sys, threading
from langchain_openai import ChatOpenAI
from tests.judges.models import QUESTION
from spanscore.judges import LangChainJudge

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
judge = LangChainJudge(ChatOpenAI(model="m", base_url=sys.argv[1], api_key="none"), timeout=100)
asyncio.run_coroutine_threadsafe(judge.ask(QUESTION), loop)
sys.stdin.readline()
"""


def test_a_judge_that_hangs_holds_up_no_exit():
    asked = threading.Event()

    with Wire(lambda _: asked.set() or wire.closing.wait(100)) as wire:
        process = subprocess.Popen([sys.executable, "-c", EXITING, wire.url], stdin=subprocess.PIPE)
        assert asked.wait(60)
        process.communicate(
            b"\n", timeout=50
        )  # the client's own timeout is 100 s, and Python would join an executor's thread

    assert process.returncode == 0


def test_a_forked_child_has_threads_of_its_own():
    async def thread():
        return await BlockingCalls().run(lambda: threading.current_thread().name, never)

    names = [asyncio.run(thread())]
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, asyncio.run(asyncio.wait_for(thread(), 10)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        names.append(pipe.read().decode())
    os.waitpid(child, 0)

    assert all(name.startswith("spanscore-judge") for name in names)

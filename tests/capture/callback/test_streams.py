"""Streams: read to the end, broken off half-way, closed after the end, cancelled, kept half-read."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from tests.capture.callback.tree import captured, ended, tree
from tests.live import ANSWER, QUESTION, Grounded, Library, model, open_roots, rag

from spanscore import metric
from spanscore.config import Capture

USAGE = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}


class Talking(GenericFakeChatModel):
    """Streams its answer word by word, then its usage; from ``hangs_at`` on, after ``endless``."""

    hangs_at: int | None = None
    endless: Any = None

    def _chunks(self) -> Iterator[ChatGenerationChunk]:
        for word in ANSWER.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=USAGE))

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        for chunk in self._chunks():
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        for position, chunk in enumerate(self._chunks()):
            if position == self.hangs_at:
                await self.endless.wait()
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def talking(**kwargs: Any) -> Any:
    return Talking(messages=model().messages, **kwargs)


def chain(**kwargs: Any) -> Any:
    prompt = ChatPromptTemplate.from_template("Answer {question}")
    return (lambda q: {"question": q}) | prompt | talking(**kwargs) | StrOutputParser()


def expected_tree(how: str) -> str:
    return tree(
        f"""
        invoke_workflow RunnableSequence {how}
          chat Talking
        """
    )


# --- to the end -------------------------------------------------------------------------------------------------


def test_a_stream_read_to_its_end_has_its_true_inputs():
    with captured(metric := Grounded()) as run:
        assert "".join(rag().stream(QUESTION, config=run.config())) == ANSWER

    (sample,) = metric.seen
    assert (sample.user_input, sample.response) == (QUESTION, ANSWER)


def test_a_streamed_answer_has_its_usage_and_the_time_to_its_first_chunk():
    with captured() as run:
        assert "".join(chain().stream(QUESTION, config=run.config())).strip() == ANSWER

    chat = run.span("chat Talking")
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (11, 7)
    assert 0 < chat.attributes["gen_ai.response.time_to_first_chunk"] <= (chat.end_time - chat.start_time) / 1e9


def test_the_usage_of_a_plain_answer_stands_on_its_span_without_a_first_chunk():
    with captured() as run:
        model().invoke(QUESTION, config=run.config())

    chat = run.span("chat")
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (11, 7)
    assert "gen_ai.response.time_to_first_chunk" not in chat.attributes


def test_a_stream_closed_after_its_end_is_completed():
    with captured() as run:
        stream = chain().stream(QUESTION, config=run.config())
        assert "".join(stream).strip() == ANSWER
        stream.close()

    assert run.drawn() == expected_tree("completed")


async def test_an_async_stream_closed_after_its_end_is_completed():
    with captured() as run:
        async with aclosing(chain().astream(QUESTION, config=run.config())) as stream:
            assert "".join([part async for part in stream]).strip() == ANSWER
        await ended(run)

    assert run.drawn() == expected_tree("completed")


# --- broken off half-way ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["close", "collected", "thrown"])
def test_a_stream_broken_off_is_abandoned_and_not_scored(closed):
    with captured() as run:
        stream = chain().stream(QUESTION, config=run.config())
        next(stream)
        if closed == "close":
            stream.close()
        elif closed == "thrown":
            with pytest.raises(KeyError):
                stream.throw(KeyError("app"))
        del stream
        gc.collect()

    # The traceback of the thrown exception keeps the model's stream half-read.
    how, left = ("completed ERROR:KeyError", " cancelled") if closed == "thrown" else ("abandoned", "")
    assert run.drawn() == expected_tree(how).replace("Talking", f"Talking{left}")
    assert run.outcomes == {"no_sample": 1}


def test_a_broken_stream_whose_model_had_finished_is_abandoned_too():
    def words(texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            yield from text.split()

    whole = RunnableLambda(lambda q: model().invoke(q).content)
    with captured() as run:
        stream = (whole | RunnableGenerator(words)).stream(QUESTION, config=run.config())
        next(stream)
        stream.close()

    assert run.drawn() == "invoke_workflow RunnableSequence abandoned\n  chat GenericFakeChatModel\n"


async def test_an_async_stream_broken_off_is_abandoned_and_not_scored():
    with captured() as run:
        async with aclosing(chain().astream(QUESTION, config=run.config())) as stream:
            await anext(stream)
        await ended(run)

    assert run.drawn() == expected_tree("abandoned").replace("Talking", "Talking abandoned")
    assert run.outcomes == {"no_sample": 1}


async def test_async_events_broken_off_are_cancelled_and_not_scored():  # that is how the library ends them
    with captured() as run:
        async with aclosing(chain().astream_events(QUESTION, version="v2", config=run.config())) as events:
            async for event in events:
                if event["event"] == "on_chat_model_stream":
                    break
        await ended(run)

    assert run.drawn() == expected_tree("cancelled").replace("Talking", "Talking cancelled")
    assert run.outcomes == {"no_sample": 1}


def test_a_half_read_stream_does_not_hold_up_others():
    with captured() as run:
        stream = chain().stream(QUESTION, config=run.config())
        next(stream)
        rag().invoke(QUESTION, config=run.config())
        assert run.scorer.flush(5)
        assert run.scorer.status().outcomes["grounded"] == {"scored": 1}
        assert len(open_roots(run.scorer.handler)) == 1
        stream.close()

    first, second = run.trees()
    assert f"{first}\n" == expected_tree("abandoned")
    assert second.split("\n")[1:] == ["  retrieval Library", "  chat GenericFakeChatModel"]


def test_what_was_said_of_an_abandoned_stream_is_kept():
    with captured(capture=Capture(content=True)) as run:
        stream = chain().stream(QUESTION, config=run.config())
        assert next(stream) + next(stream) == "Paris is "
        stream.close()

    root = run.span("invoke_workflow")
    assert "Paris" in root.attributes["output.value"]
    assert QUESTION in root.attributes["input.value"]


@pytest.mark.parametrize(("asked", "outcome"), [(True, "scored"), (False, "no_sample")])
def test_a_partial_answer_is_scored_only_if_asked(asked, outcome):
    seen: list[Any] = []

    @metric
    def partial(sample: Any) -> float:
        seen.append((sample.user_input, sample.response))
        return 1.0

    with captured(partial, capture=Capture(score_abandoned=asked)) as run:
        stream = chain().stream(QUESTION, config=run.config())
        assert next(stream) + next(stream) == "Paris is "
        stream.close()

    assert run.scorer.status().outcomes == {"partial": {outcome: 1}}
    # LangChain adds a chunk to the run's output only when the next one is asked for: the last one read is not in it.
    assert seen == ([(QUESTION, "Paris ")] if asked else [])


# --- cancelled --------------------------------------------------------------------------------------------------


async def cancel(work: Any, started: asyncio.Event) -> None:
    task = asyncio.ensure_future(work)
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class EndlessWait:
    """Signals that a caller waits; never returns."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def wait(self, *_: Any) -> None:
        self.reached.set()
        await asyncio.Event().wait()


async def _read(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("way", ["astream", "astream_events"])
async def test_a_cancelled_stream_is_cancelled_and_not_scored(way):
    endless = EndlessWait()
    with captured() as run:
        c = chain(hangs_at=2, endless=endless)
        stream = (
            c.astream(QUESTION, config=run.config())
            if way == "astream"
            else c.astream_events(QUESTION, version="v2", config=run.config())
        )
        await cancel(_read(stream), endless.reached)
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow RunnableSequence cancelled
          chat Talking cancelled
        """
    )
    assert run.outcomes == {"no_sample": 1}


@pytest.mark.parametrize("way", ["ainvoke", "abatch"])
async def test_a_cancelled_model_is_closed_with_its_root(way):
    endless = EndlessWait()

    async def hang(question: str) -> Any:
        return await Hanging(messages=model().messages, endless=endless).ainvoke(question)

    with captured() as run:
        given = [QUESTION] if way == "abatch" else QUESTION
        await cancel(getattr(RunnableLambda(hang), way)(given, config=run.config()), endless.reached)
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow hang cancelled
          chat Hanging cancelled
        """
    )
    assert run.outcomes == {"no_sample": 1}


class Hanging(GenericFakeChatModel):
    endless: Any

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        await self.endless.wait()


class Deaf(BaseRetriever):
    endless: Any

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        raise NotImplementedError

    async def _aget_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        await self.endless.wait()
        return []


async def test_a_cancelled_retriever_is_closed_with_its_root():
    endless = EndlessWait()
    with captured() as run:
        await cancel(
            (Deaf(endless=endless) | RunnableLambda(str)).ainvoke(QUESTION, config=run.config()),
            endless.reached,
        )
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow RunnableSequence cancelled
          retrieval Deaf cancelled
        """
    )


async def test_a_cancelled_tool_is_no_error():
    endless = EndlessWait()

    @tool
    async def wait(question: str) -> str:
        """Wait."""
        await endless.wait()
        return question

    with captured() as run:
        task = RunnableLambda(lambda q: {"question": q}) | wait
        await cancel(task.ainvoke(QUESTION, config=run.config()), endless.reached)
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow RunnableSequence cancelled
          execute_tool wait cancelled
        """
    )


async def test_a_model_given_up_inside_does_not_make_its_run_an_abandoned_one():
    endless = EndlessWait()

    async def impatient(question: str) -> dict[str, Any]:
        task = asyncio.ensure_future(Hanging(messages=model().messages, endless=endless).ainvoke(question))
        await endless.reached.wait()
        task.cancel()
        return {"answer": ANSWER, "question": question, "context": [ANSWER]}

    with captured() as run:
        await RunnableLambda(impatient).ainvoke(QUESTION, config=run.config())
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow impatient completed
          chat Hanging cancelled
        """
    )
    assert run.outcomes == {"scored": 1}


@pytest.mark.parametrize("steps", [1, 2])
async def test_nor_does_one_given_up_inside_a_stream_that_was_read_to_its_end(steps):
    async def impatient(question: str) -> str:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Deaf(endless=EndlessWait()).ainvoke(question), 0.01)
        return (await model().ainvoke(question)).content

    whole = RunnableLambda(impatient) if steps == 1 else RunnableLambda(impatient) | StrOutputParser()
    with captured() as run:
        stream = whole.with_config(run_name="impatient").astream(QUESTION, config=run.config())
        assert "".join([part async for part in stream]) == ANSWER
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow impatient completed
          retrieval Deaf cancelled
          chat GenericFakeChatModel
        """
    )
    assert run.outcomes == {"missing_field": 1}  # it was an answer, without contexts


async def test_a_plain_stream_broken_off_inside_a_running_loop_is_abandoned():
    with captured() as run:
        stream = chain().stream(QUESTION, config=run.config())
        next(stream)
        stream.close()
        await ended(run)

    assert run.drawn() == expected_tree("abandoned")
    assert run.outcomes == {"no_sample": 1}


@pytest.mark.parametrize(("rest", "how"), [(list, "completed"), (lambda stream: stream.close(), "abandoned")])
def test_a_stream_may_change_its_thread(rest, how):
    with captured() as run:
        stream = chain().stream(QUESTION, config=run.config())
        next(stream)
        other = threading.Thread(target=rest, args=(stream,))
        other.start()
        other.join()

    assert run.drawn() == expected_tree(how)


async def test_a_cancelled_branch_closes_its_neighbours_too():
    endless = EndlessWait()
    branches = RunnableParallel(found=Deaf(endless=endless), said=Hanging(messages=model().messages, endless=endless))
    with captured() as run:
        await cancel(branches.ainvoke(QUESTION, config=run.config()), endless.reached)
        await ended(run)

    first, *rest = run.trees()[0].split("\n")
    assert first == "invoke_workflow RunnableParallel<found,said> cancelled"
    assert set(rest) <= {"  retrieval Deaf cancelled", "  chat Hanging cancelled"}
    assert rest


@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_parallel_stream_broken_off_is_abandoned(way):
    branches = RunnableParallel(one=talking(), two=talking())
    with captured() as run:
        if way == "stream":
            stream = branches.stream(QUESTION, config=run.config())
            next(stream)
            stream.close()
        else:
            async with aclosing(branches.astream(QUESTION, config=run.config())) as parts:
                await anext(parts)
        await ended(run)

    assert run.trees()[0].split("\n")[0] == "invoke_workflow RunnableParallel<one,two> abandoned"
    assert run.outcomes == {"no_sample": 1}


# --- after the end ----------------------------------------------------------------------------------------------


async def test_a_task_left_behind_is_a_child_and_no_unit():
    left: list[Any] = []
    go = asyncio.Event()

    async def note(question: str) -> str:
        await go.wait()
        return (await model().ainvoke(question)).content

    async def answer(question: str) -> str:
        left.append(asyncio.ensure_future(note(question)))
        return question

    with captured() as run:
        await RunnableLambda(answer).ainvoke(QUESTION, config=run.config())
        await ended(run)
        run.outlived = True
        go.set()
        await asyncio.gather(*left)
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow answer completed
          chat GenericFakeChatModel
        """
    )
    assert run.scorer.status().units == 1


async def test_an_end_that_comes_after_its_unit_was_closed_ends_no_span_twice(caplog):
    release = threading.Event()

    class Stuck(Library):
        def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
            started.set()
            release.wait(10)
            return []

    started = threading.Event()
    with captured() as run, caplog.at_level(logging.WARNING):
        task = asyncio.ensure_future((Stuck() | RunnableLambda(str)).ainvoke(QUESTION, config=run.config()))
        await asyncio.to_thread(started.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended(run)
        release.set()
        await ended(run)

    assert run.drawn().endswith("  retrieval Stuck cancelled\n")
    assert caplog.messages == []


def test_one_run_id_given_to_a_run_and_to_its_repetition_is_two_units():
    with captured() as run:
        run_id = uuid4()
        for _ in range(2):
            rag().invoke(QUESTION, config=run.config(run_id=run_id))

    assert run.outcomes == {"scored": 2}

"""Every way of calling a chain gives one tree, with right parents and times, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from tests.capture.callback.tree import captured, ended, tree
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, Library, model, rag

from spanscore.config import Capture

RAG = tree(
    """
    invoke_workflow RunnableSequence completed
      retrieval Library
      chat GenericFakeChatModel
    """
)


async def _astream(chain: Any, **kwargs: Any) -> str:
    return "".join([part async for part in chain.astream(QUESTION, **kwargs)])


async def _events(chain: Any, **kwargs: Any) -> str:
    events = [event async for event in chain.astream_events(QUESTION, version="v2", **kwargs)]
    return "".join(e["data"]["chunk"] for e in events if e["event"] == "on_chain_stream" and not e["parent_ids"])


WAYS = {
    "invoke": lambda chain, **kw: chain.invoke(QUESTION, **kw),
    "ainvoke": lambda chain, **kw: asyncio.run(chain.ainvoke(QUESTION, **kw)),
    "stream": lambda chain, **kw: "".join(chain.stream(QUESTION, **kw)),
    "astream": lambda chain, **kw: asyncio.run(_astream(chain, **kw)),
    "astream_events": lambda chain, **kw: asyncio.run(_events(chain, **kw)),
    "batch": lambda chain, **kw: chain.batch([QUESTION] * 3, **kw)[0],
    "abatch": lambda chain, **kw: asyncio.run(chain.abatch([QUESTION] * 3, **kw))[0],
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_calling_gives_one_tree_per_input(way):
    with captured(metric := Grounded()) as run:
        answer = WAYS[way](rag(), config=run.config())

    times = 3 if "batch" in way else 1
    assert answer == ANSWER
    assert run.drawn() == RAG * times
    assert run.outcomes == {"scored": times}
    assert [(s.user_input, s.response) for s in metric.seen] == [(QUESTION, ANSWER)] * times


@pytest.mark.parametrize("way", WAYS)
def test_steps_get_spans_on_request(way):
    chain = ChatPromptTemplate.from_template("{question}") | model() | StrOutputParser()
    with captured(capture=Capture(all_runs=True)) as run:
        WAYS[way](RunnableLambda(lambda q: {"question": q}) | chain, config=run.config())

    assert sorted(run.drawn().split("\n")[1:5]) == [
        "  ChatPromptTemplate",
        "  RunnableLambda",
        "  StrOutputParser",
        "  chat GenericFakeChatModel",
    ]


@pytest.mark.parametrize("way", WAYS)
def test_parallel_branches_have_one_parent(way):
    class Archive(Library):
        pass

    branches = RunnableParallel(context=Library(), more=Archive(), answer=lambda q: model().invoke(q))
    with captured() as run:
        WAYS[way](branches | (lambda found: found["answer"].content), config=run.config())

    first = run.trees()[0].split("\n")
    assert first[0] == "invoke_workflow RunnableSequence completed"
    assert sorted(first[1:]) == ["  chat GenericFakeChatModel", "  retrieval Archive", "  retrieval Library"]


def test_parents_are_found_across_skipped_steps():
    @tool
    def research(question: str) -> str:
        """Look a question up."""
        ask = RunnableLambda(lambda q: RunnableLambda(lambda p: model().invoke(p)).invoke(q))
        return (ask | StrOutputParser()).invoke(question)

    deep = RunnableLambda(lambda q: RunnableLambda(lambda p: research.invoke({"question": p})).invoke(q))
    with captured() as run:
        deep.with_config(run_name="deep").invoke(QUESTION, config=run.config())

    assert run.drawn() == tree(
        """
        invoke_workflow deep completed
          execute_tool research
            chat GenericFakeChatModel
        """
    )


async def test_a_nested_chain_without_config_keeps_its_parent():
    async def ask(question: str) -> str:
        return await rag().ainvoke(question)

    with captured() as run:
        await RunnableLambda(ask).with_config(run_name="outer").ainvoke(QUESTION, config=run.config())
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow outer completed
          retrieval Library
          chat GenericFakeChatModel
        """
    )


def _in_a_thread(question: str) -> str:
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(rag().invoke(question)))
    thread.start()
    thread.join()
    return answers[0]


def test_a_raw_thread_is_not_seen_by_a_passed_handler():
    with captured() as run:
        RunnableLambda(_in_a_thread).with_config(run_name="outer").invoke(QUESTION, config=run.config())

    assert run.drawn() == "invoke_workflow outer completed\n"


def test_a_raw_thread_is_a_unit_of_its_own_to_an_installed_handler():
    with captured() as run:
        run.scorer.install()
        RunnableLambda(_in_a_thread).with_config(run_name="outer").invoke(QUESTION)
        run.scorer.uninstall()

    assert run.drawn() == "invoke_workflow outer completed\n" + RAG


def _fails(_: Any) -> Any:
    raise ValueError(QUESTION)


class Down(GenericFakeChatModel):
    """Fails until it has been asked ``left`` times."""

    left: int = 1

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            raise ConnectionError("the model is down")
        return super()._generate(*args, **kwargs)


def down(left: int = 1) -> Any:
    return Down(messages=model().messages, left=left)


def test_a_fallback_answers_and_only_the_failed_child_is_an_error():
    with captured() as run:
        answer = down().with_fallbacks([model()]).invoke(QUESTION, config=run.config())

    assert answer.content == ANSWER
    assert run.drawn() == tree(
        """
        invoke_workflow RunnableWithFallbacks completed
          chat Down ERROR:ConnectionError
          chat GenericFakeChatModel
        """
    )


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_retry_inside_a_fallback_shows_each_attempt(way):
    first = down(2).with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    with captured() as run:
        answer = WAYS[way](first.with_fallbacks([model()]) | StrOutputParser(), config=run.config())

    assert answer == ANSWER
    assert f"{run.trees()[0]}\n" == tree(
        """
        invoke_workflow RunnableSequence completed
          chat Down ERROR:ConnectionError
          chat Down ERROR:ConnectionError
          chat GenericFakeChatModel
        """
    )


@pytest.mark.parametrize("way", ["batch", "abatch"])
async def test_one_of_a_batch_that_fails_is_an_error_of_its_own(way):
    def answer(question: str) -> str:
        if question == "bad":
            raise ValueError(question)
        return model().invoke(question).content

    with captured() as run:
        config, given = run.config(max_concurrency=1), [QUESTION, "bad", QUESTION]
        if way == "batch":
            answers = RunnableLambda(answer).batch(given, config, return_exceptions=True)
        else:
            answers = await RunnableLambda(answer).abatch(given, config, return_exceptions=True)
        await ended(run)

    assert [answers[0], type(answers[1]), answers[2]] == [ANSWER, ValueError, ANSWER]
    assert run.drawn() == tree(
        """
        invoke_workflow answer completed
          chat GenericFakeChatModel
        invoke_workflow answer completed ERROR:ValueError
        invoke_workflow answer completed
          chat GenericFakeChatModel
        """
    )
    assert run.outcomes == {"no_sample": 1, "missing_field": 2}


async def test_a_retry_shows_each_attempt():
    chain = down(2).with_retry(stop_after_attempt=3, wait_exponential_jitter=False) | StrOutputParser()
    with captured() as run:
        assert await chain.ainvoke(QUESTION, config=run.config()) == ANSWER
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow RunnableSequence completed
          chat Down ERROR:ConnectionError
          chat Down ERROR:ConnectionError
          chat Down
        """
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_raises_is_an_error_and_not_scored(way):
    with captured() as run, pytest.raises(ValueError, match="capital"):
        WAYS[way](model() | RunnableLambda(_fails), config=run.config())

    assert (
        run.trees()[0]
        == tree(
            """
        invoke_workflow RunnableSequence completed ERROR:ValueError
          chat GenericFakeChatModel
        """
        ).rstrip()
    )
    assert run.outcomes == {"no_sample": 3 if "batch" in way else 1}


def test_a_tool_that_raises_is_an_error_of_its_own():
    @tool
    def broken(city: str) -> str:
        """Fail."""
        raise KeyError(city)

    def forgiving(city: str) -> str:
        try:
            return broken.invoke({"city": city})
        except KeyError:
            return ANSWER

    with captured() as run:
        RunnableLambda(forgiving).invoke(QUESTION, config=run.config())

    assert run.drawn() == tree(
        """
        invoke_workflow forgiving completed
          execute_tool broken ERROR:KeyError
        """
    )


def test_a_text_model_a_retriever_and_a_tool_called_alone_are_units():
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    with captured() as run:
        FakeListLLM(responses=[ANSWER]).invoke(QUESTION, config=run.config())
        Library().invoke(QUESTION, config=run.config())
        weather.invoke({"city": "Paris"}, config=run.config())

    assert run.drawn() == tree(
        """
        text_completion FakeListLLM completed
        retrieval Library completed
        execute_tool weather completed
        """
    )


def test_attached_twice_every_run_counts_once():
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    with captured() as run:
        chain = (rag() | (lambda _: weather.invoke({"city": "Paris"}))).with_config(callbacks=[run.scorer.handler])
        chain.invoke(QUESTION, config=run.config())

    assert run.drawn() == RAG + "  execute_tool weather\n"


def test_attached_to_a_model_too_it_counts_once_and_alone_the_model_is_the_unit():
    said = model()
    with captured() as run:
        said.callbacks = [run.scorer.handler]
        (said | StrOutputParser()).invoke(QUESTION, config=run.config())
        (said | StrOutputParser()).invoke(QUESTION)

    assert run.drawn() == tree(
        """
        invoke_workflow RunnableSequence completed
          chat GenericFakeChatModel
        chat GenericFakeChatModel completed
        """
    )


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_it_may_come_in_a_callback_manager(way):
    with captured() as run:
        manager = CallbackManager([]) if way == "invoke" else AsyncCallbackManager([])
        manager.add_handler(run.scorer.handler)
        WAYS[way](rag(), config={"callbacks": manager})

    assert run.drawn() == RAG


async def test_a_handler_shared_by_fifty_requests_mixes_nothing_up():
    class Shelf(BaseRetriever):
        text: str

        def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
            return [Document(page_content=self.text)]

    def about(i: int) -> Any:
        found = {"context": Shelf(name=f"Shelf-{i}", text=f"{CONTEXT} {i}"), "question": str}
        prompt = ChatPromptTemplate.from_template("{context}{question}")
        return found | prompt | model(f"{ANSWER} {i}") | StrOutputParser()

    with captured(metric := Grounded()) as run:
        await asyncio.gather(
            *(about(i).with_config(run_name=f"chain-{i}").ainvoke(str(i), config=run.config()) for i in range(50))
        )
        await ended(run)

    drawn = {tree.split("\n")[0]: tree.split("\n")[1:] for tree in run.trees()}
    assert drawn == {
        f"invoke_workflow chain-{i} completed": [f"  retrieval Shelf-{i}", "  chat GenericFakeChatModel"]
        for i in range(50)
    }
    assert sorted((s.user_input, s.response, *s.retrieved_contexts) for s in metric.seen) == sorted(
        (str(i), f"{ANSWER} {i}", f"{CONTEXT} {i}") for i in range(50)
    )

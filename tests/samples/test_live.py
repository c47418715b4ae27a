"""Real chains, agents and graphs, with shapes that no payload table foresees, and the samples that a metric gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from tests.live import ANSWER, CONTEXT, QUESTION, Library, a_line, model, rag

from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.metrics import BaseMetric, Finding


class Witness(BaseMetric):
    """Keeps its samples."""

    name = "witness"

    def __init__(self, kind: str, seen: list[Any]) -> None:
        self.requires = {kind: ()}
        self._seen = seen

    async def measure(self, sample: Any) -> Finding:
        self._seen.append(sample)
        return Finding(value=1.0)


def witnessed(run: Callable[[RunnableConfig], Any], kind: str = "single_turn") -> list[Any]:
    seen: list[Any] = []
    with a_line(Witness(kind, seen)) as (scorer, _):
        run({"callbacks": [scorer.handler], "configurable": {"thread_id": "t"}})
        assert scorer.flush(10)
    return seen


class Scripted(GenericFakeChatModel):
    """Returns its messages in turn, with or without tools."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def says(*messages: AIMessage) -> Scripted:
    return Scripted(messages=iter(messages))


def asks_for(query: str, identity: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "retrieve_context", "args": {"query": query}, "id": identity}])


@tool(response_format="content_and_artifact")
def retrieve_context(query: str) -> tuple[str, list[Document]]:
    """Look something up."""
    found = [Document(f"{CONTEXT} ({query})", id=query)]
    return found[0].page_content, found


def agent(*messages: AIMessage) -> Any:
    return create_agent(says(*messages), tools=[retrieve_context], checkpointer=InMemorySaver())


def single(question: str = QUESTION, answer: str = ANSWER, **more: Any) -> SingleTurnSample:
    return SingleTurnSample(user_input=question, response=answer, **more)


FRANCE = {"retrieved_contexts": [f"{CONTEXT} (France)"], "retrieved_context_ids": ["France"]}


def test_an_agents_contexts_are_in_its_tools_artifact() -> None:
    built = agent(asks_for("France", "c1"), AIMessage(ANSWER))

    assert witnessed(lambda config: built.invoke({"messages": QUESTION}, config)) == [single(**FRANCE)]


def test_an_agent_that_streams_is_read_the_same() -> None:
    built = agent(asks_for("France", "c1"), AIMessage(ANSWER))

    async def streamed(config: RunnableConfig) -> None:
        async for _ in built.astream({"messages": [("user", QUESTION)]}, config):
            pass

    assert witnessed(lambda config: asyncio.run(streamed(config))) == [single(**FRANCE)]


def test_each_turn_of_a_thread_has_its_own_question_answer_and_contexts() -> None:
    built = agent(asks_for("France", "c1"), AIMessage(ANSWER), asks_for("Spain", "c2"), AIMessage("Madrid."))

    def two_turns(config: RunnableConfig) -> None:
        built.invoke({"messages": [("user", QUESTION)]}, config)
        built.invoke({"messages": [{"role": "user", "content": "And Spain?"}]}, config)

    assert witnessed(two_turns) == [
        single(**FRANCE),
        single("And Spain?", "Madrid.", retrieved_contexts=[f"{CONTEXT} (Spain)"], retrieved_context_ids=["Spain"]),
    ]


def test_a_thread_is_a_conversation_with_its_tools() -> None:
    built = agent(asks_for("France", "c1"), AIMessage(ANSWER), AIMessage("Madrid."))

    def two_turns(config: RunnableConfig) -> None:
        built.invoke({"messages": [("user", QUESTION)]}, config)
        built.invoke({"messages": [("user", "And Spain?")]}, config)

    first, second = witnessed(two_turns, "multi_turn")
    assert isinstance(first, MultiTurnSample)
    assert first.pretty() == (
        f"Human: {QUESTION}\nTools:\n  retrieve_context: {{'query': 'France'}}\n"
        f"ToolOutput: {CONTEXT} (France)\nAI: {ANSWER}"
    )
    assert second.pretty() == f"{first.pretty()}\nHuman: And Spain?\nAI: Madrid."


def test_contexts_put_into_the_prompt_are_no_retrieval() -> None:
    @dynamic_prompt
    def with_context(request: Any) -> str:
        return f"Use {CONTEXT}"

    built = create_agent(says(AIMessage(ANSWER)), tools=[], middleware=[with_context])

    assert witnessed(lambda config: built.invoke({"messages": QUESTION}, config)) == [single()]


class Question(TypedDict, total=False):
    question: str
    docs: list[Document]
    answer: str


def question_graph() -> Any:
    graph = StateGraph(Question)
    graph.add_node("retrieve", lambda state: {"docs": [Document(CONTEXT, id="1")]})
    graph.add_node("answer", lambda state: {"answer": ANSWER})
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "answer")
    return graph.compile()


@pytest.mark.parametrize("given", [{"question": QUESTION}, {"question": QUESTION, "docs": [], "answer": ""}])
def test_a_graph_without_messages_or_retriever_is_read_from_its_state(given: dict[str, Any]) -> None:
    seen = witnessed(lambda config: question_graph().invoke(given, config))

    assert seen == [single(retrieved_contexts=[CONTEXT], retrieved_context_ids=["1"])]


def test_a_streamed_graph_is_read_the_same() -> None:
    seen = witnessed(lambda config: list(question_graph().stream({"question": QUESTION}, config)))

    assert seen == [single(retrieved_contexts=[CONTEXT], retrieved_context_ids=["1"])]


def test_an_interrupted_turn_is_not_scored_and_the_resumed_one_finds_its_question() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [AIMessage(f"{ANSWER} ({interrupt('sure?')})")]})
    graph.add_edge(START, "ask")
    built = graph.compile(checkpointer=InMemorySaver())

    def asked_and_resumed(config: RunnableConfig) -> None:
        built.invoke({"messages": [HumanMessage(QUESTION)]}, config)
        built.invoke(Command(resume="yes"), config)

    assert witnessed(asked_and_resumed) == [single(answer=f"{ANSWER} (yes)")]


def test_retrievals_side_by_side_are_all_found_and_what_both_found_once() -> None:
    class Fanned(TypedDict, total=False):
        question: str
        answer: str

    graph = StateGraph(Fanned)
    graph.add_node("start", lambda state: {})
    graph.add_node("find", lambda state, config: Library().invoke(state["question"], config) and {})
    graph.add_node("answer", lambda state: {"answer": ANSWER})
    graph.add_edge(START, "start")
    graph.add_conditional_edges("start", lambda s: [Send("find", s), Send("find", s)], ["find"])
    graph.add_edge("find", "answer")

    seen = witnessed(lambda config: graph.compile().invoke({"question": QUESTION}, config))

    assert seen == [single(retrieved_contexts=[CONTEXT], retrieved_context_ids=["doc-1"])]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_of_texts_is_read(stream: bool) -> None:
    def run(config: RunnableConfig) -> Any:
        return list(rag().stream(QUESTION, config)) if stream else rag().invoke(QUESTION, config)

    assert witnessed(run) == [single(retrieved_contexts=[CONTEXT], retrieved_context_ids=["doc-1"])]


def test_a_model_alone_is_read() -> None:
    assert witnessed(lambda config: model().invoke(QUESTION, config)) == [single()]

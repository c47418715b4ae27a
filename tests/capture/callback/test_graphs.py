"""LangGraph: agents with tools, sub-agents, subgraphs, Send, hand-overs, interrupt and resume."""

from __future__ import annotations

import asyncio
import json
import operator
from contextlib import aclosing
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from tests.capture.callback.tree import captured, ended, tree
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, Library, model

ASKED = {"messages": [HumanMessage(QUESTION)]}


class Scripted(GenericFakeChatModel):
    """Returns the scripted text, streamed in one chunk, and accepts tools."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        said = next(self.messages)
        calls = [{**call, "args": json.dumps(call["args"]), "index": 0} for call in said.tool_calls]
        chunk = ChatGenerationChunk(message=AIMessageChunk(content=said.content, tool_call_chunks=calls))
        if run_manager:
            run_manager.on_llm_new_token(said.content, chunk=chunk)
        yield chunk

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def scripted(*messages: AIMessage) -> Any:
    return Scripted(messages=iter(messages))


def calling(name: str, args: dict[str, Any], text: str = "") -> AIMessage:
    return AIMessage(content=text, tool_calls=[{"name": name, "args": args, "id": "call-1"}])


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def agent(*messages: AIMessage, name: str | None = "helper", tools: Any = (weather,), **kwargs: Any) -> Any:
    said = messages or (calling("weather", {"city": "Paris"}), AIMessage(ANSWER))
    return create_agent(scripted(*said), list(tools), name=name, **kwargs)


AGENT = tree(
    """
    invoke_agent helper completed
      chat Scripted
      execute_tool weather
      chat Scripted
    """
)


async def _by_astream(graph: Any, config: Any) -> None:
    async for _ in graph.astream(ASKED, config=config):
        pass


async def _by_events(graph: Any, config: Any) -> None:
    async for _ in graph.astream_events(ASKED, version="v2", config=config):
        pass


async def _by_ainvoke(graph: Any, config: Any) -> None:
    await graph.ainvoke(ASKED, config=config)


async def _by_invoke(graph: Any, config: Any) -> None:
    graph.invoke(ASKED, config=config)


async def _by_stream(graph: Any, config: Any) -> None:
    list(graph.stream(ASKED, config=config, stream_mode="messages"))


@pytest.mark.parametrize("way", [_by_invoke, _by_ainvoke, _by_stream, _by_astream, _by_events])
async def test_an_agent_with_tools_is_one_tree(way):
    with captured() as run:
        await way(agent(), run.config())
        await ended(run)

    assert run.drawn() == AGENT
    called = run.span("execute_tool").attributes
    assert (called["gen_ai.tool.name"], called["gen_ai.tool.call.id"]) == ("weather", "call-1")


def test_an_agent_without_a_name_is_an_agent():
    with captured() as run:
        agent(name=None).invoke(ASKED, config=run.config())

    assert run.drawn() == AGENT.replace("helper", "LangGraph")


def test_a_sub_agent_called_by_a_tool_has_its_own_span():
    inner = agent(name="researcher")

    @tool
    def research(question: str) -> str:
        """Ask the researcher."""
        return inner.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content

    outer = agent(calling("research", {"question": QUESTION}), AIMessage(ANSWER), name="boss", tools=[research])
    with captured() as run:
        outer.invoke(ASKED, config=run.config())

    assert run.drawn() == tree(
        """
        invoke_agent boss completed
          chat Scripted
          execute_tool research
            invoke_agent researcher
              chat Scripted
              execute_tool weather
              chat Scripted
          chat Scripted
        """
    )


async def test_sub_agents_as_nodes_have_their_own_spans():
    graph = StateGraph(MessagesState)
    graph.add_node("first", agent(name="researcher"))
    graph.add_node("writer", agent(AIMessage(ANSWER), name="writer"))
    graph.add_edge(START, "first")
    graph.add_edge("first", "writer")
    with captured() as run:
        await graph.compile(name="team").ainvoke(ASKED, config=run.config())
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow team completed
          invoke_agent researcher
            chat Scripted
            execute_tool weather
            chat Scripted
          invoke_agent writer
            chat Scripted
        """
    )


class State(TypedDict, total=False):
    question: str
    docs: Annotated[list[str], operator.add]
    answer: str


def _find(state: State) -> State:
    return {"docs": [d.page_content for d in Library().invoke(state["question"])]}


def _answer(state: State) -> State:
    return {"answer": model().invoke(state["question"]).content}


def state_graph(**nodes: Any) -> StateGraph[Any]:
    graph = StateGraph(State)
    before = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    graph.add_edge(before, END)
    return graph


def test_a_subgraph_is_a_step_and_its_runs_are_the_roots():
    inner = state_graph(find=_find).compile(name="inner")
    with captured(metric := Grounded()) as run:
        graph = state_graph(inner=inner, answer=_answer).compile(name="outer")
        graph.invoke({"question": QUESTION}, config=run.config())

    assert run.drawn() == tree(
        """
        invoke_workflow outer completed
          retrieval Library
          chat GenericFakeChatModel
        """
    )
    assert run.outcomes == {"scored": 1}
    assert (metric.seen[0].user_input, metric.seen[0].retrieved_contexts) == (QUESTION, [CONTEXT])


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_send_fans_out_under_one_root(asynchronous):
    graph = StateGraph(State)
    graph.add_node("find", _find)
    graph.add_node("answer", _answer)
    graph.add_conditional_edges(START, lambda s: [Send("find", s) for _ in range(4)], ["find"])
    graph.add_edge("find", "answer")
    with captured() as run:
        whole = graph.compile(name="map")
        given = {"question": QUESTION}
        _ = await whole.ainvoke(given, run.config()) if asynchronous else whole.invoke(given, run.config())
        await ended(run)

    assert (
        run.drawn() == "invoke_workflow map completed\n" + "  retrieval Library\n" * 4 + "  chat GenericFakeChatModel\n"
    )


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_branch_of_send_that_fails_is_an_error_of_the_root_and_leaves_nothing_open(asynchronous):
    class Numbered(State, total=False):
        number: int

    def find(state: Numbered) -> State:
        if state["number"] == 2:
            raise ValueError("branch")
        return _find(state)

    graph = StateGraph(Numbered)
    graph.add_node("find", find)
    graph.add_conditional_edges(START, lambda s: [Send("find", {**s, "number": n}) for n in range(4)], ["find"])
    whole, given = graph.compile(name="map"), {"question": QUESTION}
    with captured() as run:
        with pytest.raises(ValueError, match="branch"):
            _ = await whole.ainvoke(given, run.config()) if asynchronous else whole.invoke(given, run.config())
        await ended(run)
        run.outlived = True  # a branch on a thread runs on

    first, *rest = run.trees()[0].split("\n")
    assert first == "invoke_workflow map completed ERROR:ValueError"
    assert set(rest) <= {"  retrieval Library", "  retrieval Library cancelled"}  # as many as had begun
    assert run.outcomes == {"no_sample": 1}


def test_a_functional_workflow_is_a_root_with_its_runs():
    @task
    def find(question: str) -> list[str]:
        return _find({"question": question})["docs"]

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(question: str) -> dict[str, Any]:
        return {"question": question, "docs": find(question).result(), "answer": f"{ANSWER}{interrupt('sure?')}"}

    with captured(metric := Grounded()) as run:
        config = run.config(configurable={"thread_id": "t-1"})
        workflow.invoke(QUESTION, config)
        workflow.invoke(Command(resume="!"), config)

    assert run.drawn() == tree(
        """
        invoke_workflow LangGraph interrupted
          retrieval Library
        invoke_workflow LangGraph completed
        """
    )
    assert run.outcomes == {"no_sample": 1, "scored": 1}
    assert (metric.seen[0].user_input, metric.seen[0].response) == (QUESTION, f"{ANSWER}!")


# --- interrupts -------------------------------------------------------------------------------------------------


def _approve(state: State) -> State:
    return {"question": f"{state['question']}{interrupt('go on?')}"}


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "nested"])
async def test_an_interrupted_turn_is_not_scored_and_its_resumption_is(way):
    graph = state_graph(find=_find, approve=_approve, answer=_answer)
    if way == "nested":
        graph = state_graph(all=graph.compile(name="inner"))
    whole = graph.compile(name="hitl", checkpointer=InMemorySaver())
    with captured(metric := Grounded()) as run:
        config = run.config(configurable={"thread_id": "t-1"})
        for given in ({"question": QUESTION}, Command(resume="!")):
            if way == "ainvoke":
                await whole.ainvoke(given, config)
            elif way == "stream":
                list(whole.stream(given, config))
            else:
                whole.invoke(given, config)
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_workflow hitl interrupted
          retrieval Library
        invoke_workflow hitl completed
          chat GenericFakeChatModel
        """
    )
    assert run.outcomes == {"no_sample": 1, "scored": 1}
    assert {s.attributes["gen_ai.conversation.id"] for s in run.spans if s.name.startswith("invoke")} == {"t-1"}
    assert metric.seen[0].response == ANSWER


def test_a_graph_interrupted_and_resumed_within_one_run_is_no_interrupted_turn():
    graph = state_graph(find=_find, approve=_approve, answer=_answer)
    whole = graph.compile(name="hitl", checkpointer=InMemorySaver())

    def approving(question: str) -> str:
        config = {"configurable": {"thread_id": "t-1"}}
        whole.invoke({"question": question}, config)
        return whole.invoke(Command(resume="!"), config)["answer"]

    with captured() as run:
        assert RunnableLambda(approving).invoke(QUESTION, run.config()) == ANSWER

    assert run.drawn() == tree(
        """
        invoke_workflow approving completed
          retrieval Library
          chat GenericFakeChatModel
        """
    )
    assert run.outcomes == {"scored": 1}


def test_a_turn_that_is_resumed_in_part_waits_on():
    class Two(TypedDict, total=False):
        question: str
        one: str
        other: str

    inner = StateGraph(Two)
    inner.add_node("ask", lambda _: {"other": interrupt("other?")})
    inner.add_edge(START, "ask")
    graph = StateGraph(Two)
    graph.add_node("ask", lambda _: {"one": interrupt("one?")})
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "ask")
    graph.add_edge(START, "inner")
    whole = graph.compile(name="both", checkpointer=InMemorySaver())
    with captured() as run:
        config = run.config(configurable={"thread_id": "t-1"})
        waiting = whole.invoke({"question": QUESTION}, config)["__interrupt__"]
        ids = {asked.value: asked.id for asked in waiting}
        for question in ("other?", "one?"):
            whole.invoke(Command(resume={ids[question]: "yes"}), config)

    ends = [s.attributes["spanscore.run.end"] for s in sorted(run.spans, key=lambda span: span.start_time)]
    assert ends == ["interrupted", "interrupted", "completed"]


def test_a_tool_that_asks_a_person_is_no_error():
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}: {interrupt('sure?')}"

    said = (calling("pay", {"amount": 3}), AIMessage(ANSWER))
    payer = agent(*said, name="payer", tools=[pay], checkpointer=InMemorySaver())
    with captured() as run:
        config = run.config(configurable={"thread_id": "t-1"})
        payer.invoke(ASKED, config)
        payer.invoke(Command(resume="yes"), config)

    assert run.drawn() == tree(
        """
        invoke_agent payer interrupted
          chat Scripted
          execute_tool pay
        invoke_agent payer completed
          execute_tool pay
          chat Scripted
        """
    )


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_breakpoint_interrupts_a_turn_too(where, asynchronous):
    node = {"interrupt_before": ["tools"]} if where == "before" else {"interrupt_after": ["model"]}
    said = (calling("weather", {"city": "Paris"}, "I will look."), AIMessage(ANSWER))
    careful = agent(*said, checkpointer=InMemorySaver(), **node)
    with captured() as run:
        config = run.config(configurable={"thread_id": "t-1"})
        for given in (ASKED, None):
            _ = await careful.ainvoke(given, config) if asynchronous else careful.invoke(given, config)
        await ended(run)

    assert run.trees()[0] == "invoke_agent helper interrupted\n  chat Scripted"
    assert len(run.trees()) == 2
    assert run.outcomes["no_sample"] >= 1


def test_a_hand_over_to_the_parent_graph_is_neither_an_error_nor_an_interrupt():
    def hand_over(state: State) -> Command[Any]:
        return Command(goto="answer", update={"docs": [CONTEXT]}, graph=Command.PARENT)

    inner = state_graph(find=_find, over=hand_over).compile(name="inner")
    graph = StateGraph(State)
    graph.add_node("inner", inner)
    graph.add_node("answer", _answer)
    graph.add_edge(START, "inner")
    with captured() as run:
        graph.compile(name="outer").invoke({"question": QUESTION}, run.config())

    assert run.drawn() == tree(
        """
        invoke_workflow outer completed
          retrieval Library
          chat GenericFakeChatModel
        """
    )
    assert run.outcomes == {"scored": 1}


# --- broken off -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_graphs_stream_broken_off_is_abandoned(asynchronous):
    graph = state_graph(find=_find, answer=_answer).compile(name="rag")
    with captured() as run:
        if asynchronous:
            async with aclosing(graph.astream({"question": QUESTION}, run.config())) as stream:
                await anext(stream)
        else:
            stream = graph.stream({"question": QUESTION}, run.config())
            next(stream)
            stream.close()
        await ended(run)

    assert run.drawn() == "invoke_workflow rag abandoned\n  retrieval Library\n"
    assert run.outcomes == {"no_sample": 1}


@pytest.mark.parametrize("way", ["stream", "astream", "astream_events"])
async def test_an_agents_stream_broken_off_leaves_nothing_open(way):
    with captured() as run:
        if way == "stream":
            stream = agent().stream(ASKED, run.config(), stream_mode="messages")
            next(stream)
            stream.close()
        else:
            kwargs = {"stream_mode": "messages"} if way == "astream" else {"version": "v2"}
            async with aclosing(getattr(agent(), way)(ASKED, run.config(), **kwargs)) as parts:
                async for part in parts:
                    if way == "astream" or part["event"] == "on_chat_model_stream":
                        break
        await ended(run)

    first, *rest = run.trees()[0].split("\n")
    assert first == f"invoke_agent helper {'cancelled' if way == 'astream_events' else 'abandoned'}"
    assert rest in (["  chat Scripted"], ["  chat Scripted cancelled"])  # the whole text is one chunk
    assert run.outcomes == {"no_sample": 1}


def test_a_node_that_raises_is_an_error_of_the_root():
    def fail(state: State) -> State:
        raise ValueError(state["question"])

    with captured() as run, pytest.raises(ValueError, match="capital"):
        state_graph(find=_find, fail=fail).compile(name="rag").invoke({"question": QUESTION}, run.config())

    assert run.drawn() == tree(
        """
        invoke_workflow rag completed ERROR:ValueError
          retrieval Library
        """
    )
    assert run.outcomes == {"no_sample": 1}


@pytest.mark.parametrize("way", [_by_ainvoke, _by_astream, _by_events])
async def test_a_cancelled_graph_closes_its_agents_and_tools(way):
    reached = asyncio.Event()

    @tool
    async def wait(city: str) -> str:
        """Wait."""
        reached.set()
        await asyncio.Event().wait()
        return city

    waiting = agent(calling("wait", {"city": "Paris"}), name="waiter", tools=[wait])
    with captured() as run:
        running = asyncio.ensure_future(way(waiting, run.config()))
        await reached.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await ended(run)

    assert run.drawn() == tree(
        """
        invoke_agent waiter cancelled
          chat Scripted
          execute_tool wait cancelled
        """
    )
    assert run.outcomes == {"no_sample": 1}

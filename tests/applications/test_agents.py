"""Agents: their tools, their retries, their structured answers, and their hand-overs."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnablePassthrough
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command
from langgraph_swarm import create_handoff_tool, create_swarm
from pydantic import BaseModel
from tests.applications.application import asked, calls, judged, sample, says
from tests.applications.calling import asked_and_answered, called, called_by
from tests.applications.shelf import Shelf, format_docs, looked_up

# --- LangGraph, the prebuilt `create_react_agent` -------------------------------------------------------------------
# Parallel calls, their results, an answer, and the next turn of the thread.

REACT_QUESTION, REACT_ANSWER = "What's the weather in SF and NYC?", "Foggy in SF, sunny in NYC."
THANKS, WELCOME = "Thanks!", "You're welcome."


@tool
def get_weather(city: str) -> str:
    """Ask for the weather of a city."""
    return "foggy" if city == "SF" else "sunny"


def react_agent() -> Any:
    both = [*calls("get_weather", "w1", city="SF").tool_calls, *calls("get_weather", "w2", city="NYC").tool_calls]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has moved to langchain.agents, and is much used
        model = says(AIMessage("", tool_calls=both), REACT_ANSWER, WELCOME)
        return create_react_agent(model, [get_weather], checkpointer=InMemorySaver())


def test_each_turn_is_judged_by_its_own_words_and_the_thread_as_a_whole() -> None:
    app = react_agent()

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"messages": [("user", REACT_QUESTION)]}, config)
        app.invoke({"messages": [("user", THANKS)]}, config)

    first, second = judged(two_turns)

    result = (
        f"Human: {REACT_QUESTION}\nTools:\n  get_weather: {{'city': 'SF'}}\n  get_weather: {{'city': 'NYC'}}\n"
        f"ToolOutput: foggy\nToolOutput: sunny\nAI: {REACT_ANSWER}"
    )
    assert (first.single_turn, first.conversation) == (sample(REACT_QUESTION, REACT_ANSWER), result)
    assert second.single_turn == sample(THANKS, WELCOME)
    assert second.conversation == f"{result}\nHuman: {THANKS}\nAI: {WELCOME}"


# --- LangChain, a tool with `return_direct`: its result is the answer, and no model is called after it --------------

DIRECT_QUESTION = "Where is my order 7?"
DIRECT_ANSWER = "Order 7 is out for delivery."


@tool(return_direct=True)
def order_status(order: int) -> str:
    """Return the state of an order."""
    return f"Order {order} is out for delivery."


def test_the_answer_is_what_the_tool_gave_back() -> None:
    app = create_agent(says(calls("order_status", order=7)), tools=[order_status])

    seen = asked(app, {"messages": [("user", DIRECT_QUESTION)]})

    assert seen.single_turn == sample(DIRECT_QUESTION, DIRECT_ANSWER)
    assert (
        seen.conversation
        == f"Human: {DIRECT_QUESTION}\nTools:\n  order_status: {{'order': 7}}\nToolOutput: {DIRECT_ANSWER}"
    )


# --- LangChain, an agent with a `response_format` -------------------------------------------------------------------
# The answer is a structure, which the model gives as a call of no tool.

FORMAT_QUESTION = "Extract the contact: John Doe, john@example.com"
FORMAT_ANSWER = '{"name":"John Doe","email":"john@example.com"}'


class ContactInfo(BaseModel):
    """Contact information of a person."""

    name: str
    email: str


@tool
def look_up(name: str) -> str:
    """Look a person up in the address book."""
    return "john@example.com"


def test_the_answer_is_the_structure() -> None:
    structured = calls("ContactInfo", name="John Doe", email="john@example.com")
    app = create_agent(says(structured), response_format=ToolStrategy(ContactInfo))

    seen = asked(app, {"messages": [("user", FORMAT_QUESTION)]})

    assert seen.single_turn == sample(FORMAT_QUESTION, FORMAT_ANSWER)


def test_beside_real_tools_the_answer_is_still_the_structure() -> None:
    structured = calls("ContactInfo", "c2", name="John Doe", email="john@example.com")
    model = says(calls("look_up", "c1", name="John Doe"), structured)
    app = create_agent(model, tools=[look_up], response_format=ToolStrategy(ContactInfo))

    seen = asked(app, {"messages": [("user", FORMAT_QUESTION)]})

    assert seen.single_turn == sample(FORMAT_QUESTION, FORMAT_ANSWER)
    assert called(seen.multi_turn)[0] == ("look_up", {"name": "John Doe"})


# --- LangChain, `ToolRetryMiddleware`: a tool fails twice before it answers; the model asked for it once ------------

RETRY_QUESTION = "What is the weather in Oslo?"
RETRY_ANSWER = "It snows in Oslo."


def weather_agent(failures: int) -> Any:
    left = iter(range(failures))

    @tool
    def weather(city: str) -> str:
        """Ask the weather service."""
        if next(left, None) is not None:
            raise ConnectionError("unreachable")
        return "snow"

    retry: Any = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    return create_agent(says(calls("weather", city="Oslo"), RETRY_ANSWER), tools=[weather], middleware=[retry])


def test_a_call_that_was_tried_three_times_is_one_call() -> None:
    seen = asked(weather_agent(failures=2), {"messages": [("user", RETRY_QUESTION)]})

    assert seen.single_turn == sample(RETRY_QUESTION, RETRY_ANSWER)
    assert seen.conversation == (
        f"Human: {RETRY_QUESTION}\nTools:\n  weather: {{'city': 'Oslo'}}\nToolOutput: snow\nAI: {RETRY_ANSWER}"
    )


# --- A chain with two retrievals: the first only leads to the query of the second, from which it answers ------------

ROUNDS_QUESTION = "Which river flows through the capital of Austria?"
AUSTRIA = "Austria's capital is Vienna."
VIENNA = "Vienna lies on the Danube."
DANUBE = "The Danube is 2,850 km long."
ROUNDS_ANSWER = "The Danube."


def two_rounds(first: tuple[str, ...] = (AUSTRIA,)) -> Any:
    retriever = Shelf(holds={"Vienna": (VIENNA, DANUBE), "Austria": first})
    look_for = (
        {"notes": retriever | format_docs, "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{notes}\n\nWhat must be looked up to answer: {question}")
        | says("Vienna river")
        | StrOutputParser()
    )
    answer_prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    answer_from = {"context": look_for | retriever | format_docs, "question": RunnablePassthrough()}
    return answer_from | answer_prompt | says(ROUNDS_ANSWER) | StrOutputParser()


def test_the_round_in_the_answering_prompt_is_the_context() -> None:
    app = two_rounds()

    seen, unused = looked_up(lambda config: app.invoke(ROUNDS_QUESTION, config))

    assert seen == sample(ROUNDS_QUESTION, ROUNDS_ANSWER, [VIENNA, DANUBE])
    assert unused == 1


def test_a_document_that_both_rounds_found_is_one_context() -> None:
    app = two_rounds(first=(AUSTRIA, VIENNA))

    seen, unused = looked_up(lambda config: app.invoke(ROUNDS_QUESTION, config))

    assert seen == sample(ROUNDS_QUESTION, ROUNDS_ANSWER, [VIENNA, DANUBE])
    assert unused == 1


# --- deepagents: an agent with files of its own gives a part of its work to a subagent, by its `task` tool ----------

DEEP_QUESTION = "What is LangGraph?"
DEEP_ANSWER = "LangGraph is a library for agents as graphs."
TASK = "Find out what LangGraph is."


@tool
def internet_search(query: str) -> str:
    """Run a web search."""
    return "LangGraph: agents as graphs."


def deep_agent() -> Any:
    researcher = {
        "name": "researcher",
        "description": "Researches one topic.",
        "system_prompt": "You are a researcher.",
        "tools": [internet_search],
        "model": says(calls("internet_search", "r1", query="LangGraph"), "It runs agents as graphs."),
    }
    model = says(
        calls("write_file", "d1", file_path="/plan.md", content="Research LangGraph."),
        calls("task", "d2", description=TASK, subagent_type="researcher"),
        DEEP_ANSWER,
    )
    return create_deep_agent(model=model, subagents=[researcher], name="writer")


def test_the_calls_of_the_subagent_are_seen_too_and_its_task_is_no_turn_of_the_user() -> None:
    seen = asked(deep_agent(), {"messages": [{"role": "user", "content": DEEP_QUESTION}]})

    assert seen.single_turn == sample(DEEP_QUESTION, DEEP_ANSWER)
    assert asked_and_answered(seen.multi_turn) == [DEEP_QUESTION, DEEP_ANSWER]
    assert called_by(seen.multi_turn) == [
        ("writer", "write_file"),
        ("writer", "task"),
        ("researcher", "internet_search"),
    ]


# --- langgraph-swarm: two agents hand the conversation over to each other; the active one answers the next turn, too

TO_BOB, HELLO = "I'd like to speak to Bob.", "Ahoy! Bob here."
SUM, RESULT = "What's 5 + 7?", "Let me get Alice to add. 5 + 7 is 12."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def swarm() -> Any:
    alice_says = says(calls("transfer_to_bob", "a1"), calls("add", "a2", a=5, b=7), RESULT)
    alice = create_agent(alice_says, tools=[add, create_handoff_tool(agent_name="bob")], name="alice")
    bob_says = says(HELLO, calls("transfer_to_alice", "b1"))
    bob = create_agent(bob_says, tools=[create_handoff_tool(agent_name="alice")], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile(checkpointer=InMemorySaver())


def test_a_conversation_goes_on_with_whoever_is_active() -> None:
    app = swarm()

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"messages": [{"role": "user", "content": TO_BOB}]}, config)
        app.invoke({"messages": [{"role": "user", "content": SUM}]}, config)

    first, second = judged(two_turns)

    assert (first.single_turn, second.single_turn) == (sample(TO_BOB, HELLO), sample(SUM, RESULT))
    assert second.conversation == (
        f"Human: {TO_BOB}\nTools:\n  transfer_to_bob: {{}}\nToolOutput: Successfully transferred to bob\nAI: {HELLO}\n"
        f"Human: {SUM}\nTools:\n  transfer_to_alice: {{}}\nToolOutput: Successfully transferred to alice\n"
        f"Tools:\n  add: {{'a': 5, 'b': 7}}\nToolOutput: 12\nAI: {RESULT}"
    )
    assert called_by(second.multi_turn) == [
        ("alice", "transfer_to_bob"),
        ("bob", "transfer_to_alice"),
        ("alice", "add"),
    ]


# --- LangGraph, "Multi-agent supervisor" by hand --------------------------------------------------------------------
# A model routes by a structured answer, workers report as if they were human.

ROUTED_QUESTION = "What's the square root of 42?"
ROUTED_ANSWER = "The square root of 42 is about 6.4807."


class Router(BaseModel):
    """Worker to route to next. If no workers needed, route to FINISH."""

    next: Literal["researcher", "coder", "FINISH"]


@tool
def python_repl(code: str) -> str:
    """Run Python."""
    return "6.48074069840786"


def team() -> Any:
    router = says(calls("Router", next="coder"), calls("Router", next="FINISH")).with_structured_output(Router)
    coder = create_agent(says(calls("python_repl", code="print(42 ** 0.5)"), ROUTED_ANSWER), tools=[python_repl])

    def supervisor_node(state: MessagesState) -> Command[Literal["coder", "__end__"]]:
        goto = router.invoke([{"role": "system", "content": "You are a supervisor."}, *state["messages"]]).next
        return Command(goto=END if goto == "FINISH" else goto)

    def code_node(state: MessagesState) -> Command[Literal["supervisor"]]:
        said = coder.invoke(state)["messages"][-1].content
        return Command(update={"messages": [HumanMessage(content=said, name="coder")]}, goto="supervisor")

    builder = StateGraph(MessagesState)
    builder.add_node("supervisor", supervisor_node)
    builder.add_node("coder", code_node)
    builder.add_edge(START, "supervisor")
    return builder.compile()


def test_the_answer_is_the_workers_and_not_the_supervisors_word_to_finish() -> None:
    seen = asked(team(), {"messages": [("user", ROUTED_QUESTION)]})

    assert seen.single_turn == sample(ROUTED_QUESTION, ROUTED_ANSWER)
    assert asked_and_answered(seen.multi_turn) == [ROUTED_QUESTION, ROUTED_ANSWER]
    assert called(seen.multi_turn) == [("python_repl", {"code": "print(42 ** 0.5)"})]

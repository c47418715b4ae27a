"""LangGraph, "Subgraphs": an agent is a node of a graph, sharing its messages, or behind a state of its own."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called

QUESTION = "Is the 10:04 to Bern on time?"
ANSWER = "It is four minutes late."
CALL = ("departures", {"train": "10:04 Bern"})


@tool
def departures(train: str) -> str:
    """Ask when a train leaves."""
    return "10:08"


def agent() -> Any:
    return create_agent(says(calls("departures", train="10:04 Bern"), ANSWER), tools=[departures], name="timetable")


def test_a_subgraph_that_shares_the_messages_is_part_of_the_conversation() -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("timetable", agent())
    builder.add_edge(START, "timetable")

    seen = asked(builder.compile(), {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == (
        f"Human: {QUESTION}\nTools:\n  departures: {{'train': '10:04 Bern'}}\nToolOutput: 10:08\nAI: {ANSWER}"
    )


class State(TypedDict):
    question: str
    answer: str


def test_a_subgraph_with_a_state_of_its_own_is_heard_through_its_calls() -> None:
    inner = agent()

    def ask(state: State) -> dict[str, Any]:
        text = inner.invoke({"messages": [("user", f"Answer the passenger: {state['question']}")]})
        return {"answer": text["messages"][-1].content}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")

    seen = asked(builder.compile(), {"question": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called(seen.multi_turn) == [CALL]

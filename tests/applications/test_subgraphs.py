"""LangGraph, "Subgraphs": the parent has a request and a report; its subgraph has messages of its own."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import START, MessagesState, StateGraph
from tests.applications.application import Judged, asked, sample, says

REQUEST = "the ferries of Lisbon"
REPORT = "Ferries cross the Tagus every 20 minutes."


class Research(TypedDict):
    research_topic: str
    report: str
    approved: bool


def researcher() -> Any:
    llm = says("Ferries cross the Tagus.", REPORT)
    builder = StateGraph(MessagesState)
    builder.add_node("search", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node(
        "write", lambda state: {"messages": [llm.invoke([*state["messages"], HumanMessage("How often?")])]}
    )
    builder.add_edge(START, "search")
    builder.add_edge("search", "write")
    return builder.compile()


def newsroom() -> Any:
    subgraph, editor = researcher(), says("APPROVED")

    def research(state: Research) -> dict[str, Any]:
        brief = [SystemMessage("You research."), HumanMessage(f"Find out all about {state['research_topic']}.")]
        return {"report": subgraph.invoke({"messages": brief})["messages"][-1].content}

    builder = StateGraph(Research)
    builder.add_node("research", research)
    builder.add_node("edit", lambda s: {"approved": editor.invoke(f"Approve? {s['report']}").content == "APPROVED"})
    builder.add_edge(START, "research")
    builder.add_edge("research", "edit")
    return builder.compile()


def test_the_parents_request_and_report_are_judged_and_no_message_of_the_subgraph() -> None:
    assert asked(newsroom(), {"research_topic": REQUEST}) == Judged(
        single_turn=sample(REQUEST, REPORT), source="only_text"
    )

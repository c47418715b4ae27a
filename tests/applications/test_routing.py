"""LangGraph, "Workflows and agents", routing: a structured decision, then the model of that route."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, replies, sample


class Route(BaseModel):
    step: Literal["poem", "story", "joke"]


class State(TypedDict):
    input: str
    decision: str
    output: str


def router_workflow() -> Any:
    llm = replies({"Route the input": calls("Route", step="joke"), "a joke about cats": "Cats? They purr-fer naps."})

    def llm_call_router(state: State) -> dict[str, Any]:
        system = SystemMessage("Route the input to story, joke, or poem based on the user's request.")
        return {"decision": llm.with_structured_output(Route).invoke([system, HumanMessage(state["input"])]).step}

    def write(state: State) -> dict[str, Any]:
        return {"output": llm.invoke(state["input"]).content}

    builder = StateGraph(State)
    builder.add_node("llm_call_router", llm_call_router)
    for kind in ("story", "joke", "poem"):
        builder.add_node(kind, write)
        builder.add_edge(kind, END)
    builder.add_edge(START, "llm_call_router")
    builder.add_conditional_edges("llm_call_router", lambda state: state["decision"], ["story", "joke", "poem"])
    return builder.compile()


def test_input_and_output_are_question_and_answer() -> None:
    assert asked(router_workflow(), {"input": "Write me a joke about cats"}) == Judged(
        single_turn=sample("Write me a joke about cats", "Cats? They purr-fer naps."), source="keys"
    )

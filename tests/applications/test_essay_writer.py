"""The essay writer of the LangGraph course: a plan, a draft, a critique, until the revisions are used up."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from tests.applications.application import Judged, asked, sample, says


class AgentState(TypedDict):
    task: str
    plan: str
    draft: str
    critique: str
    revision_number: int
    max_revisions: int


TASK = "What is the difference between langchain and langsmith?"


def essay_writer(*said: str) -> Any:
    model = says(*said)

    def ask(system: str, human: str) -> Any:
        return model.invoke([SystemMessage(system), HumanMessage(human)]).content

    def plan(state: AgentState) -> dict[str, Any]:
        return {"plan": ask("Write a high level outline of an essay.", state["task"])}

    def generate(state: AgentState) -> dict[str, Any]:
        human = f"{state['task']}\n\nHere is my plan:\n\n{state['plan']}"
        return {"draft": ask("Write the best essay.", human), "revision_number": state.get("revision_number", 0) + 1}

    def reflect(state: AgentState) -> dict[str, Any]:
        return {"critique": ask("You are a teacher grading an essay.", state["draft"])}

    builder = StateGraph(AgentState)
    builder.add_node("planner", plan)
    builder.add_node("generate", generate)
    builder.add_node("reflect", reflect)
    builder.add_edge(START, "planner")
    builder.add_edge("planner", "generate")
    builder.add_conditional_edges(
        "generate",
        lambda s: END if s["revision_number"] >= s["max_revisions"] else "reflect",
        {END: END, "reflect": "reflect"},
    )
    builder.add_edge("reflect", "generate")
    return builder.compile()


def test_what_models_said_is_given_together_where_nothing_tells_the_essay_from_its_plan() -> None:
    app = essay_writer("1. LangChain 2. LangSmith", "They differ.", "Too short.", "One builds, the other watches.")

    assert asked(app, {"task": TASK, "max_revisions": 2}) == Judged(
        single_turn=sample(
            TASK,
            '{"plan":"1. LangChain 2. LangSmith","draft":"One builds, the other watches.",'
            '"critique":"Too short.","revision_number":2}',
        ),
        source="object",
    )

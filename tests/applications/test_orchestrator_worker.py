"""LangGraph, "Workflows and agents", orchestrator-worker: a plan of sections, a worker for each, one report."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, replies, sample


class Section(BaseModel):
    name: str
    description: str


class Sections(BaseModel):
    sections: list[Section]


class State(TypedDict):
    topic: str
    sections: list[Section]
    completed_sections: Annotated[list[str], operator.add]
    final_report: str


class WorkerState(TypedDict):
    section: Section


PLAN = [{"name": "Data", "description": "What it learns of."}, {"name": "Size", "description": "How large it grows."}]


def report_writer() -> Any:
    llm = replies(
        {
            "Generate a plan": calls("Sections", sections=PLAN),
            "section name: Data": "More data is better.",
            "section name: Size": "Larger is better.",
        }
    )

    def orchestrator(state: State) -> dict[str, Any]:
        brief = [SystemMessage("Generate a plan for the report."), HumanMessage(f"Here is the topic: {state['topic']}")]
        return {"sections": llm.with_structured_output(Sections).invoke(brief).sections}

    def llm_call(state: WorkerState) -> dict[str, Any]:
        about = f"Here is the section name: {state['section'].name} and description: {state['section'].description}"
        return {"completed_sections": [llm.invoke([SystemMessage("Write a section."), HumanMessage(about)]).content]}

    def synthesizer(state: State) -> dict[str, Any]:
        return {"final_report": "\n\n---\n\n".join(state["completed_sections"])}

    builder = StateGraph(State)
    builder.add_node("orchestrator", orchestrator)
    builder.add_node("llm_call", llm_call)
    builder.add_node("synthesizer", synthesizer)
    builder.add_edge(START, "orchestrator")
    builder.add_conditional_edges(
        "orchestrator", lambda state: [Send("llm_call", {"section": s}) for s in state["sections"]], ["llm_call"]
    )
    builder.add_edge("llm_call", "synthesizer")
    builder.add_edge("synthesizer", END)
    return builder.compile()


def test_the_report_is_judged_and_not_its_last_section() -> None:
    topic = "Create a report on LLM scaling laws"

    assert asked(report_writer(), {"topic": topic}) == Judged(
        single_turn=sample(topic, "More data is better.\n\n---\n\nLarger is better."), source="only_text"
    )

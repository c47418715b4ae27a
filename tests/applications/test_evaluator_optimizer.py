"""LangGraph, "Workflows and agents", evaluator-optimizer: a joke is written, graded, and written again until it is funny."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from tests.applications.application import Judged, asked, calls, sample, says


class State(TypedDict):
    joke: str
    topic: str
    feedback: str
    funny_or_not: str


class Feedback(BaseModel):
    grade: Literal["funny", "not funny"] = Field(description="Decide if the joke is funny or not.")
    feedback: str = Field(description="If the joke is not funny, provide feedback on how to improve it.")


def optimizer() -> Any:
    llm = says("Why did the cat sit?", "Why did the cat sit on the laptop? To keep an eye on the mouse.")
    evaluator = says(
        calls("Feedback", grade="not funny", feedback="Add a pun."),
        calls("Feedback", grade="funny", feedback="Well done."),
    ).with_structured_output(Feedback)

    def generate(state: State) -> dict[str, Any]:
        if state.get("feedback"):
            msg = llm.invoke(
                f"Write a joke about {state['topic']} but take into account the feedback: {state['feedback']}"
            )
        else:
            msg = llm.invoke(f"Write a joke about {state['topic']}")
        return {"joke": msg.content}

    def evaluate(state: State) -> dict[str, Any]:
        grade = evaluator.invoke(f"Grade the joke {state['joke']}")
        return {"funny_or_not": grade.grade, "feedback": grade.feedback}

    def route(state: State) -> str:
        return "Accepted" if state["funny_or_not"] == "funny" else "Rejected + Feedback"

    builder = StateGraph(State)
    builder.add_node("llm_call_generator", generate)
    builder.add_node("llm_call_evaluator", evaluate)
    builder.add_edge(START, "llm_call_generator")
    builder.add_edge("llm_call_generator", "llm_call_evaluator")
    builder.add_conditional_edges(
        "llm_call_evaluator", route, {"Accepted": END, "Rejected + Feedback": "llm_call_generator"}
    )
    return builder.compile()


def test_the_joke_is_judged_and_not_its_grade() -> None:
    assert asked(optimizer(), {"topic": "cats"}) == Judged(
        single_turn=sample("cats", "Why did the cat sit on the laptop? To keep an eye on the mouse."), source="matched"
    )

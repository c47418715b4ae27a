"""LangChain, "Migrating from ConstitutionalChain": an answer is criticised by principles, and revised if it breaks one."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, sample, says

QUESTION = "What is the meaning of life? Answer in 10 words or fewer."
REVISED = "Life's meaning is found in joy and purpose."


class Critique(BaseModel):
    critique_needed: bool
    critique: str


class State(TypedDict):
    query: str
    constitutional_principles: list[dict[str, str]]
    initial_response: str
    critiques_and_revisions: list[tuple[str, str]]
    response: str


def constitutional() -> Any:
    llm = says(
        "Life's meaning is a personal journey.",
        calls("Critique", critique_needed=True, critique="It lacks concreteness."),
        REVISED,
    )

    def generate_response(state: State) -> dict[str, Any]:
        said = llm.invoke(state["query"]).content
        return {"response": said, "initial_response": said}

    def critique_and_revise(state: State) -> dict[str, Any]:
        critique = llm.with_structured_output(Critique).invoke(f"Criticise: {state['response']}").critique
        revision = llm.invoke(f"Revise: {state['response']}\nCritique: {critique}").content
        return {"critiques_and_revisions": [(critique, revision)], "response": revision}

    graph = StateGraph(State)
    graph.add_node("generate_response", generate_response)
    graph.add_node("critique_and_revise", critique_and_revise)
    graph.add_edge(START, "generate_response")
    graph.add_edge("generate_response", "critique_and_revise")
    graph.add_edge("critique_and_revise", END)
    return graph.compile()


def test_the_revised_response_is_the_answer_to_the_query() -> None:
    principle = {"critique_request": "Tell if this answer is good.", "revision_request": "Give a better answer."}

    assert asked(constitutional(), {"query": QUESTION, "constitutional_principles": [principle]}) == Judged(
        single_turn=sample(QUESTION, REVISED), source="keys"
    )

"""LangGraph, "Self-Discover": the modules that suit a task, adapted to it, as a structure, and the answer reasoned after it."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langgraph.graph import END, START, StateGraph
from tests.applications.application import Judged, asked, replies, sample

TASK = "This SVG path draws a: (A) circle (B) heptagon"
MODULES = "1. How could I devise an experiment?\n2. How could I simplify the problem?"
ANSWER = "The path has seven sides: (B) heptagon."


class SelfDiscoverState(TypedDict):
    reasoning_modules: str
    task_description: str
    selected_modules: str | None
    adapted_modules: str | None
    reasoning_structure: str | None
    answer: str | None


def self_discover() -> Any:
    model = replies(
        {
            "Select several": "2. How could I simplify the problem?",
            "Rephrase": "Count the corners.",
            "Operationalize": '{"Corners": ""}',
            "Follow": ANSWER,
        }
    )
    prompts = {
        "selected_modules": "Select several modules: {reasoning_modules}\nTask: {task_description}",
        "adapted_modules": "Rephrase: {selected_modules}\nTask: {task_description}",
        "reasoning_structure": "Operationalize: {adapted_modules}\nTask: {task_description}",
        "answer": "Follow this structure: {reasoning_structure}\nTask: {task_description}",
    }

    def step(key: str) -> Any:
        chain = PromptTemplate.from_template(prompts[key]) | model | StrOutputParser()
        return lambda state: {key: chain.invoke(state)}

    graph = StateGraph(SelfDiscoverState)
    before = START
    for node, key in zip(("select", "adapt", "structure", "reason"), prompts, strict=True):
        graph.add_node(node, step(key))
        graph.add_edge(before, node)
        before = node
    graph.add_edge(before, END)
    return graph.compile()


def test_the_text_that_stands_in_the_answers_prompt_is_the_question() -> None:
    assert asked(self_discover(), {"task_description": TASK, "reasoning_modules": MODULES}) == Judged(
        single_turn=sample(TASK, ANSWER), source="matched"
    )

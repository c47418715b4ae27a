"""LangGraph, "Workflows and agents", prompt chaining: a joke, a gate that looks for a punchline, two rounds of polishing."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from tests.applications.application import Judged, asked, sample, says


class State(TypedDict):
    topic: str
    joke: str
    improved_joke: str
    final_joke: str


def joke_graph(*said: str) -> Any:
    llm = says(*said)

    def ask(key: str, prompt: str, of: str) -> Any:
        return lambda state: {key: llm.invoke(f"{prompt}{state[of]}").content}

    def check_punchline(state: State) -> str:
        return "Pass" if "?" in state["joke"] or "!" in state["joke"] else "Fail"

    workflow = StateGraph(State)
    workflow.add_node("generate_joke", ask("joke", "Write a short joke about ", "topic"))
    workflow.add_node("improve_joke", ask("improved_joke", "Make this joke funnier by adding wordplay: ", "joke"))
    workflow.add_node("polish_joke", ask("final_joke", "Add a surprising twist to this joke: ", "improved_joke"))
    workflow.add_edge(START, "generate_joke")
    workflow.add_conditional_edges("generate_joke", check_punchline, {"Fail": "improve_joke", "Pass": END})
    workflow.add_edge("improve_joke", "polish_joke")
    workflow.add_edge("polish_joke", END)
    return workflow.compile()


def test_a_joke_that_passes_the_gate_is_the_answer() -> None:
    joke = "What do you call a cat that bowls? An alley cat!"

    assert asked(joke_graph(joke), {"topic": "cats"}) == Judged(single_turn=sample("cats", joke), source="only_text")


def test_the_versions_of_a_joke_that_fails_it_are_all_given() -> None:
    chain = joke_graph("A cat bowls.", "An alley cat bowls.", "An alley cat bowls nine lives.")

    assert asked(chain, {"topic": "cats"}) == Judged(
        single_turn=sample(
            "cats",
            '{"joke":"A cat bowls.","improved_joke":"An alley cat bowls.","final_joke":"An alley cat bowls nine lives."}',
        ),
        source="object",
    )

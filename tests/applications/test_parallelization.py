"""LangGraph, "Workflows and agents", parallelization: a joke, a story and a poem side by side, put together into one text."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from tests.applications.application import Judged, asked, replies, sample


class State(TypedDict):
    topic: str
    joke: str
    story: str
    poem: str
    combined_output: str


def parallel_workflow() -> Any:
    llm = replies({"a joke": "Cats laugh.", "a story": "A cat went out.", "a poem": "O cat, o hat."})

    def aggregator(state: State) -> dict[str, Any]:
        combined = f"Here's a story, joke, and poem about {state['topic']}!\n\n"
        combined += f"STORY:\n{state['story']}\n\nJOKE:\n{state['joke']}\n\nPOEM:\n{state['poem']}"
        return {"combined_output": combined}

    builder = StateGraph(State)
    builder.add_node("aggregator", aggregator)
    for key in ("joke", "story", "poem"):
        builder.add_node(
            f"write_{key}", lambda s, key=key: {key: llm.invoke(f"Write a {key} about {s['topic']}").content}
        )
        builder.add_edge(START, f"write_{key}")
        builder.add_edge(f"write_{key}", "aggregator")
    builder.add_edge("aggregator", END)
    return builder.compile()


def test_the_text_that_holds_the_others_is_the_answer() -> None:
    assert asked(parallel_workflow(), {"topic": "cats"}) == Judged(
        single_turn=sample(
            "cats",
            "Here's a story, joke, and poem about cats!\n\n"
            "STORY:\nA cat went out.\n\nJOKE:\nCats laugh.\n\nPOEM:\nO cat, o hat.",
        ),
        source="matched",
    )

"""LangGraph, "Map-reduce branches": subjects of a topic, a joke about each (``Send``), the best of them."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, replies, sample


class Subjects(BaseModel):
    subjects: list[str]


class Joke(BaseModel):
    joke: str


class BestJoke(BaseModel):
    id: int


class OverallState(TypedDict):
    topic: str
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best_selected_joke: str


class JokeState(TypedDict):
    subject: str


def jokes() -> Any:
    model = replies(
        {
            "Generate a comma separated list": calls("Subjects", subjects=["lions", "penguins"]),
            "Generate a joke about lions": calls("Joke", joke="Why don't lions like fast food? They can't catch it."),
            "Generate a joke about penguins": calls("Joke", joke="Why don't penguins like talking? They are shy."),
            "Select the best one": calls("BestJoke", id=1),
        }
    )

    def generate_topics(state: OverallState) -> dict[str, Any]:
        prompt = f"Generate a comma separated list of between 2 and 5 examples related to: {state['topic']}."
        return {"subjects": model.with_structured_output(Subjects).invoke(prompt).subjects}

    def generate_joke(state: JokeState) -> dict[str, Any]:
        response = model.with_structured_output(Joke).invoke(f"Generate a joke about {state['subject']}")
        return {"jokes": [response.joke]}

    def best_joke(state: OverallState) -> dict[str, Any]:
        text = "\n\n".join(state["jokes"])
        response = model.with_structured_output(BestJoke).invoke(
            f"Below are a bunch of jokes about {state['topic']}. Select the best one! Return its ID.\n\n{text}"
        )
        return {"best_selected_joke": state["jokes"][response.id]}

    graph = StateGraph(OverallState)
    graph.add_node("generate_topics", generate_topics)
    graph.add_node("generate_joke", generate_joke)
    graph.add_node("best_joke", best_joke)
    graph.add_edge(START, "generate_topics")
    graph.add_conditional_edges(
        "generate_topics",
        lambda s: [Send("generate_joke", {"subject": name}) for name in s["subjects"]],
        ["generate_joke"],
    )
    graph.add_edge("generate_joke", "best_joke")
    graph.add_edge("best_joke", END)
    return graph.compile()


def test_the_best_joke_is_judged_as_the_answer_to_the_topic() -> None:
    assert asked(jokes(), {"topic": "animals"}) == Judged(
        single_turn=sample("animals", "Why don't penguins like talking? They are shy."), source="only_text"
    )

"""Keys that come in with one text and go out with another: a query made better on the way, a text that is polished."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says


class Search(TypedDict):
    user_query: str
    reply: str


class Question(TypedDict):
    question: str
    generation: str


class Text(TypedDict):
    text: str


def rewriting(schema: type, asked_under: str, answered_under: str) -> Any:
    llm = says("When does the ferry to Cacilhas leave?", "At nine.")
    builder = StateGraph(schema).add_sequence(
        [
            ("rewrite", lambda s: {asked_under: llm.invoke(f"Make this a better question: {s[asked_under]}").content}),
            ("answer", lambda s: {answered_under: llm.invoke(f"Answer: {s[asked_under]}").content}),
        ]
    )
    builder.add_edge(START, "rewrite")
    return builder.compile()


def polisher() -> Any:
    llm = says("The cat sat.", "FINE")
    builder = StateGraph(Text).add_sequence(
        [
            ("polish", lambda state: {"text": llm.invoke(f"Correct this: {state['text']}").content}),
            ("check", lambda state: llm.invoke(f"Is this fine? {state['text']}") and {"text": state["text"]}),
        ]
    )
    builder.add_edge(START, "polish")
    return builder.compile()


def test_a_query_that_was_rewritten_is_no_part_of_the_answer() -> None:
    assert asked(rewriting(Search, "user_query", "reply"), {"user_query": "ferry when"}) == Judged(
        single_turn=sample("ferry when", "At nine."), source="only_text"
    )


def test_the_question_is_the_one_that_the_user_asked() -> None:
    assert asked(rewriting(Question, "question", "generation"), {"question": "ferry when"}) == Judged(
        single_turn=sample("ferry when", "At nine."), source="keys"
    )


def test_a_text_that_comes_back_better_is_the_answer_to_what_came_in() -> None:
    assert asked(polisher(), {"text": "teh cat sat"}) == Judged(
        single_turn=sample("teh cat sat", "The cat sat."), source="only_text"
    )

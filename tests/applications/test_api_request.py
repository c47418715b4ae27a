"""A JSON API: ids and flags next to the user's message, metadata next to the answer."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel
from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says

QUESTION = "When does the office open?"
ANSWER = "At nine."
REQUEST = {"user_id": "u-481", "request": QUESTION, "lang": "en", "stream": False}


def endpoint(**metadata: Any) -> Any:
    prompt = ChatPromptTemplate.from_template("You are a clerk of the agency. Answer: {request}")
    return (
        RunnableParallel(reply=prompt | says(ANSWER) | StrOutputParser())
        .assign(**{key: lambda _, value=value: value for key, value in metadata.items()})
        .with_config(run_name="endpoint")
    )


class State(TypedDict, total=False):
    user_id: str
    request: str
    lang: str
    stream: bool
    response: str
    tokens: int


def graph() -> Any:
    llm = says(ANSWER)
    builder = StateGraph(State)
    builder.add_node(
        "answer", lambda state: {"response": llm.invoke(f"Answer: {state['request']}").content, "tokens": 7}
    )
    builder.add_edge(START, "answer")
    return builder.compile()


def test_the_text_in_the_prompt_is_distinguished_from_ids_and_flags() -> None:
    assert asked(endpoint(), REQUEST) == Judged(single_turn=sample(QUESTION, ANSWER), source="matched")


def test_what_the_model_said_is_distinguished_from_its_metadata() -> None:
    app = endpoint(model="gpt-x", trace_id="4bf92f", confidence=0.9, sources=["faq.md"])

    assert asked(app, REQUEST) == Judged(single_turn=sample(QUESTION, ANSWER), source="matched")


def test_a_graph_that_hands_its_request_through_does_too() -> None:
    assert asked(graph(), REQUEST) == Judged(single_turn=sample(QUESTION, ANSWER), source="matched")


@pytest.mark.parametrize("key", ["answer", "output", "result", "response", "generation", "final_answer"])
def test_a_known_key_beside_metadata_is_the_answer(key: str) -> None:
    prompt = ChatPromptTemplate.from_template("Answer: {question}")
    app = RunnableParallel({key: prompt | says(ANSWER) | StrOutputParser()}).assign(
        model=lambda _: "gpt-x", confidence=lambda _: 0.9, sources=lambda _: ["faq.md"]
    )

    assert asked(app, {"question": QUESTION, "user_id": "u-481"}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="keys"
    )

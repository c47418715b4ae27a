"""LangGraph, "Use the graph API": states that are pydantic models or data classes, private ones, and two schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from langchain_core.documents import Document
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, sample, says
from tests.live import CONTEXT, Library

QUESTION = "Where is the museum?"
ANSWER = "In the old town."


class PydanticState(BaseModel):
    user_question: str
    language: str = "en"
    reply: str | None = None


@dataclass
class DataclassState:
    user_question: str
    reply: str = ""


def guide(schema: type) -> Any:
    llm = says(ANSWER)
    graph = StateGraph(schema)
    graph.add_node("answer", lambda state: {"reply": llm.invoke(f"Guide, tell: {state.user_question}").content})
    graph.add_edge(START, "answer")
    return graph.compile()


def test_a_pydantic_state_is_read_as_a_dict_is() -> None:
    assert asked(guide(PydanticState), {"user_question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )


def test_a_state_given_as_a_pydantic_object_is_read_the_same() -> None:
    seen = asked(guide(PydanticState), PydanticState(user_question=QUESTION))

    assert seen.single_turn == sample(QUESTION, ANSWER)


def test_a_state_given_as_a_dataclass_is_read_the_same() -> None:
    assert asked(guide(DataclassState), DataclassState(user_question=QUESTION)) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )


class InputState(TypedDict):
    user_input: str


class OutputState(TypedDict):
    graph_output: str


class OverallState(TypedDict):
    foo: str
    user_input: str
    graph_output: str


class PrivateState(TypedDict):
    bar: str


def test_only_what_the_output_schema_lets_out_is_the_answer() -> None:
    def node_1(state: InputState) -> OverallState:
        return {"foo": state["user_input"] + " name"}  # type: ignore[typeddict-item]

    def node_2(state: OverallState) -> PrivateState:
        return {"bar": state["foo"] + " is"}

    def node_3(state: PrivateState) -> OutputState:
        return {"graph_output": state["bar"] + " Lance"}

    builder = StateGraph(OverallState, input_schema=InputState, output_schema=OutputState)
    builder.add_node("node_1", node_1)
    builder.add_node("node_2", node_2)
    builder.add_node("node_3", node_3)
    builder.add_edge(START, "node_1")
    builder.add_edge("node_1", "node_2")
    builder.add_edge("node_2", "node_3")
    builder.add_edge("node_3", END)

    assert asked(builder.compile(), {"user_input": "My"}) == Judged(
        single_turn=sample("My", "My name is Lance"), source="only_text"
    )


class Asked(TypedDict):
    question: str


class Answered(TypedDict):
    answer: str


class Found(TypedDict):
    question: str
    found: list[Document]


def test_documents_of_a_private_state_are_the_contexts() -> None:
    llm, library = says(ANSWER), Library()

    def retrieve(state: Asked) -> Found:
        return {"question": state["question"], "found": library.invoke(state["question"])}

    def answer(state: Found) -> Answered:
        return {"answer": llm.invoke(f"{state['found'][0].page_content}\n\n{state['question']}").content}

    builder = StateGraph(Found, input_schema=Asked, output_schema=Answered)
    builder.add_node("retrieve", retrieve)
    builder.add_node("answer", answer)
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "answer")

    assert asked(builder.compile(), {"question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER, [CONTEXT], retrieved_context_ids=["doc-1"]), source="keys"
    )

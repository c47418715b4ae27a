"""An answer with the numbers of its sources, split into the keys of a state, next to a fixed text."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, sample, says
from tests.live import CONTEXT, Library

QUESTION = "Since when is Paris the capital?"
ANSWER = "Since 987."


class CitedAnswer(BaseModel):
    """Answer the user question based only on the given sources, and cite the sources used."""

    answer: str
    citations: list[int]


def cited() -> Any:
    return says(calls("CitedAnswer", answer=ANSWER, citations=[1])).with_structured_output(CitedAnswer)


class State(TypedDict):
    user_question: str
    reply: str
    citations: list[int]
    disclaimer: str


def graph() -> Any:
    def answer(state: State) -> dict[str, Any]:
        found = Library().invoke(state["user_question"])
        said = cited().invoke(f"Sources: {found[0].page_content}\nQuestion: {state['user_question']}")
        return {"reply": said.answer, "citations": said.citations, "disclaimer": "Made by a machine."}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile()


def test_the_text_that_is_a_field_of_what_the_model_said_is_the_answer() -> None:
    assert asked(graph(), {"user_question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER, [CONTEXT], retrieved_context_ids=["doc-1"]), source="matched"
    )

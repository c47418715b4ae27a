"""LangChain, "How to get a RAG application to add citations": an answer with the numbers of its sources."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langgraph.graph import START, StateGraph
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, sample, says
from tests.line import CONTEXT, Library

QUESTION = "Since when is Paris the capital?"
ANSWER = "Since 987."
FOUND = {"contexts": [CONTEXT], "retrieved_context_ids": ["doc-1"]}


class CitedAnswer(BaseModel):
    """Answer the user question based only on the given sources, and cite the sources used."""

    answer: str
    citations: list[int]


def cited() -> Any:
    return says(calls("CitedAnswer", answer=ANSWER, citations=[1])).with_structured_output(CitedAnswer)


def chain() -> Any:
    prompt = ChatPromptTemplate.from_template("Sources: {context}\nQuestion: {question}")
    return RunnablePassthrough.assign(context=lambda given: Library().invoke(given["question"])).assign(
        answer=prompt | cited()
    )


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


def test_the_words_of_a_cited_answer_are_the_answer() -> None:
    assert asked(chain(), {"question": QUESTION}) == Judged(single=sample(QUESTION, ANSWER, **FOUND), source="keys")


def test_the_text_that_is_a_field_of_what_the_model_said_is_the_answer() -> None:
    assert asked(graph(), {"user_question": QUESTION}) == Judged(
        single=sample(QUESTION, ANSWER, **FOUND), source="matched"
    )

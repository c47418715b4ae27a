"""A chain with two retrievals: the first only leads to the query of the second, from which it answers."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from tests.applications.application import sample, says
from tests.applications.shelf import Shelf, format_docs, looked_up

QUESTION = "Which river flows through the capital of Austria?"
AUSTRIA = "Austria's capital is Vienna."
VIENNA = "Vienna lies on the Danube."
DANUBE = "The Danube is 2,850 km long."
ANSWER = "The Danube."


def two_rounds(first: tuple[str, ...] = (AUSTRIA,)) -> Any:
    retriever = Shelf(holds={"Vienna": (VIENNA, DANUBE), "Austria": first})
    look_for = (
        {"notes": retriever | format_docs, "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{notes}\n\nWhat must be looked up to answer: {question}")
        | says("Vienna river")
        | StrOutputParser()
    )
    answer_prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    answer_from = {"context": look_for | retriever | format_docs, "question": RunnablePassthrough()}
    return answer_from | answer_prompt | says(ANSWER) | StrOutputParser()


def test_the_round_in_the_answering_prompt_is_the_context() -> None:
    app = two_rounds()

    seen, unused = looked_up(lambda config: app.invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [VIENNA, DANUBE])
    assert unused == 1


def test_a_document_that_both_rounds_found_is_one_context() -> None:
    app = two_rounds(first=(AUSTRIA, VIENNA))

    seen, unused = looked_up(lambda config: app.invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [VIENNA, DANUBE])
    assert unused == 1

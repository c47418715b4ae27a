"""A model checks the user's message before another model answers; a forbidden message gets a fixed text."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableBranch, RunnablePassthrough
from tests.applications.application import Judged, asked, sample, says

QUESTION = "How do I open the lock of my own door?"
REFUSED = "I am sorry, I cannot help with that."


def moderated(verdict: str, *said: str) -> Any:
    llm = says(verdict, *said)
    moderate = ChatPromptTemplate.from_template("Is this allowed? {message}") | llm | StrOutputParser()
    answer = ChatPromptTemplate.from_template("Help: {message}") | llm | StrOutputParser()
    return RunnablePassthrough.assign(verdict=moderate) | RunnableBranch(
        (lambda given: given["verdict"] == "ALLOWED", answer), lambda _: REFUSED
    )


def test_the_message_is_the_question_and_not_the_moderators_prompt() -> None:
    assert asked(moderated("ALLOWED", "With its key."), {"message": QUESTION}) == Judged(
        single_turn=sample(QUESTION, "With its key."), source="only_text"
    )


def test_a_refusal_that_no_model_said_is_the_answer() -> None:
    assert asked(moderated("FORBIDDEN"), {"message": QUESTION}) == Judged(
        single_turn=sample(QUESTION, REFUSED), source="only_text"
    )

"""LCEL: a draft, its critique and a final text, given back together."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from tests.applications.application import Judged, asked, sample, says

QUESTION = "Why is the sky blue?"
ALL = '{"draft":"It is scattered.","critique":"Say what is scattered.","final":"Blue light is scattered most."}'


def revised(last: str) -> Any:
    llm = says("It is scattered.", "Say what is scattered.", "Blue light is scattered most.")

    def step(template: str) -> Any:
        return ChatPromptTemplate.from_template(template) | llm | StrOutputParser()

    return (
        RunnablePassthrough.assign(draft=step("Answer: {question}"))
        .assign(critique=step("Criticise: {draft}"))
        .assign(**{last: step("Revise: {draft}\nCritique: {critique}")})
    )


def test_a_known_key_is_the_answer_among_what_models_said() -> None:
    assert asked(revised("final_answer"), {"question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, "Blue light is scattered most."), source="keys"
    )


def test_without_one_all_that_models_said_is_given() -> None:
    assert asked(revised("final"), {"question": QUESTION}) == Judged(
        single_turn=sample(
            QUESTION,
            ALL,
        ),
        source="object",
    )


def test_a_question_that_is_asked_as_a_text_and_passed_through_is_no_part_of_the_answer() -> None:
    taking_text = {"question": RunnablePassthrough()} | revised("final")

    assert asked(taking_text, QUESTION) == Judged(single_turn=sample(QUESTION, ALL), source="object")

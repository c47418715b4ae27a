"""LangChain, "Route between sub-chains": a model chooses the topic, and the branch of that topic answers."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from tests.applications.application import Judged, asked, replies, sample

QUESTION = "How high is the tower?"
ANSWER = "The tower is 62 metres high."


def router(key: str) -> Any:
    llm = replies({"Topic of:": "buildings", "You are an architect.": ANSWER})
    classify = PromptTemplate.from_template("Topic of: {asked}") | llm | StrOutputParser()
    architect = PromptTemplate.from_template("You are an architect. Answer: {asked}") | llm | StrOutputParser()
    general = PromptTemplate.from_template("Answer: {asked}") | llm | StrOutputParser()

    def route(info: dict[str, str]) -> Any:
        return architect if "buildings" in info["topic"] else general

    as_asked = RunnableLambda(lambda given: {"asked": given[key]})
    return {"topic": as_asked | classify, "asked": lambda given: given[key]} | RunnableLambda(route)


def test_the_users_words_are_the_question_and_not_the_classifiers_prompt() -> None:
    assert asked(router("user_input"), {"user_input": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )


def test_so_they_are_under_a_key_that_nobody_knows() -> None:
    assert asked(router("frage"), {"frage": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )

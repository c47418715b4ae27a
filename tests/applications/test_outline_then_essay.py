"""LCEL: an outline on a topic, and an essay after the outline."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from tests.applications.application import Judged, asked, sample, says

ESSAY = "Ferries tie islands to the world."


def essay_chain() -> Any:
    llm = says("1. Islands 2. Ships", ESSAY)
    outline = ChatPromptTemplate.from_template("Write an outline on {topic}") | llm | StrOutputParser()
    essay = ChatPromptTemplate.from_template("Write an essay after this outline:\n{outline}") | llm | StrOutputParser()
    return {"outline": outline} | essay


def test_the_topic_is_the_question_and_not_the_first_prompt() -> None:
    assert asked(essay_chain(), {"topic": "ferries"}) == Judged(
        single_turn=sample("ferries", ESSAY), source="only_text"
    )


def test_a_topic_that_is_a_bare_text_is_read_the_same() -> None:
    assert asked(essay_chain(), "ferries") == Judged(single_turn=sample("ferries", ESSAY), source="only_text")

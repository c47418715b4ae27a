"""A prompt, a model, a parser: the user's words come under whatever key the prompt's variable has."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from tests.applications.application import Judged, asked, sample, says

QUESTION = "How high is the tower?"
ANSWER = "62 metres."
KEYS = [
    *("question", "query", "input", "user_input"),
    *("user_question", "prompt", "text", "message", "topic", "q", "user_query", "request", "frage"),
]


def chain(key: str) -> Any:
    prompt = ChatPromptTemplate.from_template(f"You are a guide of the city. Answer this: {{{key}}}")
    return prompt | says(ANSWER)


@pytest.mark.parametrize("key", KEYS)
def test_the_value_is_the_question_and_not_the_rendered_prompt(key: str) -> None:
    assert asked(chain(key) | StrOutputParser(), {key: QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )


@pytest.mark.parametrize("key", ["user_input", "topic"])
def test_it_is_where_the_models_message_is_the_answer(key: str) -> None:
    assert asked(chain(key), {key: QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="keys" if key == "user_input" else "only_text"
    )

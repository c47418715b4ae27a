"""LangChain, "Build a simple LLM application with chat models and prompt templates": a text and the language it shall have."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from tests.applications.application import Judged, asked, sample, says


def translator(said: str) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Translate the following from English into {language}"), ("user", "{text}")]
    )
    return prompt | says(said) | StrOutputParser()


def test_what_the_user_says_in_the_prompt_is_the_question_and_not_the_language() -> None:
    assert asked(translator("ciao!"), {"language": "Italian", "text": "hi!"}) == Judged(
        single_turn=sample("hi!", "ciao!"), source="matched"
    )


def test_a_known_key_beside_two_languages_is_the_question() -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You translate {input_language} to {output_language}."), ("human", "{input}")]
    )
    given = {"input_language": "English", "output_language": "German", "input": "I love programming."}

    assert asked(prompt | says("Ich liebe Programmieren."), given) == Judged(
        single_turn=sample("I love programming.", "Ich liebe Programmieren."), source="keys"
    )

"""LCEL's how-tos: a dict of itemgetters before the prompt."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from tests.applications.application import Judged, asked, sample, says
from tests.live import CONTEXT, Library

QUESTION = "Where did Harrison work?"
ANSWER = "Harrison ha lavorato a Kensho."


def in_a_language() -> Any:
    prompt = ChatPromptTemplate.from_template(
        "Answer the question based only on the following context:\n{context}\n\n"
        "Question: {question}\n\nAnswer in the following language: {language}"
    )
    return (
        {
            "context": itemgetter("question") | Library(),
            "question": itemgetter("question"),
            "language": itemgetter("language"),
        }
        | prompt
        | says(ANSWER)
        | StrOutputParser()
    )


def sum_of_lengths() -> Any:
    return (
        {
            "a": itemgetter("foo") | RunnableLambda(len),
            "b": {"text1": itemgetter("foo"), "text2": itemgetter("bar")} | RunnableLambda(lambda d: len(str(d))),
        }
        | ChatPromptTemplate.from_template("what is {a} + {b}")
        | says("3 + 9 = 12")
    )


def test_the_question_is_distinguished_from_its_language() -> None:
    assert asked(in_a_language(), {"question": QUESTION, "language": "italian"}) == Judged(
        single_turn=sample(QUESTION, ANSWER, [CONTEXT], retrieved_context_ids=["doc-1"]), source="only_text"
    )


def test_of_inputs_that_reach_no_prompt_none_is_the_question() -> None:
    seen = asked(sum_of_lengths(), {"foo": "bars", "bar": "gahs"})

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert all(word in (seen.reason or "") for word in ("foo", "bar", "extract="))


def city_then_country() -> Any:
    """LCEL, "multiple chains": the person is in the first prompt only, the language in the second only."""
    city = ChatPromptTemplate.from_template("what is the city {person} is from?") | says("Honolulu") | StrOutputParser()
    country = ChatPromptTemplate.from_template("what country is {city} in? respond in {language}")
    return {"city": city, "language": itemgetter("language")} | country | says("Estados Unidos") | StrOutputParser()


def test_a_language_that_stands_in_the_answers_prompt_is_not_the_question() -> None:
    seen = asked(city_then_country(), {"person": "obama", "language": "spanish"})

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert all(word in (seen.reason or "") for word in ("person", "language", "extract="))

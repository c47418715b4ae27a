"""LangChain, "Invoke runnables in parallel": a joke and a poem of one topic."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel
from tests.applications.application import Judged, asked, replies, sample

JOKE = "Why don't bears wear shoes? They like to go bear-foot."
POEM = "In the wild woods the bear does roam."


def joke_and_poem(*, parse: bool = True) -> Any:
    model = replies({"joke": JOKE, "poem": POEM})
    joke_chain = ChatPromptTemplate.from_template("tell me a joke about {topic}") | model
    poem_chain = ChatPromptTemplate.from_template("write a 2-line poem about {topic}") | model
    if parse:
        return RunnableParallel(joke=joke_chain | StrOutputParser(), poem=poem_chain | StrOutputParser())
    return RunnableParallel(joke=joke_chain, poem=poem_chain)


def test_both_texts_are_the_answer() -> None:
    assert asked(joke_and_poem(), {"topic": "bear"}) == Judged(
        single_turn=sample("bear", f'{{"joke":"{JOKE}","poem":"{POEM}"}}'), source="object"
    )


def test_both_are_where_the_models_messages_are_given_as_they_came() -> None:
    assert asked(joke_and_poem(parse=False), {"topic": "bear"}) == Judged(
        single_turn=sample("bear", f'{{"joke":"{JOKE}","poem":"{POEM}"}}'), source="object"
    )

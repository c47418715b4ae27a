"""LangChain's sequential chain in LCEL: a synopsis of a play of that title and era, and a review of it."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import FakeListLLM
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnablePassthrough
from tests.applications.application import Judged, asked, sample

SYNOPSIS = "Two lovers meet at the shore."
REVIEW = "A moving evening."


def play_and_review() -> Any:
    llm = FakeListLLM(responses=[SYNOPSIS, REVIEW])
    synopsis = PromptTemplate.from_template("Title: {title}\nWrite a synopsis for the above play:") | llm
    review = PromptTemplate.from_template("Play Synopsis:\n{synopsis}\nReview from a critic of the above play:") | llm
    return RunnablePassthrough.assign(synopsis=synopsis).assign(review=review)


def of_an_era() -> Any:
    llm = FakeListLLM(responses=[SYNOPSIS])
    prompt = PromptTemplate.from_template("Title: {title}\nEra: {era}\nWrite a synopsis for the above play:")
    return prompt | llm | StrOutputParser()


def test_synopsis_and_review_are_both_the_answer() -> None:
    title = "Tragedy at sunset on the beach"

    assert asked(play_and_review(), {"title": title}) == Judged(
        single_turn=sample(title, f'{{"synopsis":"{SYNOPSIS}","review":"{REVIEW}"}}'), source="object"
    )


def test_of_two_inputs_that_stand_in_one_prompt_neither_is_guessed() -> None:
    seen = asked(of_an_era(), {"title": "Tragedy at sunset", "era": "Victorian England"})

    assert (seen.single_turn, seen.outcome) == (None, "no_sample")
    assert all(word in (seen.reason or "") for word in ("title", "era", "extract="))

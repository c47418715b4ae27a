"""LangChain, "How to parse JSON output": the model returns a structure as text, and a parser makes a dict of it."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.prompts import PromptTemplate
from pydantic import BaseModel
from tests.applications.application import Judged, asked, judged_once, sample, says

QUERY = "Tell me a joke."
SAID = '{"setup": "Why did the chicken cross the road?", "punchline": "To get to the other side!"}'
JOKE = '{"setup":"Why did the chicken cross the road?","punchline":"To get to the other side!"}'


class Joke(BaseModel):
    setup: str
    punchline: str


def joker(parser: Any) -> Any:
    prompt = PromptTemplate(
        template="Answer the user query.\n{format_instructions}\n{query}\n",
        input_variables=["query"],
        partial_variables={"format_instructions": parser.get_format_instructions()},
    )
    return prompt | says(SAID) | parser


def test_the_parsed_structure_is_the_answer() -> None:
    assert asked(joker(JsonOutputParser(pydantic_object=Joke)), {"query": QUERY}) == Judged(
        single_turn=sample(QUERY, JOKE), source="object"
    )


def test_so_it_is_as_an_object() -> None:
    assert asked(joker(PydanticOutputParser(pydantic_object=Joke)), {"query": QUERY}) == Judged(
        single_turn=sample(QUERY, JOKE), source="object"
    )


def test_a_structure_that_is_streamed_is_its_last_state() -> None:
    app = joker(JsonOutputParser(pydantic_object=Joke))

    seen = judged_once(lambda config: list(app.stream({"query": QUERY}, config)))

    assert seen == Judged(single_turn=sample(QUERY, JOKE), source="object")

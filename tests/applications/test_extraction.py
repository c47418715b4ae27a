"""LangChain, "Build an extraction chain" and "Classify text into labels": a text in, a structure out."""

from __future__ import annotations

from typing import Any

from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, sample, says

TEXT = "Alan Smith is 6 feet tall and has blond hair."
SADDENED = "Estoy muy triste."


class Person(BaseModel):
    name: str | None = None
    hair_color: str | None = None
    height_in_meters: str | None = None


class People(BaseModel):
    people: list[Person]


class Classification(BaseModel):
    sentiment: str
    aggressiveness: int


def extractor(schema: type[BaseModel], said: Any, **options: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages([("system", "You are an expert extractor."), ("human", "{text}")])
    return prompt | says(said).with_structured_output(schema, **options)


ALAN = {"name": "Alan Smith", "hair_color": "blond", "height_in_meters": "1.83"}
ALAN_AS_TEXT = '{"name":"Alan Smith","hair_color":"blond","height_in_meters":"1.83"}'


def test_the_structure_is_the_answer_to_the_text() -> None:
    app = extractor(Person, calls("Person", **ALAN))

    assert asked(app, {"text": TEXT}) == Judged(single_turn=sample(TEXT, ALAN_AS_TEXT), source="object")


def test_a_structure_without_texts_of_its_own_is_too() -> None:
    app = extractor(People, calls("People", people=[ALAN]))

    assert asked(app, {"text": TEXT}) == Judged(
        single_turn=sample(TEXT, f'{{"people":[{ALAN_AS_TEXT}]}}'), source="object"
    )


def test_a_structure_with_one_text_and_a_number_is_kept_whole() -> None:
    app = extractor(Classification, calls("Classification", sentiment="sad", aggressiveness=1))

    assert asked(app, {"text": SADDENED}) == Judged(
        single_turn=sample(SADDENED, '{"sentiment":"sad","aggressiveness":1}'), source="object"
    )


def test_what_is_given_with_its_raw_message_is_the_structure() -> None:
    app = extractor(Person, calls("Person", **ALAN), include_raw=True)

    assert asked(app, {"text": TEXT}) == Judged(single_turn=sample(TEXT, ALAN_AS_TEXT), source="object")

"""LangChain, "Output parsers": the model's text becomes a list."""

from __future__ import annotations

from langchain_core.output_parsers import CommaSeparatedListOutputParser
from langchain_core.prompts import PromptTemplate
from tests.applications.application import Judged, asked, sample, says


def test_the_list_is_the_answer_as_it_was_given() -> None:
    prompt = PromptTemplate.from_template("List five {subject}, separated by commas.")
    app = prompt | says("vanilla, chocolate, mint") | CommaSeparatedListOutputParser()

    assert asked(app, {"subject": "ice cream flavours"}) == Judged(
        single_turn=sample("ice cream flavours", '["vanilla","chocolate","mint"]'), source="object"
    )

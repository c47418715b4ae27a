"""Chains that put documents into the prompt without formatting them: as Python shows a list, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from tests.applications.application import sample, says
from tests.applications.shelf import Shelf, looked_up

QUESTION = "What does the café serve?"
PLAIN = "The café opens at eight."
LINES = "Menu:\n- soup\n- it's mother's \"pie\""
QUOTED = 'A guest called the coffee of the café "unforgettable".'
ANSWER = "Soup and pie."


def as_shown(documents: list[Document]) -> str:
    return str(documents)


def as_json(documents: list[Document]) -> str:
    return json.dumps([{"id": at, "text": document.page_content} for at, document in enumerate(documents)])


@pytest.mark.parametrize("show", [as_shown, as_json])
def test_documents_are_known_again_however_the_prompt_shows_them(show: Callable[[list[Document]], str]) -> None:
    shelf = Shelf(holds={"café": (PLAIN, LINES, QUOTED)})
    prompt = ChatPromptTemplate.from_template("Answer from {context}\n\nQuestion: {question}")
    given: Any = {"context": shelf | RunnableLambda(show), "question": RunnablePassthrough()}
    app = given | prompt | says(ANSWER) | StrOutputParser()

    seen, unused = looked_up(lambda config: app.invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [PLAIN, LINES, QUOTED])
    assert unused == 0

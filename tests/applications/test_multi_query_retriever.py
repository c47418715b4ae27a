"""langchain-classic, `MultiQueryRetriever`: a model writes three queries, and the found documents are merged."""

from __future__ import annotations

from typing import Any

from langchain_classic.retrievers import MultiQueryRetriever
from tests.applications.application import sample, says
from tests.applications.shelf import Shelf, looked_up, rag_over

QUESTION = "How do I keep bread fresh?"
BOX = "A bread box keeps bread fresh for days."
FREEZE = "Sliced bread keeps for months in a freezer."
ANSWER = "In a box, or frozen."


def multi_query_rag() -> Any:
    shelf = Shelf(holds={"store": (BOX,), "freeze": (FREEZE, BOX), "crust": ()})
    llm = says("How to store bread?\nCan I freeze bread?\nWhat keeps the crust?")
    return rag_over(MultiQueryRetriever.from_llm(retriever=shelf, llm=llm), ANSWER)


def test_the_question_is_the_users_and_each_document_is_one_context() -> None:
    seen, unused = looked_up(lambda config: multi_query_rag().invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [BOX, FREEZE])
    assert unused == 0

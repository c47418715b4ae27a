"""A chain with a reranker of its own: a lambda that keeps the best two of four documents, and puts the better one first."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from tests.applications.application import says
from tests.applications.shelf import Shelf, format_docs, looked_up

QUESTION = "How much does a ticket to the tower cost?"
HOURS = "Doors open at nine."
CHILDREN = "A ticket for children costs 7 euros."
ADULTS = "A ticket to the top of the tower costs 29 euros."
SHOP = "The shop sells postcards."
ANSWER = "29 euros to the top, 7 for children."


def shared_words(document: Document, question: str) -> int:
    return len(set(document.page_content.lower().split()) & set(question.lower().split()))


def rerank(found: dict[str, Any]) -> list[Document]:
    best = sorted(found["documents"], key=lambda document: -shared_words(document, found["question"]))
    return best[:2]


def reranking_chain() -> Any:
    shelf = Shelf(holds={"ticket": (HOURS, CHILDREN, ADULTS, SHOP)})
    best = {"documents": shelf, "question": RunnablePassthrough()} | RunnableLambda(rerank) | format_docs
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    return {"context": best, "question": RunnablePassthrough()} | prompt | says(ANSWER) | StrOutputParser()


def test_what_the_reranker_dropped_is_no_context() -> None:
    seen, unused = looked_up(lambda config: reranking_chain().invoke(QUESTION, config))

    assert seen is not None
    assert seen.retrieved_contexts is not None
    assert (seen.user_input, seen.response) == (QUESTION, ANSWER)
    assert set(seen.retrieved_contexts) == {ADULTS, CHILDREN}
    assert unused == 2

"""RAG fusion: a model writes several queries, each is looked up, and the ranks are fused by their reciprocals."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from tests.applications.application import says
from tests.applications.shelf import Shelf, format_docs, looked_up

QUESTION = "What do whales eat?"
KRILL = "Blue whales eat krill."
SQUID = "Sperm whales hunt squid."
SALT = "Sea water is salty."
ANSWER = "Krill, or squid."


def reciprocal_rank_fusion(rounds: list[list[Document]], k: int = 60, best: int = 2) -> list[Document]:
    scores: dict[str, float] = defaultdict(float)
    for documents in rounds:
        for rank, document in enumerate(documents):
            scores[document.page_content] += 1 / (rank + k)
    return [Document(text) for text in sorted(scores, key=lambda text: -scores[text])[:best]]


def rag_fusion() -> Any:
    shelf = Shelf(holds={"food": (KRILL, SALT), "prey": (SQUID, KRILL), "diet": (SQUID, KRILL)})
    queries = (
        ChatPromptTemplate.from_template("Write three search queries for: {question}")
        | says("whale food\nwhale prey\nwhale diet")
        | StrOutputParser()
        | str.splitlines
    )
    found = queries | shelf.map() | reciprocal_rank_fusion | format_docs
    prompt = ChatPromptTemplate.from_template("Answer from:\n{context}\n\nQuestion: {question}")
    asked = {"context": {"question": RunnablePassthrough()} | found, "question": RunnablePassthrough()}
    return asked | prompt | says(ANSWER) | StrOutputParser()


def test_each_fused_document_is_one_context_and_the_rest_is_counted() -> None:
    seen, unused = looked_up(lambda config: rag_fusion().invoke(QUESTION, config))

    assert seen is not None
    assert seen.retrieved_contexts is not None
    assert (seen.user_input, seen.response) == (QUESTION, ANSWER)
    assert sorted(seen.retrieved_contexts) == [KRILL, SQUID]
    assert unused == 1

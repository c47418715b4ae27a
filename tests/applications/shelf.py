"""A shelf of documents for applications with retrieval; the shelf decides which query finds which document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnablePassthrough
from tests.applications.application import judged_once, says
from tests.live import a_trace

from spanscore.core.sample import SingleTurnSample

UNUSED = "spanscore.retrieval.unused_documents"


class Shelf(BaseRetriever):
    """Returns the documents for the first text in the query; nothing without a match."""

    holds: Mapping[str, Sequence[str]]

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        under = next((texts for part, texts in self.holds.items() if part in query), ())
        return [Document(text) for text in under]


class Words(Embeddings):
    """Embeds a text by the words of a list that it contains: texts with common words are near."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [0.01, *(float(word in text.lower()) for word in self._words)]


def format_docs(documents: Sequence[Document]) -> str:
    """The tutorials' helper: documents as one text."""
    return "\n\n".join(document.page_content for document in documents)


def looked_up(run: Callable[[RunnableConfig], Any]) -> tuple[SingleTurnSample | None, int]:
    """Run an application for one request: its sample, and how many documents it retrieved that its answer was not made from."""
    trace = a_trace()
    seen = judged_once(run, trace=trace)
    [root] = trace.roots
    return seen.single_turn, root.attributes.get(UNUSED, 0)


def rag_over(retriever: BaseRetriever, answer: str) -> Any:
    """The tutorials' chain over a retriever: question → answer, of the retriever's documents in one prompt."""
    prompt = ChatPromptTemplate.from_template("Answer from this alone:\n{context}\n\nQuestion: {question}")
    given = {"context": retriever | format_docs, "question": RunnablePassthrough()}
    return given | prompt | says(answer) | StrOutputParser()

"""langchain-classic, `ParentDocumentRetriever`: small chunks are searched, and the documents they are of are read."""

from __future__ import annotations

from typing import Any

from langchain_classic.retrievers import ParentDocumentRetriever
from langchain_core.documents import Document
from langchain_core.stores import InMemoryStore
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter
from tests.applications.application import sample
from tests.applications.shelf import Words, looked_up, rag_over

QUESTION = "Where do storks spend the winter?"
STORKS = "White storks are large birds. They breed in Europe. In winter storks fly to Africa, south of the Sahara."
TROUT = "Trout are fish. They live in cold rivers and lakes."
ANSWER = "In Africa, south of the Sahara."


def parent_rag() -> Any:
    retriever: Any = ParentDocumentRetriever(
        vectorstore=InMemoryVectorStore(Words("storks", "winter", "trout", "rivers")),
        docstore=InMemoryStore(),
        child_splitter=RecursiveCharacterTextSplitter(chunk_size=40, chunk_overlap=0),
        search_kwargs={"k": 2},
    )
    retriever.add_documents([Document(TROUT), Document(STORKS)], ids=["trout", "storks"])
    return rag_over(retriever, ANSWER)


def test_the_contexts_are_whole_documents_and_not_their_chunks() -> None:
    seen, unused = looked_up(lambda config: parent_rag().invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [STORKS])
    assert unused == 0

"""LangChain's "RAG from scratch": several queries of one question, their documents fused, one answer; and HyDE."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from tests.applications.application import asked, sample, says

QUESTION = "What is task decomposition?"
ANSWER = "Splitting a task into steps."
DOCUMENTS = {"steps": "A task is split into steps.", "agents": "Agents plan their steps."}


class Shelf(BaseRetriever):
    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [Document(text) for word, text in DOCUMENTS.items() if word in query]


def fused(found: list[list[Document]]) -> list[Document]:
    return [Document(text) for text in dict.fromkeys(d.page_content for documents in found for d in documents)]


def answering(context: Any, llm: Any) -> Any:
    prompt = ChatPromptTemplate.from_template("Answer from this context:\n\n{context}\n\nQuestion: {question}")
    return {"context": context, "question": itemgetter("question")} | prompt | llm | StrOutputParser()


def test_the_fused_documents_are_the_contexts_each_of_them_once() -> None:
    llm = says("steps of a task\nsteps of agents", ANSWER)
    queries = ChatPromptTemplate.from_template("Generate queries related to: {question}") | llm | StrOutputParser()
    app = answering(queries | (lambda text: text.split("\n")) | Shelf().map() | fused, llm)

    seen = asked(app, {"question": QUESTION})

    assert (seen.single, seen.source) == (sample(QUESTION, ANSWER, list(DOCUMENTS.values())), "only_text")


def test_an_invented_passage_is_neither_question_nor_context() -> None:
    llm = says("A paper would say: agents split tasks.", ANSWER)
    passage = ChatPromptTemplate.from_template("Write a paper's passage on: {question}") | llm | StrOutputParser()

    seen = asked(answering(passage | Shelf(), llm), {"question": QUESTION})

    assert (seen.single, seen.source) == (sample(QUESTION, ANSWER, [DOCUMENTS["agents"]]), "only_text")

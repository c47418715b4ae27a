"""LangChain, "How to get a RAG application to add citations": the answer is a structure with the sources' numbers."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from pydantic import BaseModel, Field
from tests.applications.application import calls, sample, says
from tests.applications.shelf import Shelf, looked_up

QUESTION = "How fast are cheetahs?"
RUN = "Cheetahs run up to 104 km/h."
SLEEP = "Cheetahs sleep twelve hours a day."
ANSWER = "Up to 104 km/h."


class CitedAnswer(BaseModel):
    """Answer the user question based only on the given sources, and cite the sources used."""

    answer: str = Field(description="The answer, based only on the given sources.")
    citations: list[int] = Field(description="The IDs of the sources which justify the answer.")


def format_docs_with_id(documents: list[Document]) -> str:
    return "\n\n".join(f"Source ID: {at}\nArticle Snippet: {doc.page_content}" for at, doc in enumerate(documents))


def cited_rag() -> Any:
    shelf = Shelf(holds={"cheetahs": (RUN, SLEEP)})
    prompt = ChatPromptTemplate.from_messages([("system", "Answer and cite.\n\n{context}"), ("human", "{question}")])
    llm = says(calls("CitedAnswer", answer=ANSWER, citations=[0])).with_structured_output(CitedAnswer)
    answer = (
        {"context": lambda x: format_docs_with_id(x["context"]), "question": lambda x: x["question"]} | prompt | llm
    )
    retrieve = RunnableLambda(lambda x: x["question"]) | shelf
    return RunnablePassthrough.assign(context=retrieve).assign(answer=answer)


def test_the_answer_is_its_words_and_the_contexts_are_the_sources() -> None:
    seen, unused = looked_up(lambda config: cited_rag().invoke({"question": QUESTION}, config))

    assert seen == sample(QUESTION, ANSWER, [RUN, SLEEP])
    assert unused == 0

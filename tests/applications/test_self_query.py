"""A self-query: a model makes a search text and a filter of the question, and the shelf is asked with both."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel, Field
from tests.applications.application import calls, sample, says
from tests.applications.shelf import Words, format_docs, looked_up

QUESTION = "Is there a film about toys from after 1990?"
TOYS = "Toys come alive and have a blast doing so."
OLD = "A toymaker carves a puppet of wood that wants to be a boy among toys."
ANSWER = "Yes: toys come alive and have a blast."


class Search(BaseModel):
    """A search."""

    query: str = Field(description="Text to compare with the documents")
    after: int = Field(description="Only films of later years")


def self_query_rag() -> Any:
    store = InMemoryVectorStore(Words("toys", "puppet"))
    films = [Document(TOYS, metadata={"year": 1995}), Document(OLD, metadata={"year": 1940})]
    store.add_documents(films, ids=["toy-story", "pinocchio"])
    constructor = says(calls("Search", query="toys", after=1990)).with_structured_output(Search)

    def look_up(search: Search) -> list[Document]:
        retriever = store.as_retriever(search_kwargs={"filter": lambda film: film.metadata["year"] > search.after})
        return retriever.invoke(search.query)

    found = constructor | RunnableLambda(look_up) | format_docs
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    return {"context": found, "question": RunnablePassthrough()} | prompt | says(ANSWER) | StrOutputParser()


def test_the_question_is_the_users_and_not_the_query_that_was_made_of_it() -> None:
    seen, unused = looked_up(lambda config: self_query_rag().invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [TOYS], retrieved_context_ids=["toy-story"])
    assert unused == 0

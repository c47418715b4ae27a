"""LangChain, "RAG" as a chain: documents joined to one text in the prompt; found, not found, never looked for."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnablePassthrough
from tests.applications.application import sample, says
from tests.applications.shelf import Shelf, format_docs, looked_up

QUESTION = "When was the tower built?"
BUILT = "The tower was built from 1887 to 1889."
PAINTED = "The tower is painted every seven years."
ANSWER = "From 1887 to 1889."
SHELF = Shelf(holds={"tower": (BUILT, PAINTED)})


def rag_chain(answer: str) -> Any:
    prompt = ChatPromptTemplate.from_template("Use this to answer.\n{context}\n\nQuestion: {question}")
    return (
        {"context": SHELF | format_docs, "question": RunnablePassthrough()} | prompt | says(answer) | StrOutputParser()
    )


def test_the_documents_in_the_prompt_are_the_contexts() -> None:
    seen, unused = looked_up(lambda config: rag_chain(ANSWER).invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [BUILT, PAINTED])
    assert unused == 0


def test_a_search_that_finds_nothing_is_an_empty_list_of_contexts() -> None:
    seen, _ = looked_up(lambda config: rag_chain("I don't know.").invoke("Who lives there?", config))

    assert seen == sample("Who lives there?", "I don't know.", [], retrieved_context_ids=[])


def test_a_greeting_that_looks_nothing_up_has_no_contexts() -> None:
    small_talk = ChatPromptTemplate.from_template("Be polite: {question}") | says("Hello!") | StrOutputParser()
    is_greeting = RunnableLambda(lambda question: question.startswith("Hi"))
    app = RunnableBranch((is_greeting, {"question": RunnablePassthrough()} | small_talk), rag_chain(ANSWER))

    seen, _ = looked_up(lambda config: app.invoke("Hi there", config))

    assert seen == sample("Hi there", "Hello!", None)

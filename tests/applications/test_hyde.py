"""HyDE: a model invents a passage as an answer, and retrieval looks for similar passages."""

from __future__ import annotations

from typing import Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from tests.applications.application import sample, says
from tests.applications.shelf import Words, format_docs, looked_up

QUESTION = "Why is the sky blue?"
INVENTED = "The sky is blue because air scatters short waves of light more than long ones."
SCATTERED = "Rayleigh: air scatters light of short waves more."
BREAD = "Bread is baked at 230 degrees."
ANSWER = "Air scatters blue light more."


def hyde() -> Any:
    near = Words("air", "scatters", "light", "baked")
    store = InMemoryVectorStore.from_texts([BREAD, SCATTERED], near, ids=["bread", "sky"])
    invented = (
        ChatPromptTemplate.from_template("Write a passage that answers: {question}")
        | says(INVENTED)
        | StrOutputParser()
    )
    found = {"question": RunnablePassthrough()} | invented | store.as_retriever(search_kwargs={"k": 1}) | format_docs
    prompt = ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}")
    return {"context": found, "question": RunnablePassthrough()} | prompt | says(ANSWER) | StrOutputParser()


def test_what_was_found_is_the_context_and_not_what_was_invented() -> None:
    seen, unused = looked_up(lambda config: hyde().invoke(QUESTION, config))

    assert seen == sample(QUESTION, ANSWER, [SCATTERED], retrieved_context_ids=["sky"])
    assert unused == 0

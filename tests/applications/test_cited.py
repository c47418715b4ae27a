"""Answers with citations: the answer is the text, and the citations are no contexts of their own."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field
from tests.applications.application import Judged, asked, calls, sample, says
from tests.applications.shelf import Shelf, looked_up
from tests.live import CONTEXT, Library

# --- LangChain, "How to get a RAG application to add citations": the answer is a structure with the sources' numbers

CITING_QUESTION = "How fast are cheetahs?"
RUN = "Cheetahs run up to 104 km/h."
SLEEP = "Cheetahs sleep twelve hours a day."
CITING_ANSWER = "Up to 104 km/h."


class CitedAnswer(BaseModel):
    """Answer the user question based only on the given sources, and cite the sources used."""

    answer: str = Field(description="The answer, based only on the given sources.")
    citations: list[int] = Field(description="The IDs of the sources which justify the answer.")


def format_docs_with_id(documents: list[Document]) -> str:
    return "\n\n".join(f"Source ID: {at}\nArticle Snippet: {doc.page_content}" for at, doc in enumerate(documents))


def cited_rag() -> Any:
    shelf = Shelf(holds={"cheetahs": (RUN, SLEEP)})
    prompt = ChatPromptTemplate.from_messages([("system", "Answer and cite.\n\n{context}"), ("human", "{question}")])
    llm = says(calls("CitedAnswer", answer=CITING_ANSWER, citations=[0])).with_structured_output(CitedAnswer)
    answer = (
        {"context": lambda x: format_docs_with_id(x["context"]), "question": lambda x: x["question"]} | prompt | llm
    )
    retrieve = RunnableLambda(lambda x: x["question"]) | shelf
    return RunnablePassthrough.assign(context=retrieve).assign(answer=answer)


def test_the_answer_is_its_words_and_the_contexts_are_the_sources() -> None:
    seen, unused = looked_up(lambda config: cited_rag().invoke({"question": CITING_QUESTION}, config))

    assert seen == sample(CITING_QUESTION, CITING_ANSWER, [RUN, SLEEP])
    assert unused == 0


# --- An answer with the numbers of its sources, split into the keys of a state, next to a fixed text ----------------

CITED_QUESTION = "Since when is Paris the capital?"
CITED_ANSWER = "Since 987."


def cited() -> Any:
    return says(calls("CitedAnswer", answer=CITED_ANSWER, citations=[1])).with_structured_output(CitedAnswer)


class State(TypedDict):
    user_question: str
    reply: str
    citations: list[int]
    disclaimer: str


def graph() -> Any:
    def answer(state: State) -> dict[str, Any]:
        found = Library().invoke(state["user_question"])
        said = cited().invoke(f"Sources: {found[0].page_content}\nQuestion: {state['user_question']}")
        return {"reply": said.answer, "citations": said.citations, "disclaimer": "Made by a machine."}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile()


def test_the_text_that_is_a_field_of_what_the_model_said_is_the_answer() -> None:
    assert asked(graph(), {"user_question": CITED_QUESTION}) == Judged(
        single_turn=sample(CITED_QUESTION, CITED_ANSWER, [CONTEXT], retrieved_context_ids=["doc-1"]), source="matched"
    )

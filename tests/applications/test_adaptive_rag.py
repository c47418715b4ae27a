"""LangGraph, "Adaptive RAG" and "Self-RAG": the first documents do not help, so retrieval is repeated with another question."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from tests.applications.application import replies, sample, says
from tests.applications.shelf import Shelf, format_docs, looked_up

QUESTION = "Who painted it?"
CAVE = "Cave paintings at Lascaux are 17,000 years old."
HOUSE = "To paint a house takes two coats."
LEONARDO = "Leonardo da Vinci painted the Mona Lisa from 1503."
ANSWER = "Leonardo da Vinci, from 1503 on."
SHELF = Shelf(holds={"Mona Lisa": (LEONARDO, CAVE), "painted": (CAVE, HOUSE)})


class GraphState(TypedDict):
    question: str
    generation: str
    documents: list[Document]


def self_rag(output: Any) -> Any:
    """The graph; ``output`` is the part of its state that it gives back."""
    grader = (
        ChatPromptTemplate.from_template("Does it help?\n{document}")
        | replies({LEONARDO: "yes", "": "no"})
        | StrOutputParser()
    )
    rewriter = (
        ChatPromptTemplate.from_template("Rewrite: {question}") | says("Who painted the Mona Lisa?") | StrOutputParser()
    )
    rag_chain = ChatPromptTemplate.from_template("{context}\n\n{question}") | says(ANSWER) | StrOutputParser()

    def retrieve(state: GraphState) -> dict[str, Any]:
        return {"documents": SHELF.invoke(state["question"])}

    def grade_documents(state: GraphState) -> dict[str, Any]:
        return {"documents": [d for d in state["documents"] if grader.invoke({"document": d.page_content}) == "yes"]}

    def transform_query(state: GraphState) -> dict[str, Any]:
        return {"question": rewriter.invoke({"question": state["question"]})}

    def generate(state: GraphState) -> dict[str, Any]:
        given = {"context": format_docs(state["documents"]), "question": state["question"]}
        return {"generation": rag_chain.invoke(given)}

    workflow = StateGraph(GraphState, output_schema=output)
    for node in (retrieve, grade_documents, transform_query, generate):
        workflow.add_node(node.__name__, node)
    workflow.add_edge(START, "retrieve")
    workflow.add_edge("retrieve", "grade_documents")
    workflow.add_conditional_edges(
        "grade_documents", lambda state: "generate" if state["documents"] else "transform_query"
    )
    workflow.add_edge("transform_query", "retrieve")
    workflow.add_edge("generate", END)
    return workflow.compile()


class OnlyGeneration(TypedDict):
    generation: str


def test_the_documents_of_the_last_round_are_the_contexts() -> None:
    app = self_rag(GraphState)

    seen, unused = looked_up(lambda config: app.invoke({"question": QUESTION}, config))

    assert seen == sample(QUESTION, ANSWER, [LEONARDO])
    assert unused == 2


def test_where_the_state_keeps_its_documents_to_itself_those_in_the_prompt_are_the_contexts() -> None:
    app = self_rag(OnlyGeneration)

    seen, unused = looked_up(lambda config: app.invoke({"question": QUESTION}, config))

    assert seen == sample(QUESTION, ANSWER, [LEONARDO])
    assert unused == 2

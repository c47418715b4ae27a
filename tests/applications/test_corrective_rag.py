"""LangGraph, "Corrective RAG": documents are graded, unhelpful ones are removed, and a web search fills the gap."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from tests.applications.application import calls, replies, sample, says
from tests.applications.shelf import Shelf, format_docs, looked_up

QUESTION = "How high is the Eiffel Tower?"
HIGH = "The Eiffel Tower is 330 metres high."
BRIDGE = "The Golden Gate Bridge was opened in 1937."
WEB = "With its new antenna the Eiffel Tower measures 330 m since 2022."
ANSWER = "330 metres, with the antenna of 2022."


class GradeDocuments(BaseModel):
    """Binary score for relevance check on retrieved documents."""

    binary_score: str = Field(description="Documents are relevant to the question, 'yes' or 'no'")


class GraphState(TypedDict):
    question: str
    generation: str
    web_search: str
    documents: list[Document]


def corrective_rag() -> Any:
    retriever = Shelf(holds={"Eiffel": (BRIDGE, HIGH)})
    grader_llm = replies(
        {BRIDGE: calls("GradeDocuments", binary_score="no"), HIGH: calls("GradeDocuments", binary_score="yes")}
    )
    grade_prompt = ChatPromptTemplate.from_template("Retrieved document: {document} User question: {question}")
    grader = grade_prompt | grader_llm.with_structured_output(GradeDocuments)
    rewriter = (
        ChatPromptTemplate.from_template("Improve: {question}") | says("height Eiffel Tower 2022") | StrOutputParser()
    )
    answer_prompt = ChatPromptTemplate.from_template("Question: {question} Context: {context} Answer:")
    rag_chain = answer_prompt | says(ANSWER) | StrOutputParser()

    def retrieve(state: GraphState) -> dict[str, Any]:
        return {"documents": retriever.invoke(state["question"]), "question": state["question"]}

    def grade_documents(state: GraphState) -> dict[str, Any]:
        graded = [
            (d, grader.invoke({"question": state["question"], "document": d.page_content})) for d in state["documents"]
        ]
        kept = [d for d, grade in graded if grade.binary_score == "yes"]
        return {"documents": kept, "web_search": "Yes" if len(kept) < len(graded) else "No"}

    def transform_query(state: GraphState) -> dict[str, Any]:
        return {"question": rewriter.invoke({"question": state["question"]})}

    def web_search(state: GraphState) -> dict[str, Any]:
        return {"documents": [*state["documents"], Document(page_content=WEB)]}

    def generate(state: GraphState) -> dict[str, Any]:
        given = {"context": format_docs(state["documents"]), "question": state["question"]}
        return {"generation": rag_chain.invoke(given)}

    workflow = StateGraph(GraphState)
    for node in (retrieve, grade_documents, generate, transform_query, web_search):
        workflow.add_node("web_search_node" if node is web_search else node.__name__, node)
    workflow.add_edge(START, "retrieve")
    workflow.add_edge("retrieve", "grade_documents")
    workflow.add_conditional_edges(
        "grade_documents", lambda state: "transform_query" if state["web_search"] == "Yes" else "generate"
    )
    workflow.add_edge("transform_query", "web_search_node")
    workflow.add_edge("web_search_node", "generate")
    workflow.add_edge("generate", END)
    return workflow.compile()


def test_the_answer_is_judged_against_the_documents_that_the_graph_kept() -> None:
    app = corrective_rag()

    seen, unused = looked_up(lambda config: app.invoke({"question": QUESTION}, config))

    assert seen == sample(QUESTION, ANSWER, [HIGH, WEB])
    assert unused == 1

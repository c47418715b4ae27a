"""LangGraph, "Agentic RAG": the model calls a retriever; unhelpful documents lead to another query."""

from __future__ import annotations

from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.tools import create_retriever_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, Field
from tests.applications.application import asked, calls, replies, sample, says
from tests.applications.calling import asked_and_answered, called
from tests.applications.shelf import Shelf, looked_up

QUESTION = "What does Lilian Weng say about types of reward hacking?"
REWRITTEN = "What are the two types of reward hacking?"
DIFFUSION = "Diffusion models learn to undo noise."
HACKING = "Reward hacking is of two types: a wrong environment or goal, and tampering with the reward."
AGENTS = "An agent uses tools, plans and remembers."
ANSWER = "Two: a wrong environment or goal, and tampering."
SHELF = Shelf(holds={"two types": (HACKING,), "Weng": (DIFFUSION, AGENTS), "hacking": (HACKING, AGENTS)})


def retriever_tool(response_format: Literal["content", "content_and_artifact"]) -> Any:
    described = "Search and return information about Lilian Weng's blog posts."
    return create_retriever_tool(SHELF, "retrieve_blog_posts", described, response_format=response_format)


class GradeDocuments(BaseModel):
    """Grade documents using a binary score for relevance check."""

    binary_score: str = Field(description="Relevance score: 'yes' if relevant, or 'no' if not relevant")


def rewriting_graph(response_format: Literal["content", "content_and_artifact"]) -> Any:
    tool = retriever_tool(response_format)
    model = says(
        calls(tool.name, "r1", query="Weng types"), calls(tool.name, "r2", query="two types of reward hacking")
    )
    graded = {HACKING: calls("GradeDocuments", binary_score="yes"), "": calls("GradeDocuments", binary_score="no")}
    grader = replies(graded).with_structured_output(GradeDocuments)
    writer = says(REWRITTEN, ANSWER)

    def generate_query_or_respond(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.bind_tools([tool]).invoke(state["messages"])]}

    def grade_documents(state: MessagesState) -> str:
        prompt = f"Retrieved document: {state['messages'][-1].content}\nUser question: {state['messages'][0].content}"
        return "generate_answer" if grader.invoke(prompt).binary_score == "yes" else "rewrite_question"

    def rewrite_question(state: MessagesState) -> dict[str, Any]:
        response = writer.invoke([{"role": "user", "content": f"Improve the question: {state['messages'][0].content}"}])
        return {"messages": [{"role": "user", "content": response.content}]}

    def generate_answer(state: MessagesState) -> dict[str, Any]:
        prompt = f"Question: {state['messages'][0].content}\nContext: {state['messages'][-1].content}"
        return {"messages": [writer.invoke([{"role": "user", "content": prompt}])]}

    workflow = StateGraph(MessagesState)
    for node in (generate_query_or_respond, rewrite_question, generate_answer):
        workflow.add_node(node.__name__, node)
    workflow.add_node("retrieve", ToolNode([tool]))
    workflow.add_edge(START, "generate_query_or_respond")
    workflow.add_conditional_edges("generate_query_or_respond", tools_condition, {"tools": "retrieve", END: END})
    workflow.add_conditional_edges("retrieve", grade_documents, ["generate_answer", "rewrite_question"])
    workflow.add_edge("generate_answer", END)
    workflow.add_edge("rewrite_question", "generate_query_or_respond")
    return workflow.compile()


def given() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": QUESTION}]}


def test_what_was_found_anew_is_the_context() -> None:
    seen, unused = looked_up(lambda config: rewriting_graph("content").invoke(given(), config))

    assert seen == sample(QUESTION, ANSWER, [HACKING])
    assert unused == 2


def test_what_an_artifact_held_is_a_context_as_well() -> None:
    seen, unused = looked_up(lambda config: rewriting_graph("content_and_artifact").invoke(given(), config))

    assert seen == sample(QUESTION, ANSWER, [HACKING])
    assert unused == 2


def test_a_question_that_the_graph_rewrote_is_no_turn_of_the_user() -> None:
    seen = asked(rewriting_graph("content"), given())

    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called(seen.multi_turn) == [
        ("retrieve_blog_posts", {"query": "Weng types"}),
        ("retrieve_blog_posts", {"query": "two types of reward hacking"}),
    ]


def test_an_agent_that_looks_up_twice_has_each_document_once() -> None:
    tool = retriever_tool("content_and_artifact")
    model = says(calls(tool.name, "r1", query="hacking"), calls(tool.name, "r2", query="Weng"), ANSWER)
    app = create_agent(model, tools=[tool])

    seen, unused = looked_up(lambda config: app.invoke(given(), config))

    assert seen == sample(QUESTION, ANSWER, [HACKING, AGENTS, DIFFUSION])
    assert unused == 0

"""LangGraph, "Code generation with RAG and self-correction": code as a structure, tried, and written again when it fails."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import AnyMessage, add_messages
from pydantic import BaseModel
from tests.applications.application import Judged, asked, calls, sample, says


class Code(BaseModel):
    """Schema for code solutions to questions about LCEL."""

    prefix: str
    imports: str
    code: str


class GraphState(TypedDict):
    error: str
    messages: Annotated[list[AnyMessage], add_messages]
    generation: Code
    iterations: int


QUESTION = "How do I count the letters of a word?"


def assistant() -> Any:
    llm = says(
        calls("Code", prefix="Count them.", imports="import nothing_of_that_name", code="len(word)"),
        calls("Code", prefix="Use len.", imports="", code="len('word')"),
    ).with_structured_output(Code)

    def generate(state: GraphState) -> dict[str, Any]:
        solution = llm.invoke(state["messages"])
        text = f"{solution.prefix} \n Imports: {solution.imports} \n Code: {solution.code}"
        return {"generation": solution, "messages": [("assistant", text)], "iterations": state["iterations"] + 1}

    def code_check(state: GraphState) -> dict[str, Any]:
        if not state["generation"].imports:
            return {"error": "no"}
        return {"error": "yes", "messages": [("user", "Your solution failed the import test: No module. Try again.")]}

    builder = StateGraph(GraphState)
    builder.add_node("generate", generate)
    builder.add_node("check_code", code_check)
    builder.add_edge(START, "generate")
    builder.add_edge("generate", "check_code")
    builder.add_conditional_edges("check_code", lambda s: END if s["error"] == "no" else "generate", ["generate", END])
    return builder.compile()


def test_the_complaint_of_the_check_is_no_question_of_the_user() -> None:
    given = {"messages": [("user", QUESTION)], "iterations": 0, "error": ""}

    assert asked(assistant(), given) == Judged(
        single_turn=sample(QUESTION, "Use len. \n Imports:  \n Code: len('word')"), source="messages"
    )

"""LangGraph, "Code generation with self-correction": code that fails its check is sent back with words of the application's."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from tests.applications.application import asked, calls, sample, says

QUESTION = "How do I double 21 in Python?"
ANSWER = "A product:\nimport math\nmath.prod([2, 21])"


class Code(BaseModel):
    """Code solutions to questions."""

    prefix: str = Field(description="Description of the problem and approach")
    imports: str = Field(description="Code block import statements")
    code: str = Field(description="Code block not including import statements")


class State(TypedDict):
    error: str
    messages: list[Any]
    generation: Code
    iterations: int


def code_assistant() -> Any:
    llm = says(
        calls("Code", prefix="A product:", imports="import maths", code="maths.prod([2, 21])"),
        calls("Code", prefix="A product:", imports="import math", code="math.prod([2, 21])"),
    )
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You are a coding assistant."), MessagesPlaceholder("messages")]
    )
    code_gen_chain = prompt | llm.with_structured_output(Code)

    def generate(state: State) -> dict[str, Any]:
        again = (
            [("user", "Now, try again. Invoke the code tool to structure the output.")]
            if state["error"] == "yes"
            else []
        )
        messages = [*state["messages"], *again]
        solution = code_gen_chain.invoke({"messages": messages})
        said = ("assistant", f"{solution.prefix}\n{solution.imports}\n{solution.code}")
        return {"generation": solution, "messages": [*messages, said], "iterations": state["iterations"] + 1}

    def code_check(state: State) -> dict[str, Any]:
        if state["generation"].imports == "import math":
            return {"error": "no"}
        failed = ("user", "Your solution failed the import test: No module named 'maths'")
        return {"messages": [*state["messages"], failed], "error": "yes"}

    builder = StateGraph(State)
    builder.add_node("generate", generate)
    builder.add_node("check_code", code_check)
    builder.add_edge(START, "generate")
    builder.add_edge("generate", "check_code")
    builder.add_conditional_edges("check_code", lambda state: END if state["error"] == "no" else "generate")
    return builder.compile()


def test_what_the_application_says_to_its_model_is_no_turn_of_the_user() -> None:
    seen = asked(code_assistant(), {"messages": [("user", QUESTION)], "iterations": 0, "error": ""})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.multi_turn is None

"""LangChain, "Few-shot prompting with tool calling": the examples call tools, and their results are in the prompt."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import called

QUESTION = "What is 119 times 8 minus 20?"
ANSWER = "It is 932."


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two integers."""
    return a * b


def examples() -> list[Any]:
    return [
        HumanMessage("What's the product of 317253 and 128472?", name="example_user"),
        calls("multiply", "e1", a=317253, b=128472),
        ToolMessage("40758127416", tool_call_id="e1"),
        AIMessage("The product is 40758127416.", name="example_assistant"),
    ]


def chain_with_examples(model: Any) -> Any:
    prompt = ChatPromptTemplate.from_messages([("system", "Use tools for math."), *examples(), ("human", "{query}")])
    return prompt | model


def test_the_calls_of_examples_were_never_made() -> None:
    seen = asked(chain_with_examples(says(ANSWER)), {"query": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.multi_turn is None


def test_beside_examples_only_the_call_that_was_made_is_seen() -> None:
    model = says(calls("multiply", "m1", a=119, b=8)).bind_tools([multiply])
    app = chain_with_examples(model) | (lambda message: multiply.invoke(message.tool_calls[0])) | (lambda _: ANSWER)

    seen = asked(app, {"query": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert called(seen.multi_turn) == [("multiply", {"a": 119, "b": 8})]

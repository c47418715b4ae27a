"""LangChain, a tool with `return_direct`: its result is the answer, and no model is called after it."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.tools import tool
from tests.applications.application import asked, calls, sample, says

QUESTION = "Where is my order 7?"
ANSWER = "Order 7 is out for delivery."


@tool(return_direct=True)
def order_status(order: int) -> str:
    """Tell where an order is."""
    return f"Order {order} is out for delivery."


def test_the_answer_is_what_the_tool_gave_back() -> None:
    app = create_agent(says(calls("order_status", order=7)), tools=[order_status])

    seen = asked(app, {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == f"Human: {QUESTION}\nTools:\n  order_status: {{'order': 7}}\nToolOutput: {ANSWER}"

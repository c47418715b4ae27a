"""A message of the user that the application replaces under its id: to redact it, or to ask a better question."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from tests.applications.application import Judged, asked, sample, says

RAW, REDACTED = "Write to bob@example.com please.", "Write to [REDACTED_EMAIL] please."


def redacting() -> Any:
    hides = PIIMiddleware("email", strategy="redact", apply_to_input=True)
    return create_agent(says("I wrote to them.", "Again."), [], middleware=[hides])


def nested() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", redacting())
    builder.add_edge(START, "agent")
    return builder.compile()


def rewriting() -> Any:
    llm = says("When does the ferry leave?", "At nine.")

    def rewrite(state: MessagesState) -> Any:
        last = state["messages"][-1]
        return {"messages": [HumanMessage(llm.invoke(f"Better: {last.content}").content, id=last.id)]}

    builder = StateGraph(MessagesState).add_sequence(
        [("rewrite", rewrite), ("answer", lambda state: {"messages": [llm.invoke(state["messages"])]})]
    )
    builder.add_edge(START, "rewrite")
    return builder.compile()


@pytest.mark.parametrize(
    "message", [("user", RAW), {"role": "user", "content": RAW}, HumanMessage(RAW), HumanMessage(RAW, id="mine"), RAW]
)
@pytest.mark.parametrize("application", [redacting, nested])
def test_the_judge_is_shown_what_the_models_were(application: Any, message: Any) -> None:
    given = {"messages": [message]} if message != RAW else {"messages": RAW}

    assert asked(application(), given) == Judged(single_turn=sample(REDACTED, "I wrote to them."), source="messages")


def test_a_query_that_a_node_rewrote_is_the_question() -> None:
    assert asked(rewriting(), {"messages": [("user", "ferry when")]}) == Judged(
        single_turn=sample("When does the ferry leave?", "At nine."), source="messages"
    )

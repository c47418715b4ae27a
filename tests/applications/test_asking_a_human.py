"""LangGraph, "Add human-in-the-loop": a tool interrupts the graph to ask an expert; the expert's reply is the tool's answer."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from tests.applications.application import calls, judged, sample, says

QUESTION = "I need some expert guidance for building an AI agent."
ADVICE = "We experts recommend LangGraph."
ANSWER = "The experts recommend LangGraph."


@tool
def human_assistance(query: str) -> str:
    """Request assistance from a human."""
    return interrupt({"query": query})["data"]


def chat_bot() -> Any:
    llm = says(calls("human_assistance", query="guidance"), ANSWER).bind_tools([human_assistance])
    builder = StateGraph(MessagesState)
    builder.add_node("chatbot", lambda state: {"messages": [llm.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([human_assistance]))
    builder.add_edge(START, "chatbot")
    builder.add_conditional_edges("chatbot", tools_condition)
    builder.add_edge("tools", "chatbot")
    return builder.compile(checkpointer=InMemorySaver())


def test_after_the_expert_spoke_the_question_is_the_users() -> None:
    app = chat_bot()

    def ask_and_resume(config: RunnableConfig) -> None:
        app.invoke({"messages": [{"role": "user", "content": QUESTION}]}, config)
        app.invoke(Command(resume={"data": ADVICE}), config)

    interrupted, resumed = judged(ask_and_resume)

    assert interrupted.outcome == "no_sample"
    assert resumed.single_turn == sample(QUESTION, ANSWER)
    assert resumed.conversation == (
        f"Human: {QUESTION}\nTools:\n  human_assistance: {{'query': 'guidance'}}\nToolOutput: {ADVICE}\nAI: {ANSWER}"
    )

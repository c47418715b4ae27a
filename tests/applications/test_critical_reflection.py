"""LangGraph, "Reflection": one model writes, another criticises as if it were the user, until the third draft."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.graph import END, START, MessagesState, StateGraph
from tests.applications.application import asked, sample, says

QUESTION = "Write an essay on why the little prince is relevant."
DRAFTS = ["It is a book.", "It tells of friendship.", "It tells of friendship, which we need today."]
CRITIQUES = ["Say what it tells of.", "Say why this matters."]
MAX_MESSAGES = 5


def essay_writer() -> Any:
    def prompt(system: str) -> ChatPromptTemplate:
        return ChatPromptTemplate.from_messages([("system", system), MessagesPlaceholder("messages")])

    generate = prompt("You write excellent five-paragraph essays.") | says(*DRAFTS)
    reflect = prompt("You are a teacher grading an essay.") | says(*CRITIQUES)

    def generation_node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [generate.invoke({"messages": state["messages"]})]}

    def reflection_node(state: MessagesState) -> dict[str, Any]:
        swapped: dict[str, Any] = {"ai": HumanMessage, "human": AIMessage}
        first, *rest = state["messages"]
        translated = [first, *(swapped[message.type](content=message.content) for message in rest)]
        return {"messages": [HumanMessage(content=reflect.invoke({"messages": translated}).content)]}

    builder = StateGraph(MessagesState)
    builder.add_node("generate", generation_node)
    builder.add_node("reflect", reflection_node)
    builder.add_edge(START, "generate")
    builder.add_conditional_edges("generate", lambda s: END if len(s["messages"]) >= MAX_MESSAGES else "reflect")
    builder.add_edge("reflect", "generate")
    return builder.compile()


def test_what_a_critic_says_is_no_turn_of_the_user() -> None:
    seen = asked(essay_writer(), {"messages": [HumanMessage(QUESTION)]})

    assert seen.single_turn == sample(QUESTION, DRAFTS[-1])
    assert seen.multi_turn is None

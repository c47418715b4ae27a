"""LangGraph, "Reflection": a critique of the draft returns to the writer with the role of a human."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langgraph.graph import END, START, MessagesState, StateGraph
from tests.applications.application import Judged, asked, sample, says

REQUEST = "Generate an essay on the topicality of The Little Prince"


def writer() -> Any:
    essayist = ChatPromptTemplate.from_messages(
        [("system", "You write essays."), MessagesPlaceholder("messages")]
    ) | says("Draft: it is topical.", "It is topical: it asks what matters.")
    teacher = ChatPromptTemplate.from_messages(
        [("system", "You grade essays."), MessagesPlaceholder("messages")]
    ) | says("Say why it is topical.")

    def generate(state: MessagesState) -> dict[str, Any]:
        return {"messages": [essayist.invoke(state["messages"])]}

    def reflect(state: MessagesState) -> dict[str, Any]:
        swapped = {"ai": HumanMessage, "human": AIMessage}
        rows = [state["messages"][0], *(swapped[m.type](content=m.content) for m in state["messages"][1:])]
        return {"messages": [HumanMessage(content=teacher.invoke(rows).content)]}

    builder = StateGraph(MessagesState)
    builder.add_node("generate", generate)
    builder.add_node("reflect", reflect)
    builder.add_edge(START, "generate")
    builder.add_conditional_edges("generate", lambda s: END if len(s["messages"]) > 3 else "reflect", ["reflect", END])
    builder.add_edge("reflect", "generate")
    return builder.compile()


def test_the_critique_is_no_turn_of_the_user() -> None:
    assert asked(writer(), {"messages": [HumanMessage(REQUEST)]}) == Judged(
        single_turn=sample(REQUEST, "It is topical: it asks what matters."), source="messages"
    )

"""LangGraph, "Build a basic chatbot", with memory: a thread of several turns; the model may be shown only the last of it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import trim_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from tests.applications.application import judged, sample, says

TURNS = [("Hi, I'm Will.", "Hello Will!"), ("I like tea.", "Noted."), ("What's my name?", "You are Will.")]
THREAD = "\n".join(f"Human: {question}\nAI: {answer}" for question, answer in TURNS)


def chat_bot(messages_shown: int) -> Any:
    llm = says(*[answer for _, answer in TURNS])
    trimmer = trim_messages(max_tokens=messages_shown, token_counter=len, strategy="last", start_on="human")

    def chatbot(state: MessagesState) -> dict[str, Any]:
        return {"messages": [llm.invoke(trimmer.invoke(state["messages"]))]}

    builder = StateGraph(MessagesState)
    builder.add_node("chatbot", chatbot)
    builder.add_edge(START, "chatbot")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("messages_shown", [100, 1])
def test_the_conversation_is_the_thread_whatever_the_model_was_shown_of_it(messages_shown: int) -> None:
    app = chat_bot(messages_shown)

    def talk(config: RunnableConfig) -> None:
        for question, _ in TURNS:
            app.invoke({"messages": [{"role": "user", "content": question}]}, config)

    seen = judged(talk)

    assert [turn.single_turn for turn in seen] == [sample(question, answer) for question, answer in TURNS]
    assert seen[0].multi_turn is None
    assert seen[-1].conversation == THREAD

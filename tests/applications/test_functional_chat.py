"""LangGraph, the functional API: an entrypoint gets one message, and keeps the turns before in its checkpoint."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import add_messages
from tests.applications.application import Judged, judged, sample, says

INTRODUCTION, WELCOME = "Hi! I'm Bob.", "Hello Bob!"
QUESTION, ANSWER = "What's my name?", "Your name is Bob."


def chat() -> Any:
    model = says(WELCOME, ANSWER)

    @task
    def call_model(messages: list[BaseMessage]) -> BaseMessage:
        return model.invoke(messages)

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(inputs: list[Any], *, previous: Any = None) -> Any:
        messages: Any = add_messages(previous or [], inputs)
        response = call_model(messages).result()
        return entrypoint.final(value=response, save=add_messages(messages, response))

    return workflow


def of_two_turns() -> list[Judged]:
    app = chat()

    def talk(config: RunnableConfig) -> None:
        app.invoke([{"role": "user", "content": INTRODUCTION}], config)
        app.invoke([{"role": "user", "content": QUESTION}], config)

    return judged(talk)


def test_each_turn_is_judged_by_its_own_words() -> None:
    first, second = of_two_turns()

    assert first.single_turn == sample(INTRODUCTION, WELCOME)
    assert first.multi_turn is None
    assert second.single_turn == sample(QUESTION, ANSWER)


def test_the_turns_that_the_checkpoint_kept_are_the_users() -> None:
    _, second = of_two_turns()

    assert second.conversation == f"Human: {INTRODUCTION}\nAI: {WELCOME}\nHuman: {QUESTION}\nAI: {ANSWER}"

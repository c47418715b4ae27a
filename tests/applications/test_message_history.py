"""LangChain, `RunnableWithMessageHistory`: a store keeps the turns of each session, and puts them into the prompt."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.history import RunnableWithMessageHistory
from tests.applications.application import judged, sample, says

INTRODUCTION, WELCOME = "Hi, I'm Bob.", "Hello Bob!"
QUESTION, ANSWER = "What's my name?", "Your name is Bob."


EXAMPLES = [("human", "Hi, I'm Eve."), ("ai", "Hello Eve!")]


def chat_with_history(*examples: tuple[str, str]) -> Any:
    store: dict[str, InMemoryChatMessageHistory] = {}
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be kind."), *examples, MessagesPlaceholder("history"), ("human", "{input}")]
    )
    return RunnableWithMessageHistory(
        prompt | says(WELCOME, ANSWER),
        lambda session_id: store.setdefault(session_id, InMemoryChatMessageHistory()),
        input_messages_key="input",
        history_messages_key="history",
    )


@pytest.mark.parametrize("examples", [[], EXAMPLES], ids=["alone", "beside examples"])
def test_the_turns_that_the_store_kept_are_the_users(examples: list[tuple[str, str]]) -> None:
    app = chat_with_history(*examples)

    def two_turns(config: RunnableConfig) -> None:
        session: RunnableConfig = {**config, "configurable": {"session_id": "bob"}}
        app.invoke({"input": INTRODUCTION}, session)
        app.invoke({"input": QUESTION}, session)

    first, second = judged(two_turns)

    assert (first.single_turn, first.multi_turn) == (sample(INTRODUCTION, WELCOME), None)
    assert second.single_turn == sample(QUESTION, ANSWER)
    assert second.conversation == f"Human: {INTRODUCTION}\nAI: {WELCOME}\nHuman: {QUESTION}\nAI: {ANSWER}"

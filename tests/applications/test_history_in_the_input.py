"""A prompt with a placeholder for the turns before: the caller gives them with each request, under a key of its choice."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from tests.applications.application import asked, sample, says

TRANSLATE = "Translate 'I love programming' to French."
TRANSLATED = "J'adore la programmation."
QUESTION = "What did you just say?"
ANSWER = "I said 'J'adore la programmation.'"
HISTORIES: list[list[Any]] = [
    [HumanMessage(TRANSLATE), AIMessage(TRANSLATED)],
    [("human", TRANSLATE), ("ai", TRANSLATED)],
    [{"role": "user", "content": TRANSLATE}, {"role": "assistant", "content": TRANSLATED}],
]


@pytest.mark.parametrize("history", HISTORIES, ids=["messages", "tuples", "dicts"])
@pytest.mark.parametrize("key", ["chat_history", "history", "messages_so_far"])
def test_the_turns_that_the_caller_gives_are_the_users(key: str, history: list[Any]) -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be helpful."), MessagesPlaceholder(key), ("human", "{question}")]
    )
    app = prompt | says(ANSWER) | StrOutputParser()

    seen = asked(app, {key: history, "question": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == f"Human: {TRANSLATE}\nAI: {TRANSLATED}\nHuman: {QUESTION}\nAI: {ANSWER}"

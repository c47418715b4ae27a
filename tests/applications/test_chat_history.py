"""LangChain, "Add message history", under an unknown key: the history comes with the request, or from a store."""

from __future__ import annotations

from typing import Any

from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from tests.applications.application import asked, judged, sample, says

HISTORY = [HumanMessage("hi, I'm Bob"), AIMessage("Hello Bob!")]
CONVERSATION = "Human: hi, I'm Bob\nAI: Hello Bob!\nHuman: what's my name?\nAI: Your name is Bob."


def chat(key: str, *said: str) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You are helpful."), MessagesPlaceholder("chat_history"), ("human", f"{{{key}}}")]
    )
    return prompt | says(*said) | StrOutputParser()


def test_a_history_that_is_given_beside_an_unknown_key_is_the_conversation_before_it() -> None:
    seen = asked(
        chat("user_message", "Your name is Bob."), {"user_message": "what's my name?", "chat_history": HISTORY}
    )

    assert (seen.single_turn, seen.source) == (sample("what's my name?", "Your name is Bob."), "only_text")
    assert seen.conversation == CONVERSATION


def test_a_history_that_is_stored_is_the_conversation_too() -> None:
    store = InMemoryChatMessageHistory()
    app = RunnableWithMessageHistory(
        chat("ability", "Hello Bob!", "Your name is Bob."),
        lambda session_id: store,
        input_messages_key="ability",
        history_messages_key="chat_history",
    )

    def two_turns(config: Any) -> None:
        config = {**config, "configurable": {"session_id": "s"}}
        app.invoke({"ability": "hi, I'm Bob"}, config)
        app.invoke({"ability": "what's my name?"}, config)

    first, second = judged(two_turns)
    assert (first.single_turn, second.single_turn) == (
        sample("hi, I'm Bob", "Hello Bob!"),
        sample("what's my name?", "Your name is Bob."),
    )
    assert (first.conversation, second.conversation) == (None, CONVERSATION)

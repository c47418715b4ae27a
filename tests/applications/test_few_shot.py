"""LangChain, "How to use few shot examples in chat models": the examples belong to the prompt, not to the conversation."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate, MessagesPlaceholder
from tests.applications.application import asked, sample, says

EXAMPLES = [{"input": "I hate you, die!", "output": "toxic"}, {"input": "What a nice day.", "output": "fine"}]
COMMENT = "Thank you for your help."


def examples() -> Any:
    one = ChatPromptTemplate.from_messages([("human", "{input}"), ("ai", "{output}")])
    return FewShotChatMessagePromptTemplate(example_prompt=one, examples=EXAMPLES)


def classifier(*history: Any) -> Any:
    messages = [("system", "Is the comment toxic?"), examples(), *history, ("human", "{input}")]
    return ChatPromptTemplate.from_messages(messages) | says("fine") | StrOutputParser()


@pytest.mark.parametrize("given", [{"input": COMMENT}, COMMENT])
def test_examples_are_no_turns_of_the_user(given: Any) -> None:
    seen = asked(classifier(), given)

    assert seen.single_turn == sample(COMMENT, "fine")
    assert seen.multi_turn is None


def test_beside_examples_the_turns_before_are_still_the_users() -> None:
    history = [HumanMessage("Good morning."), AIMessage("fine")]

    seen = asked(classifier(MessagesPlaceholder("history")), {"input": COMMENT, "history": history})

    assert seen.single_turn == sample(COMMENT, "fine")
    assert seen.conversation == f"Human: Good morning.\nAI: fine\nHuman: {COMMENT}\nAI: fine"

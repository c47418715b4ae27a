"""langchain-classic, `ConversationChain`: a memory writes the turns before into a prompt of one text."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_classic.chains import ConversationChain
from langchain_core.runnables import RunnableConfig
from tests.applications.application import judged, sample, says

INTRODUCTION, WELCOME = "Hi, I'm Ann.", "Hello Ann!"
QUESTION, ANSWER = "What's my name?", "Your name is Ann."


def test_each_turn_is_the_users_words_and_not_the_prompt_with_its_memory() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and much used
        app: Any = ConversationChain(llm=says(WELCOME, ANSWER))

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"input": INTRODUCTION}, config)
        app.invoke({"input": QUESTION}, config)

    first, second = judged(two_turns)

    assert first.single_turn == sample(INTRODUCTION, WELCOME)
    assert second.single_turn == sample(QUESTION, ANSWER)
    assert (first.multi_turn, second.multi_turn) == (None, None)  # its memory is one text, and no turns

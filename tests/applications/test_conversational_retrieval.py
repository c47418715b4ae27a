"""langchain-classic, `ConversationalRetrievalChain`: a question and the turns before it become one to look up with."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_classic.chains import ConversationalRetrievalChain
from langchain_classic.memory import ConversationBufferMemory
from langchain_core.runnables import RunnableConfig
from tests.applications.application import asked, judged, replies, sample
from tests.applications.shelf import Shelf

QUESTION = "Who founded the company?"
ANSWER = "Ada and Grace founded it."
FOUNDED = "The company was founded by Ada and Grace in 1999."
FOLLOW_UP = "In which year?"
YEAR = "In 1999."
STAFF = "The company has had twelve employees since the year 2001."
CONVERSATION = f"Human: {QUESTION}\nAI: {ANSWER}\nHuman: {FOLLOW_UP}\nAI: {YEAR}"


def conversational(**more: Any) -> Any:
    llm = replies(
        {
            "Standalone question:": "In which year was the company founded?",
            "In which year was": YEAR,
            QUESTION: ANSWER,
        }
    )
    shelf = Shelf(holds={"year": (FOUNDED, STAFF), "founded": (FOUNDED,)})
    return ConversationalRetrievalChain.from_llm(llm, shelf, **more)


def test_a_follow_up_is_the_users_words_and_not_the_question_that_was_made_of_it() -> None:
    seen = asked(conversational(), {"question": FOLLOW_UP, "chat_history": [(QUESTION, ANSWER)]})

    assert seen.single_turn == sample(FOLLOW_UP, YEAR, [FOUNDED, STAFF])


def test_a_memory_keeps_the_turns_of_one_conversation() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # memories are deprecated, and much used
        app = conversational(memory=ConversationBufferMemory(memory_key="chat_history", return_messages=True))

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"question": QUESTION}, config)
        app.invoke({"question": FOLLOW_UP}, config)

    first, second = judged(two_turns)

    assert (first.single_turn, first.multi_turn) == (sample(QUESTION, ANSWER, [FOUNDED]), None)
    assert second.single_turn == sample(FOLLOW_UP, YEAR, [FOUNDED, STAFF])
    assert second.conversation == CONVERSATION

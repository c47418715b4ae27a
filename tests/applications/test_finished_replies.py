"""The application completes the model's answer: it strips it or signs it, and adds ids next to it."""

from __future__ import annotations

from typing import Any

from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel
from tests.applications.application import Judged, asked, sample, says

QUESTION = "When does the office open?"
SIGNED = "At nine.\n\nYours, the office."


def desk(said: str, finish: Any) -> Any:
    answer = ChatPromptTemplate.from_template("Answer: {message}") | says(said)
    return RunnableParallel(reply=answer | finish, ticket=lambda _: "T-19", queue=lambda _: "opening hours")


def test_an_answer_without_its_blanks_is_still_what_the_model_said() -> None:
    app = desk("\n\nAt nine.\n", lambda message: message.content.strip())

    assert asked(app, {"message": QUESTION}) == Judged(single_turn=sample(QUESTION, "At nine."), source="matched")


def test_an_answer_that_is_signed_is_the_one_text_that_holds_what_the_model_said() -> None:
    app = desk("At nine.", lambda message: f"{message.content}\n\nYours, the office.")

    assert asked(app, {"message": QUESTION}) == Judged(single_turn=sample(QUESTION, SIGNED), source="matched")

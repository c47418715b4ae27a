"""A support desk for every language: the question is translated, answered, and the answer translated back."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says

QUESTION = "Wann öffnet das Büro?"
ANSWER = "Um neun Uhr."


class State(TypedDict):
    customer_message: str
    in_english: str
    answered: str
    reply: str


def support(output_schema: type) -> Any:
    llm = says("When does the office open?", "At nine.", ANSWER)

    def ask(key: str, prompt: str, of: str) -> Any:
        return lambda state: {key: llm.invoke(f"{prompt}: {state[of]}").content}

    builder = StateGraph(State, output_schema=output_schema).add_sequence(
        [
            ("translate", ask("in_english", "Translate into English", "customer_message")),
            ("answer", ask("answered", "Answer", "in_english")),
            ("translate_back", ask("reply", "Translate into German", "answered")),
        ]
    )
    builder.add_edge(START, "translate")
    return builder.compile()


class Reply(TypedDict):
    reply: str


def test_the_one_text_that_is_let_out_is_the_answer() -> None:
    assert asked(support(Reply), {"customer_message": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )


def test_where_the_whole_state_is_let_out_all_that_was_said_is_given() -> None:
    assert asked(support(State), {"customer_message": QUESTION}) == Judged(
        single_turn=sample(
            QUESTION, '{"in_english":"When does the office open?","answered":"At nine.","reply":"Um neun Uhr."}'
        ),
        source="object",
    )

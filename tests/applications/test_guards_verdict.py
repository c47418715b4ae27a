"""Like the guarded answer, but the guard's text stays in the state next to it."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says

QUESTION = "How high is the tower?"
ANSWER = "62 metres."


def guarded(key: str) -> Any:
    State = TypedDict("State", {"question": str, key: str, "verdict": str})  # type: ignore[misc]
    llm = says(ANSWER, "SAFE")

    builder = StateGraph(State)
    builder.add_node("answer", lambda state: {key: llm.invoke(state["question"]).content})
    builder.add_node("guard", lambda state: {"verdict": llm.invoke(f"SAFE or UNSAFE? {state[key]}").content})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "guard")
    return builder.compile()


def test_a_known_key_wins_over_the_verdict() -> None:
    assert asked(guarded("final_answer"), {"question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="keys"
    )


def test_of_two_texts_that_models_said_neither_is_thrown_away() -> None:
    assert asked(guarded("reply"), {"question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, '{"reply":"62 metres.","verdict":"SAFE"}'), source="object"
    )

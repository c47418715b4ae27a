"""A model answers, and another model checks the answer before it is returned: the answer is judged, under any key."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says

QUESTION = "How high is the tower?"
ANSWER = "62 metres."


def guarded(key: str) -> Any:
    State = TypedDict("State", {"question": str, key: str, "safe": bool})  # type: ignore[misc]
    llm = says(ANSWER, "SAFE")

    def answer(state: dict[str, Any]) -> dict[str, Any]:
        return {key: llm.invoke(f"Answer the question: {state['question']}").content}

    def guard(state: dict[str, Any]) -> dict[str, Any]:
        return {"safe": llm.invoke(f"Is this safe? Say SAFE or UNSAFE.\n\n{state[key]}").content == "SAFE"}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_node("guard", guard)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "guard")
    return builder.compile()


@pytest.mark.parametrize("key", ["answer", "output", "result", "response", "generation", "final_answer"])
def test_a_known_key_of_the_state_holds_the_answer(key: str) -> None:
    assert asked(guarded(key), {"question": QUESTION}) == Judged(single_turn=sample(QUESTION, ANSWER), source="keys")


@pytest.mark.parametrize("key", ["text", "output_text", "content", "reply", "antwort"])
def test_the_one_text_that_the_graph_adds_is_the_answer(key: str) -> None:
    assert asked(guarded(key), {"question": QUESTION}) == Judged(
        single_turn=sample(QUESTION, ANSWER), source="only_text"
    )

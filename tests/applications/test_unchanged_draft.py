"""A draft that its reviewer approves: it is in the state twice, but is one answer."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says

BRIEF = "A post on the new ferry"
POST = "The new ferry sails on Monday."


class State(TypedDict):
    brief: str
    draft: str
    post: str
    reviewed_by: str


def editors() -> Any:
    llm = says(POST, "APPROVED")

    def review(state: State) -> dict[str, Any]:
        approved = llm.invoke(f"Approve this? {state['draft']}").content == "APPROVED"
        return {"post": state["draft"] if approved else "", "reviewed_by": "the editor"}

    builder = StateGraph(State)
    builder.add_node("write", lambda state: {"draft": llm.invoke(f"Write: {state['brief']}").content})
    builder.add_node("review", review)
    builder.add_edge(START, "write")
    builder.add_edge("write", "review")
    return builder.compile()


def test_one_text_under_two_keys_is_one_text() -> None:
    assert asked(editors(), {"brief": BRIEF}) == Judged(single_turn=sample(BRIEF, POST), source="matched")

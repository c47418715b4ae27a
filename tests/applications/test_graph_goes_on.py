"""LangGraph, interrupts and time travel over a plain state: the user's question came with an earlier request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from tests.applications.application import Judged, judged, sample, says

REQUEST = "Write a poem on cats."
DRAFT, SHORTER = "Cats purr on and on and on.", "Cats purr."


class Poem(TypedDict, total=False):
    request: str
    draft: str
    feedback: str
    approved: bool


def writer(review: Callable[[Poem], dict[str, Any]], *, rewrites: bool = False) -> Any:
    llm = says(DRAFT, SHORTER)

    def write(state: Poem) -> dict[str, Any]:
        return {"draft": llm.invoke(f"{state['request']} {state.get('feedback')} {state.get('draft')}").content}

    builder = StateGraph(Poem)
    builder.add_node("write", write)
    builder.add_node("review", review)
    builder.add_edge(START, "write")
    builder.add_conditional_edges("write", lambda state: END if state.get("feedback") else "review")
    builder.add_edge("review", "write" if rewrites else END)
    return builder.compile(checkpointer=InMemorySaver())


def resumed(app: Any, given: Any, resume: Any) -> Judged:
    """The samples of the request that resumed an application."""

    def ask_and_resume(config: RunnableConfig) -> None:
        app.invoke(given, config)
        app.invoke(Command(resume=resume), config)

    interrupted, after = judged(ask_and_resume)
    assert interrupted.outcome == "no_sample"
    return after


def test_after_feedback_the_question_is_what_was_asked_before_it() -> None:
    app = writer(lambda _: {"feedback": interrupt("Is it good?")}, rewrites=True)

    assert resumed(app, {"request": REQUEST}, "shorter, please").single_turn == sample(REQUEST, SHORTER)


def test_what_no_model_said_since_is_not_distinguished_from_what_was_asked() -> None:
    approved = resumed(writer(lambda _: {"approved": interrupt("Is it good?")}), {"request": REQUEST}, True)
    edited = resumed(writer(lambda _: {"draft": interrupt("Is it good?")}), {"request": REQUEST}, "Cats nap.")

    assert (approved.single_turn, approved.outcome) == (None, "no_sample")
    assert (edited.single_turn, edited.outcome) == (None, "no_sample")
    assert all(key in (edited.reason or "") for key in ("request", "draft", "extract="))


def test_an_answer_of_before_the_interrupt_is_not_its_own_question() -> None:
    llm = says(DRAFT)

    @task
    def write(request: str) -> str:
        return llm.invoke(f"Write: {request}").text

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(request: str) -> dict[str, Any]:
        draft = write(request).result()
        return {"draft": draft, "approved": interrupt(draft)}

    assert resumed(workflow, REQUEST, True).outcome == "no_sample"


def test_run_again_from_a_checkpoint_the_question_is_the_states() -> None:
    app = writer(lambda _: {"approved": True})

    def travel(config: RunnableConfig) -> None:
        app.invoke({"request": REQUEST}, config)
        before = next(state for state in app.get_state_history(config) if state.next == ("write",))
        app.invoke(None, {**config, **before.config})

    first, again = judged(travel)
    assert (first.single_turn, again.single_turn) == (sample(REQUEST, DRAFT), sample(REQUEST, SHORTER))

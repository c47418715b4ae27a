"""LangChain, `HumanInTheLoopMiddleware`: a person approves, rejects or edits a call before the tool runs."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.applications.application import Judged, calls, judged, sample, says
from tests.applications.calling import asked_and_answered

QUESTION = "Delete all records that are older than 30 days."
SQL = "DELETE FROM records WHERE age > 30"


@tool
def execute_sql(query: str) -> str:
    """Execute a statement on the database."""
    return f"done: {query}"


def decided(answer: str, **decision: Any) -> tuple[Judged, Judged]:
    """The samples of the interrupted request, and of the request that resumed it."""
    guard: Any = HumanInTheLoopMiddleware(interrupt_on={"execute_sql": True})
    model = says(calls("execute_sql", query=SQL), answer)
    app = create_agent(model, tools=[execute_sql], middleware=[guard], checkpointer=InMemorySaver())

    def ask_and_resume(config: RunnableConfig) -> None:
        app.invoke({"messages": [("user", QUESTION)]}, config)
        app.invoke(Command(resume={"decisions": [decision]}), config)

    interrupted, resumed = judged(ask_and_resume)
    return interrupted, resumed


def test_a_turn_that_waits_for_a_person_gives_no_sample() -> None:
    interrupted, _ = decided("They are gone.", type="approve")

    assert (interrupted.single_turn, interrupted.multi_turn, interrupted.outcome) == (None, None, "no_sample")


def test_after_an_approval_the_question_is_the_users() -> None:
    _, resumed = decided("They are gone.", type="approve")

    assert resumed.single_turn == sample(QUESTION, "They are gone.")
    assert resumed.conversation == (
        f"Human: {QUESTION}\nTools:\n  execute_sql: {{'query': '{SQL}'}}\nToolOutput: done: {SQL}\nAI: They are gone."
    )


def test_after_a_rejection_the_tools_answer_is_the_persons() -> None:
    _, resumed = decided("I left them alone.", type="reject", message="Never delete.")

    assert resumed.single_turn == sample(QUESTION, "I left them alone.")
    assert resumed.conversation == (
        f"Human: {QUESTION}\nTools:\n  execute_sql: {{'query': '{SQL}'}}\n"
        "ToolOutput: User rejected the tool call for `execute_sql` with reason: Never delete.\nAI: I left them alone."
    )


def test_after_an_edit_the_question_is_the_users() -> None:
    edited = {"name": "execute_sql", "args": {"query": f"{SQL} LIMIT 1"}}

    _, resumed = decided("One is gone.", type="edit", edited_action=edited)

    assert resumed.single_turn == sample(QUESTION, "One is gone.")
    assert asked_and_answered(resumed.multi_turn) == [QUESTION, "One is gone."]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_after_a_summary_took_the_place_of_the_question_it_is_the_users(keep: int) -> None:
    guard: Any = HumanInTheLoopMiddleware(interrupt_on={"execute_sql": True})
    summarization: Any = SummarizationMiddleware(
        says(*["They talked."] * 9), trigger=("messages", 4), keep=("messages", keep)
    )
    model = says("Hello!", "It rains.", calls("execute_sql", query=SQL), "They are gone.")
    app = create_agent(model, tools=[execute_sql], middleware=[summarization, guard], checkpointer=InMemorySaver())

    def ask_and_resume(config: RunnableConfig) -> None:
        for question in ("I am Bob.", "How is the weather?", QUESTION):
            app.invoke({"messages": [("user", question)]}, config)
        app.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)

    *_, resumed = judged(ask_and_resume)

    assert resumed.single_turn == sample(QUESTION, "They are gone.")

"""deepagents: an agent with files of its own gives a part of its work to a subagent, by its `task` tool."""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from langchain_core.tools import tool
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called_by

QUESTION = "What is LangGraph?"
ANSWER = "LangGraph is a library for agents as graphs."
TASK = "Find out what LangGraph is."


@tool
def internet_search(query: str) -> str:
    """Run a web search."""
    return "LangGraph: agents as graphs."


def deep_agent() -> Any:
    researcher = {
        "name": "researcher",
        "description": "Researches one topic.",
        "system_prompt": "You are a researcher.",
        "tools": [internet_search],
        "model": says(calls("internet_search", "r1", query="LangGraph"), "It runs agents as graphs."),
    }
    model = says(
        calls("write_file", "d1", file_path="/plan.md", content="Research LangGraph."),
        calls("task", "d2", description=TASK, subagent_type="researcher"),
        ANSWER,
    )
    return create_deep_agent(model=model, subagents=[researcher], name="writer")


def test_the_calls_of_the_subagent_are_seen_too_and_its_task_is_no_turn_of_the_user() -> None:
    seen = asked(deep_agent(), {"messages": [{"role": "user", "content": QUESTION}]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called_by(seen.multi_turn) == [
        ("writer", "write_file"),
        ("writer", "task"),
        ("researcher", "internet_search"),
    ]

"""langgraph-supervisor: a supervisor hands over to experts, and gets only their last messages back."""

from __future__ import annotations

import warnings
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called_by

QUESTION = "What's the combined headcount of Facebook and Apple?"
ANSWER = "Together they have 231,317 employees."
CALLS = [
    ("supervisor", "transfer_to_research_expert"),
    ("research_expert", "web_search"),
    ("supervisor", "transfer_to_math_expert"),
    ("math_expert", "add"),
]


@tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool
def web_search(query: str) -> str:
    """Search the web for information."""
    return "Facebook: 67,317 employees. Apple: 164,000 employees."


def headcount_team(**options: Any) -> Any:
    math = create_agent(says(calls("add", "m1", a=67317, b=164000), "231,317."), tools=[add], name="math_expert")
    searched = says(calls("web_search", "r1", query="headcount"), "Facebook 67,317, Apple 164,000.")
    research = create_agent(searched, tools=[web_search], name="research_expert")
    boss = says(calls("transfer_to_research_expert", "s1"), calls("transfer_to_math_expert", "s2"), ANSWER)
    return create_supervisor([research, math], model=boss, **options).compile()


def test_every_call_is_seen_in_order_with_the_agent_that_made_it() -> None:
    seen = asked(headcount_team(), {"messages": [("user", QUESTION)]})

    # The library itself writes that an expert hands back: a message with a call that no model made and no tool ran.
    made = [call for call in called_by(seen.multi_turn) if call[1] != "transfer_back_to_supervisor"]
    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert made == CALLS


def test_a_team_that_tells_its_whole_history_is_seen_the_same() -> None:
    seen = asked(headcount_team(output_mode="full_history"), {"messages": [("user", QUESTION)]})

    made = [call for call in called_by(seen.multi_turn) if call[1] != "transfer_back_to_supervisor"]
    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert made == CALLS


def test_experts_that_are_no_agents_of_langchain_are_named_by_their_place_in_the_team() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its prebuilt agent is deprecated, and much used
        expert = create_react_agent(says(calls("add", "m1", a=1, b=2), "It is 3."), tools=[add], name="math_expert")
    model = says(calls("transfer_to_math_expert", "t1"), "The answer is 3.")

    seen = asked(create_supervisor([expert], model=model).compile(), {"messages": [("user", "1 + 2?")]})

    assert ("math_expert", "add") in called_by(seen.multi_turn)

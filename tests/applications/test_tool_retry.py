"""LangChain, `ToolRetryMiddleware`: a tool fails twice before it answers; the model asked for it once."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.tools import tool
from tests.applications.application import asked, calls, sample, says

QUESTION = "What is the weather in Oslo?"
ANSWER = "It snows in Oslo."


def weather_agent(failures: int) -> Any:
    left = iter(range(failures))

    @tool
    def weather(city: str) -> str:
        """Ask the weather service."""
        if next(left, None) is not None:
            raise ConnectionError("unreachable")
        return "snow"

    retry: Any = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    return create_agent(says(calls("weather", city="Oslo"), ANSWER), tools=[weather], middleware=[retry])


def test_a_call_that_was_tried_three_times_is_one_call() -> None:
    seen = asked(weather_agent(failures=2), {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert seen.conversation == (
        f"Human: {QUESTION}\nTools:\n  weather: {{'city': 'Oslo'}}\nToolOutput: snow\nAI: {ANSWER}"
    )

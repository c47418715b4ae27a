"""LangGraph, the prebuilt `create_react_agent`: parallel calls, their results, an answer, and the next turn of the thread."""

from __future__ import annotations

import warnings
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from tests.applications.application import calls, judged, sample, says

QUESTION, ANSWER = "What's the weather in SF and NYC?", "Foggy in SF, sunny in NYC."
THANKS, WELCOME = "Thanks!", "You're welcome."


@tool
def get_weather(city: str) -> str:
    """Ask for the weather of a city."""
    return "foggy" if city == "SF" else "sunny"


def react_agent() -> Any:
    both = [*calls("get_weather", "w1", city="SF").tool_calls, *calls("get_weather", "w2", city="NYC").tool_calls]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has moved to langchain.agents, and is much used
        model = says(AIMessage("", tool_calls=both), ANSWER, WELCOME)
        return create_react_agent(model, [get_weather], checkpointer=InMemorySaver())


def test_each_turn_is_judged_by_its_own_words_and_the_thread_as_a_whole() -> None:
    app = react_agent()

    def two_turns(config: RunnableConfig) -> None:
        app.invoke({"messages": [("user", QUESTION)]}, config)
        app.invoke({"messages": [("user", THANKS)]}, config)

    first, second = judged(two_turns)

    result = (
        f"Human: {QUESTION}\nTools:\n  get_weather: {{'city': 'SF'}}\n  get_weather: {{'city': 'NYC'}}\n"
        f"ToolOutput: foggy\nToolOutput: sunny\nAI: {ANSWER}"
    )
    assert (first.single_turn, first.conversation) == (sample(QUESTION, ANSWER), result)
    assert second.single_turn == sample(THANKS, WELCOME)
    assert second.conversation == f"{result}\nHuman: {THANKS}\nAI: {WELCOME}"

"""LangGraph, "Multi-agent network": agents hand over by `Command(goto=…)`, and put their words to the next as a human's."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called

QUESTION = "Get the UK's GDP of the last three years, and chart it."
FOUND = "The GDP was 3.1, 3.3 and 3.6 trillion."
ANSWER = "FINAL ANSWER: gdp.png shows it."


@tool
def web_search(query: str) -> str:
    """Search the web."""
    return "3.1, 3.3, 3.6"


@tool
def python_repl(code: str) -> str:
    """Run Python."""
    return "gdp.png"


def network() -> Any:
    research_agent = create_agent(says(calls("web_search", "w1", query="UK GDP"), FOUND), tools=[web_search])
    chart_agent = create_agent(says(calls("python_repl", "p1", code="plot()"), ANSWER), tools=[python_repl])

    def next_node(said: str, other: str) -> str:
        return END if "FINAL ANSWER" in said else other

    def speak(agent: Any, name: str, other: str) -> Any:
        def node(state: MessagesState) -> Command[str]:
            result = agent.invoke(state)
            said = result["messages"][-1].content
            # As in the tutorial: not all providers allow an AI message at the end of the input.
            result["messages"][-1] = HumanMessage(content=said, name=name)
            return Command(update={"messages": result["messages"]}, goto=next_node(said, other))

        return node

    workflow = StateGraph(MessagesState)
    workflow.add_node("researcher", speak(research_agent, "researcher", "chart_generator"))
    workflow.add_node("chart_generator", speak(chart_agent, "chart_generator", "researcher"))
    workflow.add_edge(START, "researcher")
    return workflow.compile()


def test_what_the_agents_tell_each_other_as_a_human_is_no_turn_of_the_user() -> None:
    seen = asked(network(), {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called(seen.multi_turn) == [("web_search", {"query": "UK GDP"}), ("python_repl", {"code": "plot()"})]

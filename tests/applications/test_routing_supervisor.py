"""LangGraph, "Multi-agent supervisor" by hand: a model routes by a structured answer, workers report as if they were human."""

from __future__ import annotations

from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called

QUESTION = "What's the square root of 42?"
ANSWER = "The square root of 42 is about 6.4807."


class Router(BaseModel):
    """Worker to route to next. If no workers needed, route to FINISH."""

    next: Literal["researcher", "coder", "FINISH"]


@tool
def python_repl(code: str) -> str:
    """Run Python."""
    return "6.48074069840786"


def team() -> Any:
    router = says(calls("Router", next="coder"), calls("Router", next="FINISH")).with_structured_output(Router)
    coder = create_agent(says(calls("python_repl", code="print(42 ** 0.5)"), ANSWER), tools=[python_repl])

    def supervisor_node(state: MessagesState) -> Command[Literal["coder", "__end__"]]:
        goto = router.invoke([{"role": "system", "content": "You are a supervisor."}, *state["messages"]]).next
        return Command(goto=END if goto == "FINISH" else goto)

    def code_node(state: MessagesState) -> Command[Literal["supervisor"]]:
        said = coder.invoke(state)["messages"][-1].content
        return Command(update={"messages": [HumanMessage(content=said, name="coder")]}, goto="supervisor")

    builder = StateGraph(MessagesState)
    builder.add_node("supervisor", supervisor_node)
    builder.add_node("coder", code_node)
    builder.add_edge(START, "supervisor")
    return builder.compile()


def test_the_answer_is_the_workers_and_not_the_supervisors_word_to_finish() -> None:
    seen = asked(team(), {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called(seen.multi_turn) == [("python_repl", {"code": "print(42 ** 0.5)"})]

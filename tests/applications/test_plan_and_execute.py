"""LangGraph, "Plan-and-execute": a plan, an agent for each of its steps, a response when all is done."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from tests.applications.application import asked, calls, sample, says

QUESTION = "what is the hometown of the mens 2024 Australia open winner?"
ANSWER = "Sesto, Italy."


class Plan(BaseModel):
    steps: list[str]


class Response(BaseModel):
    response: str


class PlanExecute(TypedDict):
    input: str
    plan: list[str]
    past_steps: Annotated[list[tuple[str, str]], operator.add]
    response: str


def plan_and_execute() -> Any:
    planner = says(calls("Plan", steps=["Find the winner", "Find the hometown"])).with_structured_output(Plan)
    agent = create_agent(says("Jannik Sinner won.", "He is from Sesto."), tools=[])
    replanner = says(calls("Response", response=ANSWER)).with_structured_output(Response)

    def execute_step(state: PlanExecute) -> dict[str, Any]:
        task, *rest = state["plan"]
        said = agent.invoke({"messages": [("user", f"You are tasked with executing: {task}.")]})
        return {"past_steps": [(task, said["messages"][-1].content)], "plan": rest}

    def replan(state: PlanExecute) -> dict[str, Any]:
        told = f"Objective: {state['input']}\nDone: {state['past_steps']}"
        return {} if state["plan"] else {"response": replanner.invoke(told).response}

    workflow = StateGraph(PlanExecute)
    workflow.add_node("planner", lambda state: {"plan": planner.invoke(f"Plan: {state['input']}").steps})
    workflow.add_node("agent", execute_step)
    workflow.add_node("replan", replan)
    workflow.add_edge(START, "planner")
    workflow.add_edge("planner", "agent")
    workflow.add_edge("agent", "replan")
    workflow.add_conditional_edges("replan", lambda s: END if s.get("response") else "agent", ["agent", END])
    return workflow.compile()


def test_input_and_response_are_judged_and_no_step_of_the_plan() -> None:
    seen = asked(plan_and_execute(), {"input": QUESTION})

    assert (seen.single, seen.conversation, seen.source) == (sample(QUESTION, ANSWER), None, "keys")

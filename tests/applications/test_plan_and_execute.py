"""LangGraph, "Plan-and-Execute": a planner writes steps, an agent with tools does each, a replanner answers or goes on."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called

QUESTION = "What is the hometown of the 2024 Australian Open winner?"
STEPS = ["Find the winner of the Australian Open 2024.", "Find the winner's hometown."]
ANSWER = "Sexten, in South Tyrol."
SEARCHES = [("search", {"query": "winner Australian Open 2024"}), ("search", {"query": "hometown Jannik Sinner"})]


class Plan(BaseModel):
    """Plan to follow in future"""

    steps: list[str] = Field(description="different steps to follow, should be in sorted order")


class Act(BaseModel):
    """Action to perform: respond to the user, or go on with the steps that are left."""

    response: str = ""
    steps: list[str] = Field(default_factory=list)


class PlanExecute(TypedDict):
    input: str
    plan: list[str]
    past_steps: Annotated[list[tuple[str, str]], operator.add]
    response: str


@tool
def search(query: str) -> str:
    """Search the web."""
    return "Jannik Sinner, of Sexten."


def plan_and_execute() -> Any:
    planner = ChatPromptTemplate.from_messages(
        [("system", "For the given objective, come up with a simple step by step plan."), ("human", "{objective}")]
    ) | says(calls("Plan", steps=STEPS)).with_structured_output(Plan)
    searches = (calls("search", "s1", **SEARCHES[0][1]), calls("search", "s2", **SEARCHES[1][1]))
    executor = create_agent(says(searches[0], "Jannik Sinner won.", searches[1], "He is of Sexten."), tools=[search])
    replanner = ChatPromptTemplate.from_template("Objective: {input}\nPlan: {plan}\nDone: {past_steps}") | says(
        calls("Act", steps=STEPS[1:]), calls("Act", response=ANSWER)
    ).with_structured_output(Act)

    def plan_step(state: PlanExecute) -> dict[str, Any]:
        return {"plan": planner.invoke({"objective": state["input"]}).steps}

    def execute_step(state: PlanExecute) -> dict[str, Any]:
        plan = "\n".join(f"{at}. {step}" for at, step in enumerate(state["plan"], 1))
        task = f"For the following plan:\n{plan}\n\nYou are tasked with executing step 1, {state['plan'][0]}"
        response = executor.invoke({"messages": [("user", task)]})
        return {"past_steps": [(state["plan"][0], response["messages"][-1].content)]}

    def replan_step(state: PlanExecute) -> dict[str, Any]:
        act = replanner.invoke(dict(state))
        return {"response": act.response} if act.response else {"plan": act.steps}

    workflow = StateGraph(PlanExecute)
    workflow.add_node("planner", plan_step)
    workflow.add_node("agent", execute_step)
    workflow.add_node("replan", replan_step)
    workflow.add_edge(START, "planner")
    workflow.add_edge("planner", "agent")
    workflow.add_edge("agent", "replan")
    workflow.add_conditional_edges("replan", lambda state: END if state.get("response") else "agent", ["agent", END])
    return workflow.compile()


def test_the_conversation_is_the_users_objective_and_the_response_to_it() -> None:
    seen = asked(plan_and_execute(), {"input": QUESTION})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called(seen.multi_turn) == SEARCHES

"""A prompt with user data: name and tone are in the system part, the user's message is the human part."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import START, StateGraph
from tests.applications.application import Judged, asked, sample, says

GIVEN = {"customer_name": "Ann", "tone": "kind", "message": "Where is my parcel?"}
ANSWER = "Dear Ann, it is on its way."


class State(TypedDict, total=False):
    customer_name: str
    tone: str
    message: str
    reply: str


def chain() -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "You speak with {customer_name}. Be {tone}."), ("human", "{message}")]
    )
    return prompt | says(ANSWER) | StrOutputParser()


def graph() -> Any:
    llm = says(ANSWER)

    def answer(state: State) -> dict[str, Any]:
        system = SystemMessage(f"You speak with {state['customer_name']}. Be {state['tone']}.")
        return {"reply": llm.invoke([system, HumanMessage(state["message"])]).content}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile()


def test_what_the_human_says_in_the_prompt_is_the_question() -> None:
    assert asked(chain(), GIVEN) == Judged(single_turn=sample("Where is my parcel?", ANSWER), source="matched")


def test_so_it_is_in_a_graph() -> None:
    assert asked(graph(), GIVEN) == Judged(single_turn=sample("Where is my parcel?", ANSWER), source="matched")

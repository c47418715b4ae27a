"""LangChain, an agent with a `response_format`: the answer is a structure, which the model gives as a call of no tool."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import tool
from pydantic import BaseModel
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import called

QUESTION = "Extract the contact: John Doe, john@example.com"
ANSWER = '{"name":"John Doe","email":"john@example.com"}'


class ContactInfo(BaseModel):
    """Contact information of a person."""

    name: str
    email: str


@tool
def look_up(name: str) -> str:
    """Look a person up in the address book."""
    return "john@example.com"


def test_the_answer_is_the_structure() -> None:
    structured = calls("ContactInfo", name="John Doe", email="john@example.com")
    app = create_agent(says(structured), response_format=ToolStrategy(ContactInfo))

    seen = asked(app, {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)


def test_beside_real_tools_the_answer_is_still_the_structure() -> None:
    structured = calls("ContactInfo", "c2", name="John Doe", email="john@example.com")
    model = says(calls("look_up", "c1", name="John Doe"), structured)
    app = create_agent(model, tools=[look_up], response_format=ToolStrategy(ContactInfo))

    seen = asked(app, {"messages": [("user", QUESTION)]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert called(seen.multi_turn)[0] == ("look_up", {"name": "John Doe"})

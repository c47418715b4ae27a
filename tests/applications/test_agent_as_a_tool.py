"""LangChain, "Subagents": an agent is wrapped in a tool, and another calls it."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from tests.applications.application import asked, calls, sample, says
from tests.applications.calling import asked_and_answered, called_by

QUESTION = "Book a table for two tonight, and tell Ann."
ANSWER = "Booked for eight; Ann knows."
CALLS = [
    ("assistant", "manage_bookings"),
    ("bookings_agent", "free_tables"),
    ("bookings_agent", "book_table"),
    ("assistant", "send_message"),
]


@tool
def free_tables(day: str) -> str:
    """Tell when a table is free."""
    return "20:00"


@tool
def book_table(time: str, people: int) -> str:
    """Book a table."""
    return f"booked at {time} for {people}"


@tool
def send_message(to: str, text: str) -> str:
    """Send a message."""
    return "sent"


def assistant() -> Any:
    book = (calls("free_tables", "b1", day="tonight"), calls("book_table", "b2", time="20:00", people=2))
    bookings_agent = create_agent(
        says(*book, "Booked at 20:00."), tools=[free_tables, book_table], name="bookings_agent"
    )

    @tool
    def manage_bookings(request: str) -> str:
        """Book tables, given a request in plain words."""
        return bookings_agent.invoke({"messages": [{"role": "user", "content": request}]})["messages"][-1].text

    model = says(
        calls("manage_bookings", "a1", request="A table for two tonight"),
        calls("send_message", "a2", to="Ann", text="Tonight at eight"),
        ANSWER,
    )
    return create_agent(model, tools=[manage_bookings, send_message], name="assistant")


def test_what_an_agent_asks_of_another_is_no_turn_of_the_user_and_every_call_is_seen() -> None:
    seen = asked(assistant(), {"messages": [{"role": "user", "content": QUESTION}]})

    assert seen.single_turn == sample(QUESTION, ANSWER)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert called_by(seen.multi_turn) == CALLS


def test_agents_that_work_at_the_same_time_are_each_seen_with_their_calls() -> None:
    # Each model counts its calls for itself, so that their ids are the same.
    finder = create_agent(
        says(calls("free_tables", "1", day="tonight"), "At 20:00."), tools=[free_tables], name="finder"
    )
    sender = create_agent(
        says(calls("send_message", "1", to="Ann", text="?"), "Sent."), tools=[send_message], name="sender"
    )

    @tool
    def find(request: str) -> str:
        """Find a table."""
        return finder.invoke({"messages": [("user", request)]})["messages"][-1].text

    @tool
    def tell(request: str) -> str:
        """Tell somebody."""
        return sender.invoke({"messages": [("user", request)]})["messages"][-1].text

    both = [*calls("find", "1", request="a table").tool_calls, *calls("tell", "2", request="Ann").tool_calls]
    app = create_agent(says(AIMessage("", tool_calls=both), ANSWER), tools=[find, tell], name="assistant")

    seen = asked(app, {"messages": [("user", QUESTION)]})

    made = called_by(seen.multi_turn)
    assert asked_and_answered(seen.multi_turn) == [QUESTION, ANSWER]
    assert made[:2] == [("assistant", "find"), ("assistant", "tell")]
    assert sorted(made[2:]) == [("finder", "free_tables"), ("sender", "send_message")]

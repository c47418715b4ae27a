"""LangGraph, "Thinking in LangGraph": a mail is classified, documents are searched, a reply is drafted."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from tests.applications.application import Judged, asked, calls, replies, sample

MAIL = "Hi, I was charged twice for my subscription! This is urgent!"
DRAFT = "Dear customer, we have paid the second charge back."


class EmailClassification(TypedDict):
    intent: Literal["question", "bug", "billing"]
    urgency: Literal["low", "high"]
    topic: str
    summary: str


class EmailAgentState(TypedDict, total=False):
    email_content: str
    sender_email: str
    email_id: str
    classification: EmailClassification | None
    search_results: list[str] | None
    draft_response: str | None


def email_agent() -> Any:
    said = calls("EmailClassification", intent="billing", urgency="high", topic="charge", summary="Charged twice")
    llm = replies({"Analyze this customer email": said, "Draft a response": DRAFT})

    def classify_intent(state: EmailAgentState) -> Command[Any]:
        prompt = f"Analyze this customer email:\n\nEmail: {state['email_content']}\nFrom: {state['sender_email']}"
        classification = llm.with_structured_output(EmailClassification).invoke(prompt)
        return Command(update={"classification": classification}, goto="search_documentation")

    def search_documentation(state: EmailAgentState) -> Command[Any]:
        return Command(update={"search_results": ["Charges can be paid back."]}, goto="draft_response")

    def draft_response(state: EmailAgentState) -> Command[Any]:
        prompt = f"Draft a response to this customer email:\n{state['email_content']}\n\n{state['search_results']}"
        return Command(update={"draft_response": llm.invoke(prompt).content}, goto="send_reply")

    builder = StateGraph(EmailAgentState)
    builder.add_node("classify_intent", classify_intent, destinations=("search_documentation",))
    builder.add_node("search_documentation", search_documentation, destinations=("draft_response",))
    builder.add_node("draft_response", draft_response, destinations=("send_reply",))
    builder.add_node("send_reply", lambda state: {})
    builder.add_edge(START, "classify_intent")
    builder.add_edge("send_reply", END)
    return builder.compile()


def test_the_mail_is_distinguished_from_its_sender_by_the_prompt_of_the_draft() -> None:
    given = {"email_content": MAIL, "sender_email": "customer@example.com", "email_id": "email_123"}

    assert asked(email_agent(), given) == Judged(single_turn=sample(MAIL, DRAFT), source="matched")

"""The demo's agent: LangChain's agent on LangGraph, with two tools and a memory of its conversations."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool

from spanscore.errors import MissingExtraError
from spanscore.testing.demo.application import Handbook, documents

AGENT_NAME = "purser"
TOPICS = (
    *("tickets", "bicycles", "dogs", "horses", "cars", "ferries", "crossing", "wind", "suitcases", "lost property"),
    *("lockers", "wheelchair", "boarding", "Marigold", "captain", "galley", "meals", "parking", "groups", "schools"),
)
"""Subjects of the agent: the reference of topic adherence."""
_SYSTEM = "You are the purser of Skerrow Sound Ferries. Answer questions about the ferries, from your tools alone."


def ferry_agent(model: BaseChatModel, handbook: Handbook) -> Any:
    """Return the agent, a compiled graph that keeps conversations in memory, by ``thread_id``.

    Raises:
        MissingExtraError: langchain, or langgraph which it brings, is not installed.
    """
    try:
        from langchain.agents import create_agent
        from langgraph.checkpoint.memory import InMemorySaver
    except ImportError as error:
        raise MissingExtraError("langchain", "demo") from error

    @tool(response_format="content_and_artifact")
    def search_handbook(question: str) -> tuple[str, list[Document]]:
        """Search the handbook: prices, rules, ships, services."""
        return _with_artifact(handbook.invoke(question))

    @tool(response_format="content_and_artifact")
    def timetable(question: str) -> tuple[str, list[Document]]:
        """Look up departures and the length of crossings."""
        return _with_artifact([page for page in documents() if page.id == "timetable"])

    return create_agent(
        model, [search_handbook, timetable], system_prompt=_SYSTEM, name=AGENT_NAME, checkpointer=InMemorySaver()
    )


def _with_artifact(pages: list[Document]) -> tuple[str, list[Document]]:
    return "\n".join(page.page_content for page in pages), pages

"""The memory of the agent's conversations: LangGraph's own, in this process."""

from __future__ import annotations

from typing import Any

from spanscore.errors import MissingExtraError

__all__ = ["conversations"]


def conversations() -> Any:
    """Return a checkpointer that keeps every conversation by its ``thread_id``.

    Raises:
        MissingExtraError: langgraph is not installed.
    """
    try:
        from langgraph.checkpoint.memory import InMemorySaver
    except ImportError as error:
        raise MissingExtraError("langgraph", "demo") from error
    return InMemorySaver()

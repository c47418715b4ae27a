"""Who called which tool in a conversation, in order."""

from __future__ import annotations

from typing import Any

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample

AGENT = "agent"
"""The key of a message's metadata that names the agent which said it."""


def called(conversation: MultiTurnSample | None) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a conversation as (tool, arguments)."""
    return [(call.name, call.args) for message in _said(conversation) for call in message.tool_calls or ()]


def called_by(conversation: MultiTurnSample | None) -> list[tuple[str | None, str]]:
    """Return the calls of a conversation as (agent, tool)."""
    return [
        ((message.metadata or {}).get(AGENT), call.name)
        for message in _said(conversation)
        for call in message.tool_calls or ()
    ]


def asked_and_answered(conversation: MultiTurnSample | None) -> list[str]:
    """Return what the user said, and last what the application answered."""
    assert conversation is not None
    humans = [message.content for message in conversation.user_input if isinstance(message, HumanMessage)]
    return [*humans, _said(conversation)[-1].content]


def _said(conversation: MultiTurnSample | None) -> list[AIMessage]:
    assert conversation is not None
    return [message for message in conversation.user_input if isinstance(message, AIMessage)]

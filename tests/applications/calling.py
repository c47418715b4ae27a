"""The tool calls in a conversation, in order, each with its caller."""

from __future__ import annotations

from typing import Any

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample

AGENT = "agent"
"""Key of a message's metadata with the name of the agent that wrote it."""


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
    """Return the user's message and the application's last answer."""
    assert conversation is not None
    humans = [message.content for message in conversation.user_input if isinstance(message, HumanMessage)]
    return [*humans, _said(conversation)[-1].content]


def _said(conversation: MultiTurnSample | None) -> list[AIMessage]:
    assert conversation is not None
    return [message for message in conversation.user_input if isinstance(message, AIMessage)]

"""GenAI messages (plain dicts) → what they say → the messages of a sample.

A GenAI message is ``{"role", "parts": [{"type": "text", "content"}, {"type": "tool_call", "id", "name", "arguments"},
{"type": "tool_call_response", "id", "response"}, …]}``. Other writers leave ``parts`` out and put ``content`` in its place,
or write ``result`` for ``response``: both are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spanscore.codec.text import as_text, from_wire, jsonable, safe_text
from spanscore.model.foreign import is_a
from spanscore.model.sample import AIMessage, HumanMessage, Message, ToolCall, ToolMessage

__all__ = [
    "ASSISTANT",
    "MADE",
    "SYSTEM",
    "TOOL",
    "USER",
    "calls_by_id",
    "is_made",
    "is_message",
    "message_text",
    "role_of",
    "sample_messages",
    "text_message",
    "tool_calls",
    "tool_responses",
]

USER = "user"
ASSISTANT = "assistant"
TOOL = "tool"
SYSTEM = "system"
MADE = "lc_source"
"""Key of a message that LangChain made (``additional_kwargs``), such as a summary in place of what was said."""

_DICTS = frozenset({dict})
_ROLES: Mapping[str, str] = {
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "ai", "model"), ASSISTANT),
    **dict.fromkeys(("tool", "function"), TOOL),
    **dict.fromkeys(("system", "developer"), SYSTEM),
}


def role_of(name: Any) -> str | None:
    """Return the GenAI role for a role's name as any framework writes it, None where it is none of them."""
    if type(name) is str and name in _ROLES:  # as most write it
        return _ROLES[name]
    return _ROLES.get(str.lower(name)) if is_a(name, str) else None


def is_message(value: Any) -> bool:
    """Whether a value is a message: a role with parts, or with content."""
    if type(value) is not dict and not is_a(value, dict):
        return False
    role = value.get("role")
    return (type(role) is str or is_a(role, str)) and ("parts" in value or "content" in value)


def is_made(message: Mapping[str, Any]) -> bool:
    """Whether a middleware made the message: no human and no model said it. What answers a call is that, whoever gave it."""
    return MADE in message and role_of(message.get("role")) != TOOL


def message_text(message: Mapping[str, Any]) -> str | None:
    """Return what a message says; None where it says nothing in words (an image, a tool call alone).

    An empty text is a text: an empty answer stays one.
    """
    parts = _parts(message)
    if len(parts) == 1:  # as most have
        return _text_of(parts[0])
    texts = [text for part in parts if (text := _text_of(part)) is not None]
    if texts:
        return "".join(texts)
    return None if parts else ""


def text_message(role: str, text: str) -> dict[str, Any]:
    """Return a message of one text."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def tool_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    """Return the calls a message makes, in order."""
    return [_call(part) for part in _parts(message) if part.get("type") == "tool_call"]


def calls_by_id(message: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    """Return name and id, as they stand, of each call a message makes: reading the calls themselves costs twenty times that."""
    parts = _parts(message)
    if len(parts) == 1 and parts[0].get("type") != "tool_call":  # as most have
        return ()
    return tuple([_named(part) for part in parts if part.get("type") == "tool_call"])


def _named(part: Mapping[str, Any]) -> tuple[str, str | None]:
    name, identity = part.get("name"), part.get("id")
    if type(name) is not str or type(identity) is not str:  # as no writer has them
        return _name_in(part), as_text(identity) if identity else None
    return name, identity or None


def tool_responses(message: Mapping[str, Any]) -> list[ToolMessage]:
    """Return the answers of tools a message brings, in order; of a tool's message also a plain text."""
    answers = [_response(part) for part in _parts(message) if part.get("type") == "tool_call_response"]
    if answers or role_of(message.get("role")) != TOOL:
        return answers
    return [ToolMessage(content=message_text(message) or "", tool_call_id=_id(message.get("tool_call_id")))]


def sample_messages(messages: Iterable[Any]) -> list[Message]:
    """Return a sample's messages, calls with the agent that made them where it has a name.

    Instructions to the model (system), and what a middleware made, are no part of the conversation.
    """
    return [said for message in messages if is_message(message) for said in _said(message)]


def _said(message: Mapping[str, Any]) -> Sequence[Message]:
    role = role_of(message.get("role"))
    if role == SYSTEM or is_made(message):
        return []
    if role == ASSISTANT:
        return [said for part in _rounds(message) for said in _answer(part)]
    answers = tool_responses(message)
    if role == TOOL:
        return answers
    text = message_text(message)
    # Some providers bring the tools' answers in a user message.
    return answers if answers and not text else [*answers, HumanMessage(content=text or "")]


def _rounds(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a message in parts that each end with results: providers run tools of their own within one answer."""
    rounds: list[list[Mapping[str, Any]]] = [[]]
    for part in _parts(message):
        if (
            part.get("type") != "tool_call_response"
            and rounds[-1]
            and rounds[-1][-1].get("type") == "tool_call_response"
        ):
            rounds.append([])
        rounds[-1].append(part)
    return [message] if len(rounds) == 1 else [{**message, "parts": parts} for parts in rounds]


def _answer(message: Mapping[str, Any]) -> Sequence[Message]:
    calls = tool_calls(message) or None
    agent = {"agent": as_text(message["name"])} if calls and message.get("name") else None
    said = AIMessage(content=message_text(message) or "", tool_calls=calls, metadata=agent)
    return [said, *tool_responses(message)]


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = message["parts"] if "parts" in message else message.get("content")
    if type(parts) is list:
        if len(parts) == 1 and type(parts[0]) is dict:  # as most have
            return parts
        if _DICTS.issuperset(map(type, parts)):  # as our own codec writes them
            return parts
    return _as_parts(parts)


def _as_parts(parts: Any) -> list[Mapping[str, Any]]:
    if isinstance(parts, str):
        return [{"type": "text", "content": parts}]
    if not isinstance(parts, Sequence) or isinstance(parts, (bytes, bytearray)):
        return []
    shown = [{"type": "text", "content": part} if isinstance(part, str) else part for part in parts]
    return [part for part in shown if isinstance(part, Mapping)]


def _text_of(part: Mapping[str, Any]) -> str | None:
    if part.get("type", "text") != "text":
        return None
    text = part.get("content", part.get("text"))
    return safe_text(text) if isinstance(text, str) else None


def _call(part: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        name=_name_in(part), args=_arguments(part.get("arguments", part.get("args"))), id=_id(part.get("id"))
    )


def _name_in(part: Mapping[str, Any]) -> str:
    name = part.get("name")
    return as_text(name) if name else ""


def _arguments(value: Any) -> dict[str, Any]:
    arguments = jsonable(from_wire(value) if isinstance(value, str) else value)
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments in (None, "") else {"input": arguments}


def _response(part: Mapping[str, Any]) -> ToolMessage:
    response = part.get("response", part.get("result", part.get("content")))
    return ToolMessage(content="" if response is None else as_text(response), tool_call_id=_id(part.get("id")))


def _id(value: Any) -> str | None:
    return None if value is None else as_text(value)

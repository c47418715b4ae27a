"""A message as a client's dict, ``{"role", "content", "tool_calls"}`` and its kin → a GenAI message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.codec.blocks import as_parts, joined, parts, tool_part
from spanscore.codec.messages import ASSISTANT, TOOL, USER, is_message, role_of
from spanscore.model.foreign import is_a

__all__ = ["bare_message", "call_part", "dict_message", "read_message", "response_part"]

_SOURCED = ("Message", "Event")
"""How the types of AutoGen's messages end: ``TextMessage``, ``ToolCallRequestEvent`` …"""


def read_message(value: Any) -> dict[str, Any] | None:
    """Read a message that stands under a name of the conventions, in their form or any client's; None for any other value."""
    if type(value) is not dict:
        return None
    listed = value.get("parts")
    if type(listed) is list and type(value.get("role")) is str:  # as in most
        if len(listed) == 1 and type(listed[0]) is dict and listed[0].get("type") == "text":  # as most have
            return value
        return value if (read := as_parts(listed)) is listed else {**value, "parts": read}
    return _clients_message(value)


def _clients_message(value: dict[str, Any]) -> dict[str, Any] | None:
    if not is_message(value):
        return _item(value)
    listed = value.get("content")
    if "parts" not in value and type(listed) is list and (read := as_parts(listed)) is not listed:
        return {**value, "parts": read}
    has_more = role_of(value["role"]) == TOOL or value.get("tool_calls")
    return dict_message(value) if has_more else value


def _is_response(part: Any) -> bool:
    return type(part) is dict and part.get("type") == "tool_call_response"


def _item(value: dict[str, Any]) -> dict[str, Any] | None:
    """Read a message of calls alone, and an item of OpenAI's Responses API, which has no role."""
    if is_a(value.get("role"), str):
        return dict_message(value) if value.get("tool_calls") else None
    part = tool_part(value)
    role = ASSISTANT if part is None or part["type"] == "tool_call" else TOOL
    return None if part is None else {"role": role, "parts": [part]}


def dict_message(item: dict[str, Any]) -> dict[str, Any]:
    """Read a dict with a role as OpenAI's clients write it, and GenAI's own form as it is."""
    if "parts" in item:
        return item
    role = role_of(item["role"]) or item["role"]
    content = item.get("content")
    if role == TOOL:
        results = [part for part in parts(content) if _is_response(part)] if is_a(content, list) else []
        return {"role": TOOL, "parts": results or [response_part(item, content)]}
    called = item.get("tool_calls")
    calls = [call_part(call) for call in called if is_a(call, dict)] if is_a(called, list) else []
    return {"role": role, "parts": [*parts(content, calls_apart=bool(calls)), *calls]}


def bare_message(item: dict[str, Any]) -> dict[str, Any] | None:
    """Read a message that has no role, or no content; return None for any other dict.

    BeeAI writes ``{"role", "text"}``, AutoGen ``{"source", "type", "content"}``.
    """
    role, text = role_of(item.get("role")), item.get("text")
    if role is not None:
        is_bare = is_a(text, str) and "content" not in item and "parts" not in item
        return {"role": role, "parts": parts(text)} if is_bare else None
    kind, source = item.get("type"), item.get("source")
    is_sourced = is_a(kind, str) and kind.endswith(_SOURCED) and is_a(source, str) and "content" in item
    return _sourced(kind, source, item["content"]) if is_sourced else None


def _sourced(kind: Any, source: Any, content: Any) -> dict[str, Any]:
    listed = [one for one in content if is_a(one, dict)] if is_a(content, list) else []
    if kind == "ToolCallExecutionEvent":
        answers = [{**one, "tool_call_id": one.get("call_id")} for one in listed]
        return {"role": TOOL, "parts": [response_part(one, one.get("content")) for one in answers]}
    said: Mapping[str, list[dict[str, Any]]] = {
        "ToolCallRequestEvent": list(map(call_part, listed)),
        "ThoughtEvent": [{"type": "reasoning", "content": content}],
    }
    role = USER if role_of(source) == USER else ASSISTANT
    return {"role": role, "name": source, "parts": said[kind] if kind in said else parts(content)}


def call_part(call: Mapping[str, Any]) -> dict[str, Any]:
    """Read a tool call: its name and arguments stand in it, or under ``function``."""
    function = call.get("function")
    named = function if is_a(function, dict) else call
    return {
        "type": "tool_call",
        "id": call.get("id"),
        "name": named.get("name"),
        "arguments": named["args"] if "args" in named else named.get("arguments"),
    }


def response_part(fields: Mapping[str, Any], content: Any) -> dict[str, Any]:
    """Return what a tool answered, of the fields of its message and what it says."""
    failed = {"status": "error"} if fields.get("status") == "error" else {}
    return {"type": "tool_call_response", "id": fields.get("tool_call_id"), "response": joined(content), **failed}

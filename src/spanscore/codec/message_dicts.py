"""A message as a client's dict, ``{"role", "content", "tool_calls"}`` and its kin → a GenAI message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.codec.blocks import joined, parts
from spanscore.codec.messages import TOOL, role_of
from spanscore.model.foreign import is_a

__all__ = ["call_part", "dict_message", "response_part"]


def dict_message(item: dict[str, Any]) -> dict[str, Any]:
    """Read a dict with a role as OpenAI's clients write it, and GenAI's own form as it is."""
    if "parts" in item:
        return item
    role = role_of(item["role"]) or item["role"]
    content = item.get("content")
    if role == TOOL:
        return {"role": TOOL, "parts": [response_part(item, content)]}
    called = item.get("tool_calls")
    calls = [call_part(call) for call in called if is_a(call, dict)] if is_a(called, list) else []
    return {"role": role, "parts": [*parts(content, calls_apart=bool(calls)), *calls]}


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

"""Content blocks, as LangChain and each provider write them → parts of a GenAI message.

Calls of tools and their results stand in blocks of Anthropic (``tool_use``), LangChain (``server_tool_call``), OpenAI
(``function_call``), Vercel (``tool-call``), Bedrock (``{"toolUse": …}``) and Gemini (``{"functionCall": …}``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spanscore.model.foreign import is_a

__all__ = ["as_parts", "joined", "parts", "tool_part"]

_MODALITY = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "input_audio"), "audio"),
    "video": "video",
    **dict.fromkeys(("file", "input_file", "document", "media"), "file"),
}
"""Type of a content block that holds no words → its modality."""
_WORDED = ("text", "content", "page_content")
_CALLS = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta", "invalid_tool_call"}
)
"""Types of content blocks that repeat what stands in ``tool_calls``."""
_CALLED = _CALLS | {"server_tool_use", "mcp_tool_use", "server_tool_call", "custom_tool_call", "tool-call"}
_ANSWERED = ("tool_result", "tool-result", "call_output")
"""Endings of the types of blocks that are results: ``web_search_tool_result``, ``function_call_output``."""
_CALL_IDS = ("call_id", "id", "toolCallId", "toolUseId")
"""The first is OpenAI's, whose ``id`` is that of the output item."""
_ANSWERED_IDS = ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "toolUseId", "id")
_NATIVE = ("text", "tool_call", "tool_call_response", "reasoning")
"""Types of most parts of the conventions."""


def parts(content: Any, *, calls_apart: bool = False) -> list[dict[str, Any]]:
    """Return a message's content as parts; an empty text is no part: a message without any says the empty text.

    Args:
        calls_apart: the message has its tool calls elsewhere, blocks that repeat them are left out.
    """
    if is_a(content, str):
        return [{"type": "text", "content": content}] if content else []
    if is_a(content, dict):  # one block alone: Azure's agents, Gemini's files
        content = [content]
    if not is_a(content, list):
        return []
    blocks = [block for block in content if not (calls_apart and _kind(block) in _CALLS)]
    return [part for block in blocks if (part := _part(block)) is not None]


def joined(content: Any) -> Any:
    """Return blocks that are all words as one text, a marker for each that shows something else; other content as it is."""
    if not is_a(content, list):
        return content
    words = parts(content)
    if words and len(words) == len(content) and all(part["type"] == "text" for part in words):
        return "".join(part["content"] for part in words)
    return [_marker(block) if _shows(block) else block for block in content]


def as_parts(listed: list[Any]) -> list[Any]:
    """Return what a message lists, parts of the conventions or a client's blocks, with calls and results as parts."""
    for part in listed:
        if type(part) is not dict or part.get("type") not in _NATIVE:
            return [(tool_part(part) or part) if type(part) is dict else part for part in listed]
    return listed  # as most are


def tool_part(block: dict[str, Any]) -> dict[str, Any] | None:
    """Return a block that calls a tool, or holds a tool's result, as a part; None for any other."""
    kind = block.get("type")
    if is_a(kind, str):
        if kind in _CALLED:
            return _call(block)
        return _response(block) if kind.endswith(_ANSWERED) else None
    key = next((key for key in _WRAPPED if is_a(block.get(key), dict)), None)
    return None if key is None else _WRAPPED[key](block[key])


def _shows(block: Any) -> bool:
    """Whether a block of a tool's answer is bytes, or says where they lie; a document's words are an answer."""
    if _kind(block) not in _MODALITY:
        return False
    source = block.get("source")
    worded = is_a(source, dict) and source.get("type") in {"text", "content"}
    return not worded and not any(is_a(block.get(key), str) for key in _WORDED)


def _part(block: Any) -> dict[str, Any] | None:
    if is_a(block, str):
        return {"type": "text", "content": block}
    if not is_a(block, dict):
        return None
    kind = _kind(block)
    words = block.get("text", block.get("content" if kind == "text" else "refusal"))
    if is_a(words, dict):  # Azure's agents: {"text": {"value": "…", "annotations": []}}
        words = words.get("value")
    if is_a(words, str) and kind not in _MODALITY:
        return {"type": "reasoning" if block.get("thought") is True else "text", "content": words}
    if kind == "text":  # without its text: some tools answer so
        return None
    read = _BLOCKS.get(kind)
    return (tool_part(block) or {"type": kind}) if read is None else read(block)


def _kind(block: Any) -> str:
    kind = block.get("type") if is_a(block, dict) else None
    return kind if is_a(kind, str) else "generic"


def _marker(block: dict[str, Any]) -> dict[str, Any]:
    """Say what is shown; never the bytes, or where they lie."""
    return {"type": "blob", "modality": _MODALITY[block["type"]]}


def _call(block: dict[str, Any]) -> dict[str, Any]:
    named = {"id": _first(block, _CALL_IDS), "name": _first(block, ("name", "toolName"))}
    return {"type": "tool_call", **named, "arguments": _first(block, ("input", "args", "arguments"))}


def _response(block: dict[str, Any]) -> dict[str, Any]:
    gave = _first(block, ("content", "output", "result", "response"))
    is_wrapped = is_a(gave, dict) and gave.keys() == {"type", "value"}  # Vercel's, since version 5 of its SDK
    response = gave["value"] if is_wrapped else joined(gave)
    return {"type": "tool_call_response", "id": _first(block, _ANSWERED_IDS), "response": response}


def _first(block: dict[str, Any], keys: Sequence[str]) -> Any:
    return next((block[key] for key in keys if key in block), None)


def _search_result(block: dict[str, Any]) -> dict[str, Any]:
    known = {key: block[key] for key in ("source", "title") if is_a(block.get(key), str)}
    return {"type": "search_result", **known, "content": joined(block.get("content"))}


def _reasoning(block: dict[str, Any]) -> dict[str, Any]:
    said = block.get("reasoning", block.get("thinking"))
    if said is None and is_a(block.get("summary"), list):
        said = "".join(part["text"] for part in block["summary"] if is_a(part, dict) and "text" in part)
    return {"type": "reasoning", "content": said or ""}


_BLOCKS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(_MODALITY, _marker),
    "reasoning": _reasoning,
    "thinking": _reasoning,
    "search_result": _search_result,
    "tool_call_response": dict.copy,  # a part already
}
"""Type of a content block → how it is read; calls and results aside."""
_WRAPPED: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(("toolUse", "functionCall", "function_call"), _call),
    **dict.fromkeys(("toolResult", "functionResponse", "function_response"), _response),
}
"""Only key of a block without a type → how the block's value is read."""

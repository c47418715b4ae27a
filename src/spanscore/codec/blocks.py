"""Content blocks, as LangChain and each provider write them → parts of a GenAI message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spanscore.model.foreign import is_a

__all__ = ["joined", "parts"]

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
    words = block.get("text", block.get("refusal"))
    if is_a(words, dict):  # Azure's agents: {"text": {"value": "…", "annotations": []}}
        words = words.get("value")
    if is_a(words, str) and kind not in _MODALITY:
        return {"type": "reasoning" if block.get("thought") is True else "text", "content": words}
    if kind == "text":  # without its text: some tools answer so
        return None
    read = _BLOCKS.get(kind) or next((_GEMINI[key] for key in _GEMINI if is_a(block.get(key), dict)), None)
    return {"type": kind} if read is None else read(block)


def _kind(block: Any) -> str:
    kind = block.get("type") if is_a(block, dict) else None
    return kind if is_a(kind, str) else "generic"


def _marker(block: dict[str, Any]) -> dict[str, Any]:
    """Say what is shown; never the bytes, or where they lie."""
    return {"type": "blob", "modality": _MODALITY[block["type"]]}


def _block_call(block: dict[str, Any]) -> dict[str, Any]:
    arguments = block.get("input", block.get("args", block.get("arguments")))
    return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"), "arguments": arguments}


def _block_response(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": block.get("tool_use_id"), "response": joined(block.get("content"))}


def _reasoning(block: dict[str, Any]) -> dict[str, Any]:
    said = block.get("reasoning", block.get("thinking"))
    if said is None and is_a(block.get("summary"), list):
        said = "".join(part["text"] for part in block["summary"] if is_a(part, dict) and "text" in part)
    return {"type": "reasoning", "content": said or ""}


def _gemini_call(block: dict[str, Any]) -> dict[str, Any]:
    call = block["function_call"]
    return {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}


def _gemini_response(block: dict[str, Any]) -> dict[str, Any]:
    answer = block["function_response"]
    return {"type": "tool_call_response", "id": answer.get("id"), "response": answer.get("response")}


_GEMINI: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "function_call": _gemini_call,
    "function_response": _gemini_response,
}
"""Key of a block of Gemini's, which have no type → how it is read."""
_BLOCKS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(_MODALITY, _marker),
    **dict.fromkeys(_CALLS, _block_call),
    "reasoning": _reasoning,
    "thinking": _reasoning,
    "tool_result": _block_response,
}
"""Type of a content block → how it is read."""

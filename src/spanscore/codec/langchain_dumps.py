"""JSON that LangChain's values were dumped to → the forms our own codec renders them in. Nothing of LangChain is imported.

{"lc": 1, "id": […, "HumanMessage"], "kwargs": {…}}     langchain_core.load.dumps        a message, a document, a prompt
{"type": "human", "data": {…}}                          message_to_dict                  a message
{"type": "human", "content": …, "additional_kwargs"}    model_dump                       a message
{"page_content", "metadata", "type": "Document"}        model_dump                       a document
{"graph", "update", "resume", "goto"}                   asdict                           a LangGraph Command
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from spanscore.codec.blocks import joined, parts
from spanscore.codec.message_dicts import bare_message, call_part, dict_message, response_part
from spanscore.codec.messages import MADE, TOOL, USER, is_message, role_of, text_message
from spanscore.codec.text import MAX_DEPTH

__all__ = ["call_id_in", "documents_of", "message_from", "messages_from", "side", "tool_answer", "unfolded"]

_MESSAGES_KEY: Final = "messages"
_COMMAND: Final = frozenset({"graph", "update", "resume", "goto"})
_SUFFIXES: Final = ("MessageChunk", "Message")
_PAIR: Final = 2
_CALL_ID: Final = re.compile(r'"tool_call_id":\s*"([^"\\]+)"')
"""A text inside of a dump has its quotes escaped."""


def unfolded(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a parsed dump with its messages, documents and commands in the codec's forms; a deeper level is a marker."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    if depth <= 0:
        return {"type": kind.__name__}
    if kind is list:
        return [unfolded(inner, depth - 1) for inner in value]
    fields = _message_fields(value)
    return _unfolded(value, depth) if fields is None else _message(fields)


def _unfolded(value: dict[str, Any], depth: int) -> Any:
    if value.get("lc") == 1 and type(value.get("id")) is list:
        return _constructed(value, depth)
    if value.keys() == _COMMAND:
        return _command(value, depth)
    if value.get("type") == "Document" and type(value.get("page_content")) is str:
        return _document(value)
    if ("source" in value or "text" in value) and (message := bare_message(value)) is not None:
        return message
    return {key: unfolded(inner, depth - 1) for key, inner in value.items()}


def side(value: Any, messages_name: str, value_name: str) -> dict[str, Any]:
    """Return one side of a root, parsed and still folded: a conversation as messages, the rest as a value."""
    shown = unfolded(value)
    if shown is None:
        return {}
    messages = messages_from(shown)
    if messages:
        return {messages_name: messages}
    talk = messages_from(shown.get(_MESSAGES_KEY), loose=True) if type(shown) is dict else []
    if not talk:
        return {value_name: shown}
    rest = {key: inner for key, inner in shown.items() if key != _MESSAGES_KEY}
    return {messages_name: talk, value_name: rest} if rest else {messages_name: talk}


def messages_from(value: Any, *, loose: bool = False) -> list[dict[str, Any]]:
    """Return an unfolded value that is one message or a list of nothing else as messages; ``[]`` for any other.

    Args:
        loose: where a key says so, plain texts are messages too.
    """
    one = message_from(value, loose=loose)
    if one is not None:
        return [one]
    found = [message_from(item, loose=loose) for item in value] if type(value) is list else []
    messages = [message for message in found if message is not None]
    return messages if len(messages) == len(found) else []


def message_from(value: Any, *, loose: bool = False) -> dict[str, Any] | None:
    """Return an unfolded value as a message: a dict with a role, ``["user", text]``, loosely a text; None for any other."""
    if type(value) is str:
        return text_message(USER, value) if loose else None
    if type(value) is list:
        role = role_of(value[0]) if len(value) == _PAIR and type(value[1]) in (str, list) else None
        return None if role is None else {"role": role, "parts": parts(value[1])}
    known = is_message(value) and ("parts" in value or role_of(value["role"]) is not None)
    return dict_message(value) if known else None


def tool_answer(value: Any) -> tuple[Any, list[dict[str, Any]], str | None]:
    """Return what a tool gave back: its words or value, the documents in its artifact (or value), the id of the call."""
    fields = _message_fields(value) if type(value) is dict else None
    if fields is not None and _role(fields) == TOOL:
        return (
            joined(fields.get("content")),
            documents_of(unfolded(fields.get("artifact"))),
            _text(fields, "tool_call_id"),
        )
    if type(value) is dict and value.keys() == _COMMAND:
        return _command_answer(value)
    shown = unfolded(value)
    return shown, documents_of(shown), None


def call_id_in(dump: Any) -> str | None:
    """Return the id of the call that the dump of a tool's message answers, unparsed; None of anything else."""
    found = _CALL_ID.search(dump) if isinstance(dump, str) else None
    return found[1] if found else None


def documents_of(value: Any, depth: int = 3) -> list[dict[str, Any]]:
    """Return the documents that an unfolded value is or holds, as ``gen_ai.retrieval.documents`` has them.

    An empty page keeps LangChain's name for its text: an empty ``content`` means that the text is unknown.
    """
    if type(value) is dict and type(value.get("page_content")) is str:
        known = {"id": value.get("id"), "content" if value["page_content"] else "page_content": value["page_content"]}
        return [{key: inner for key, inner in known.items() if inner is not None}]
    if depth <= 0 or is_message(value):
        return []
    inside = value.values() if type(value) is dict else value if type(value) is list else ()
    return [found for inner in inside for found in documents_of(inner, depth - 1)]


def _message_fields(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fields of a dumped message, its ``type`` among them; None for anything else."""
    if value.get("lc") == 1:
        return _loadable_fields(value)
    kind, data = value.get("type"), value.get("data")
    if type(kind) is not str:
        return None
    if type(data) is dict and "content" in data and len(value) == _PAIR:
        return {**data, "type": kind}
    return value if "content" in value and "additional_kwargs" in value else None


def _loadable_fields(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    named, fields = value.get("id"), value.get("kwargs")
    name = named[-1] if type(named) is list and named else None
    if type(name) is not str or not name.endswith(_SUFFIXES) or type(fields) is not dict:
        return None
    return fields if type(fields.get("type")) is str else {**fields, "type": name}


def _role(fields: Mapping[str, Any]) -> str:
    kind: str = fields["type"]
    kind = next((kind.removesuffix(suffix) for suffix in _SUFFIXES if kind.endswith(suffix)), kind).lower()
    said = fields.get("role")
    return role_of(kind) or (said if type(said) is str else kind)


def _message(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    role = _role(fields)
    if role == "remove":
        return None
    named, content = _named(fields, role), fields.get("content")
    if role == TOOL:
        return {"role": TOOL, "parts": [response_part(fields, content)], **named}
    listed = fields.get("tool_calls")
    calls = [call_part(call) for call in listed if type(call) is dict] if type(listed) is list else []
    return {"role": role_of(role) or role, "parts": [*parts(content, calls_apart=bool(calls)), *calls], **named}


def _named(fields: Mapping[str, Any], role: str) -> dict[str, Any]:
    more = fields.get("additional_kwargs")
    made = _text(more, MADE) if type(more) is dict else None
    shown = {"name": _text(fields, "name"), MADE: made, "id": _text(fields, "id") if role == USER else None}
    return {key: value for key, value in shown.items() if value}


def _text(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    return value if type(value) is str else None


def _constructed(value: Mapping[str, Any], depth: int) -> Any:
    """Unfold what ``langchain_core.load`` dumped and is no message: what is unknown shows its class's name."""
    named, fields = value["id"], value.get("kwargs")
    if type(fields) is dict:
        if type(fields.get("page_content")) is str:
            return _document(fields)
        if type(fields.get(_MESSAGES_KEY)) is list:  # a prompt
            return unfolded(fields[_MESSAGES_KEY], depth - 1)
    return {"type": named[-1] if named and type(named[-1]) is str else "object"}


def _document(fields: Mapping[str, Any]) -> dict[str, Any]:
    metadata = fields.get("metadata")
    return {
        "page_content": fields["page_content"],
        "id": fields.get("id"),
        "metadata": metadata if type(metadata) is dict else {},
    }


def _command(value: Mapping[str, Any], depth: int) -> dict[str, Any]:
    known = ((name, value[name]) for name in ("resume", "update", "goto"))
    return {"type": "Command", **{name: unfolded(inner, depth - 1) for name, inner in known if inner not in (None, [])}}


def _command_answer(value: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]], str | None]:
    update = value["update"]
    listed = update.get(_MESSAGES_KEY) if type(update) is dict else None
    answers = [tool_answer(one) for one in (listed if type(listed) is list else ()) if _is_tool_message(one)]
    if not answers:
        return unfolded(value), [], None
    results = [result for result, _, _ in answers]
    documents = [document for _, found, _ in answers for document in found]
    return results[0] if len(results) == 1 else results, documents, answers[0][2]


def _is_tool_message(value: Any) -> bool:
    fields = _message_fields(value) if type(value) is dict else None
    return fields is not None and _role(fields) == TOOL

"""Snapshots → messages in GenAI form and JSON-able values. Never raises for what a payload holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from spanscore.codec import snapshot_types as types
from spanscore.codec.blocks import parts
from spanscore.codec.message_dicts import call_part, dict_message, response_part
from spanscore.codec.messages import ASSISTANT, MADE, SYSTEM, TOOL, USER, is_message, role_of, text_message
from spanscore.codec.snapshot import snapshot
from spanscore.codec.text import MAX_CHARS, Special, jsonable, safe_text
from spanscore.model.foreign import is_a

__all__ = ["is_spoken", "render_messages", "render_value", "spoken"]

MAX_MESSAGES = 2_000
"""Of a longer conversation the last ones are rendered."""
_SPEAKERS: Mapping[type, str] = {HumanMessage: USER, AIMessage: ASSISTANT, SystemMessage: SYSTEM, ToolMessage: TOOL}
_AROUND_PARTS: Final = 2
"""Levels of a message that are around its parts."""


def render_messages(value: Any) -> list[dict[str, Any]]:
    """Return a snapshot of messages, of one message or of a prompt as GenAI messages; ``[]`` where it is none.

    What is no message (``RemoveMessage``, an unknown object) is left out; of very many, the last ones are kept.
    """
    rendered = (_of_words(item) or jsonable(_Spoken((item,)), _UNFOLD) for item in spoken(value)[-MAX_MESSAGES:])
    return [message for message in rendered if is_message(message)]


def render_value(value: Any) -> Any:
    """Return a snapshot as a JSON-able value: documents, messages and commands in their forms. Never raises."""
    return jsonable(value, _UNFOLD)


def is_spoken(value: Any) -> bool:
    """Whether a value is one message: a snapshot of one, ``("user", text)`` or ``{"role", "content"}``."""
    if is_a(value, types.MessageSnapshot, BaseMessage):
        return True
    if type(value) is tuple or type(value) is list:
        return len(value) == 2 and role_of(value[0]) is not None and is_a(value[1], str, list)  # noqa: PLR2004
    return is_message(value) and role_of(value["role"]) is not None


def spoken(value: Any) -> Sequence[Any]:
    """Return the single messages of a snapshot, each still to be rendered."""
    if is_a(value, types.ThreadSnapshot):
        return [types.MessageSnapshot(row) for row in zip(*value, strict=True)]
    if is_a(value, types.PromptSnapshot):
        return spoken(value[0])
    if is_a(value, list, tuple) and not is_spoken(value):
        return value
    return [value]


def _of_words(item: Any) -> dict[str, Any] | None:
    """Return a message that says a text, with the calls it makes, as most do, in a fraction of the time; None for any other."""
    if type(item) is not types.MessageSnapshot:
        return None
    message, content, rest = item
    role = _SPEAKERS.get(type(message))
    if role is None or type(content) is not str or len(content) > MAX_CHARS or MADE in message.additional_kwargs:
        return None
    return _answer_of_words(message, content) if role is TOOL else _said_in_words(role, message, content, rest)


def _said_in_words(role: str, message: Any, content: str, calls: Any) -> dict[str, Any] | None:
    if message.name or not (content or calls):
        return None
    said = text_message(role, safe_text(content)) if content else {"role": role, "parts": []}
    if calls:
        said["parts"] += jsonable([call_part(call) for call in calls], _UNFOLD, within=_AROUND_PARTS)
    return said if role is not USER or not message.id else {**said, "id": message.id}


def _answer_of_words(message: ToolMessage, content: str) -> dict[str, Any] | None:
    name, identity = message.name, message.tool_call_id
    if type(identity) is not str or not (name is None or type(name) is str):
        return None
    part = response_part({"tool_call_id": safe_text(identity), "status": message.status}, safe_text(content))
    return {"role": TOOL, "parts": [part], **({"name": safe_text(name)} if name else {})}


def _message(item: Any) -> dict[str, Any] | None:
    """Return one message in GenAI form; None for what is no message (``RemoveMessage``, an unknown object)."""
    if is_a(item, types.MessageSnapshot):
        return _snapshot_message(*item)
    if is_a(item, BaseMessage):
        return _message(snapshot(item))
    if is_a(item, str):
        return text_message(USER, item)
    if not is_spoken(item):
        return None
    if is_a(item, dict):
        return dict_message(item)
    return {"role": role_of(item[0]), "parts": parts(item[1])}


def _snapshot_message(message: Any, content: Any, rest: Any) -> dict[str, Any] | None:
    fields = _fields_of(message)
    kind = fields["type"].removesuffix("MessageChunk")
    if kind == "remove":
        return None
    role = role_of(kind) or fields.get("role", kind)
    named = _named(fields, is_human=is_a(message, HumanMessage))
    if role == TOOL:
        return {"role": TOOL, "parts": [response_part(fields, content)], **named}
    calls = [call_part(call) for call in rest or ()]
    said = parts(content, calls_apart=bool(calls))
    return {"role": role_of(role) or role, "parts": [*said, *calls], **named}


_fields_of: Callable[[BaseModel], dict[str, Any]] = BaseModel.__dict__["__dict__"].__get__
"""What a message holds, also one of the application's own class: no property of that runs."""


def _named(fields: Mapping[str, Any], *, is_human: bool) -> dict[str, Any]:
    """Return whose message it is: its speaker's name, the middleware that made it, and a human's id, which threads give."""
    made = fields["additional_kwargs"].get(MADE)
    shown = {"name": fields["name"], MADE: made if is_a(made, str) else None, "id": fields["id"] if is_human else None}
    return {key: value for key, value in shown.items() if value}


class _Spoken(types.Snapshot):
    """(what shall be read as a message,): asks ``jsonable`` to."""

    __slots__ = ()


def _unfold_messages(value: types.ThreadSnapshot | types.PromptSnapshot) -> list[Any]:
    return [_Spoken((item,)) for item in spoken(value)]


def _unfold_document(document: types.DocumentSnapshot) -> dict[str, Any]:
    text, identity, metadata = document
    plain = {key: value for key, value in metadata.items() if value is None or type(value) in (str, int, float, bool)}
    return {"page_content": text, "id": identity, "metadata": plain}


def _unfold_command(command: types.CommandSnapshot) -> dict[str, Any]:
    named = zip(("resume", "update", "goto"), command, strict=True)
    return {"type": "Command", **{name: value for name, value in named if value is not None and value != ()}}


_UNFOLD: Mapping[type, Special] = {
    _Spoken: lambda spoken: _message(spoken[0]),
    types.ThreadSnapshot: _unfold_messages,
    types.MessageSnapshot: _message,
    types.PromptSnapshot: _unfold_messages,
    types.DocumentSnapshot: _unfold_document,
    types.CommandSnapshot: _unfold_command,
    types.Opaque: lambda opaque: {"type": opaque[0]},
    **dict.fromkeys((BaseMessage, Document), snapshot),  # deeper in its snapshot than copies go
}

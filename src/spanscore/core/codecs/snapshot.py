"""Takes snapshots of live LangChain values, which later edits cannot change, and estimates their size.

Everything here runs on the application's thread, so it is written for speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import getattr_static
from itertools import islice
from types import MemberDescriptorType
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from pydantic import BaseModel

from spanscore.core.codecs.messages import MADE_BY
from spanscore.core.codecs.text import plain_dict
from spanscore.core.log import bases_of, class_name, defines, is_a, module_of, type_name

# --- snapshot types -------------------------------------------------------------------------------------------------


class Snapshot(tuple[Any, ...]):
    """The parts of a known object that are needed for rendering. A tuple, because an ``__init__`` would triple the cost.

    A subclass of tuple, because ``("user", "text")`` is a plain tuple.
    """

    __slots__ = ()


class MessageSnapshot(Snapshot):
    """(message, content, rest): rest is the tool calls of an assistant, the artifact of a tool, otherwise None."""

    __slots__ = ()


class ThreadSnapshot(Snapshot):
    """(messages, their contents, their tool calls): a list of messages by columns, at half the cost of a row each."""

    __slots__ = ()


class DocumentSnapshot(Snapshot):
    """(page_content, id, metadata)."""

    __slots__ = ()


class PromptSnapshot(Snapshot):
    """(messages or one text,)."""

    __slots__ = ()


class CommandSnapshot(Snapshot):
    """(resume, update, goto) of a LangGraph ``Command``."""

    __slots__ = ()


class GenerationSnapshot(Snapshot):
    """(choices, llm_output)."""

    __slots__ = ()


class ChoiceSnapshot(Snapshot):
    """(message, text or None, id, usage_metadata, response_metadata, generation_info)."""

    __slots__ = ()


class Opaque(Snapshot):
    """(name of the type,): an object of an unknown type. The object itself is released."""

    __slots__ = ()


# --- size -----------------------------------------------------------------------------------------------------------

# A thread of spanscore measures a unit's content exactly (``content_size``), in up to 10 ms. The estimate here reads only a few
# elements of a long list, and counts a text once that several runs of a unit share.

_DEPTH = 5
"""Depth of the bytes of an image in a state: the list of messages, with blocks of content."""
_FEW = 8
"""Number of elements that are read of a longer list."""
_LONG = 1_000
"""A text of fewer characters is counted at each occurrence, because remembering it costs more memory than the text."""


def estimate_size(snapshot: Any, counted: set[int], depth: int = _DEPTH) -> int:
    """Return the approximate bytes of text in a snapshot; texts below ``depth`` levels do not count. Takes 0.3 to 5 µs.

    ``counted`` has the ids of long texts that are counted already; those of this snapshot are added.
    """
    kind = type(snapshot)
    if kind is str:
        return _length(snapshot, counted)
    choose = _ELEMENTS.get(kind)
    if choose is None or not depth:
        return 0
    elements, factor = choose(snapshot)
    total = 0
    for element in elements:
        total += _length(element, counted) if type(element) is str else estimate_size(element, counted, depth - 1)
    return total * factor


def _length(text: str, counted: set[int]) -> int:
    length = len(text)
    if length > _LONG:
        if id(text) in counted:
            return 0
        counted.add(id(text))
    return length


def _items(items: Any) -> tuple[Collection[Any], int]:
    if len(items) <= _FEW:
        return items, 1
    step = len(items) // _FEW
    return items[::step], step


_ELEMENTS: Mapping[type, Callable[[Any], tuple[Collection[Any], int]]] = {
    list: _items,
    tuple: _items,
    dict: lambda entries: (tuple(islice(entries.values(), 4 * _FEW)), 1),
    ThreadSnapshot: lambda thread: _items(thread[1]),
    MessageSnapshot: lambda message: (message[1:], 1),
    PromptSnapshot: lambda prompt: (prompt, 1),
    DocumentSnapshot: lambda document: (document[:1], 1),
    CommandSnapshot: lambda command: (command, 1),
    GenerationSnapshot: lambda generation: (generation[0], 1),
    ChoiceSnapshot: lambda choice: (choice[:1], 1),
}
"""Type → function from a value to its elements that are read, and the factor for their size."""


# --- snapshot -------------------------------------------------------------------------------------------------------

# An application edits the values that it passed: 14 of 21 references had changed shortly after ``invoke`` returned. Copying
# everything is too slow for a request's path. So texts and other immutable values are shared, containers are copied as deep
# as applications edit them, and everything else is dropped:
#
#     level 0   the value: a dict, a list …                  copied, its values one by one
#     level 1   the lists and dicts in it                    copied, their values one by one
#     level 2   the lists and dicts in those                 copied, their values shared
#     anywhere  a message, a document, a prompt, a Command   a ``Snapshot`` tuple of the parts for rendering
#               an object of an unknown type                 ``Opaque``: its type's name
#
# No code of the application runs here: no ``repr``, no ``__iter__``, no ``__getattr__``, no JSON. Rendering is in
# ``langchain.py``, on a thread of spanscore, for sampled units only.

MAX_ITEMS = 1_000
"""Longer lists and dicts are copied in one step, with their elements shared: 1,000 look-ups take about 0.1 ms."""
MANY_NUMBERS = 32
"""Longer lists that begin with a number are vectors: copied in one step, with their elements shared."""

Copier = Callable[[Any], Any]
"""A live value → its kept parts."""


def snapshot(value: Any) -> Any:
    """Return the present state of a chain's input or output; ``Opaque`` if that is impossible. Never raises."""
    try:
        return _OUTER[type(value)](value)
    except Exception:  # noqa: BLE001 - a foreign object may raise anything; the application must go on
        return Opaque((type_name(value),))


def last_human(value: Any) -> MessageSnapshot | None:
    """Return the last human message of a graph's state; None for another value, or without such a message. Never raises."""
    messages = value.get("messages") if type(value) is dict else None
    if type(messages) is not list:
        return None
    for message in reversed(messages):
        if type(message) is HumanMessage and MADE_BY not in message.additional_kwargs:
            return _message(message)
    return None


def snapshot_messages(messages: Sequence[Sequence[BaseMessage]]) -> Any:
    """Return the messages of a chat model's call, from ``on_chat_model_start`` (one list per prompt). Never raises."""
    try:
        if len(messages) == 1:
            return [_copy_items(list(messages[0]), _LEAF)]
        return [_copy_items(list(prompt), _LEAF) for prompt in messages]
    except Exception:  # noqa: BLE001 - a foreign object may raise anything; the application must go on
        return Opaque((type_name(messages),))


def snapshot_generation(result: LLMResult, *, content: bool = True) -> Any:
    """Return a model's answer; without ``content`` only usage, model, id and finish reason. Never raises."""
    try:
        choices = tuple(_choice(g, content) for prompt in result.generations for g in prompt)
        return GenerationSnapshot((choices, _copy(result.llm_output)))
    except Exception:  # noqa: BLE001 - a foreign object may raise anything; the application must go on
        return Opaque((type_name(result),))


def snapshot_tool_output(output: Any) -> Any:
    """Return a tool's output: a message with its artifact, a Command, or any value. Never raises."""
    try:
        if type(output) is ToolMessage:
            return _tool_result(output)
        if _is_command(type(output)):
            return _command(output, with_artifacts=True)
        if type(output) is list:
            return [snapshot_tool_output(item) for item in output[:MAX_ITEMS]]
    except Exception:  # noqa: BLE001 - a foreign object may raise anything; the application must go on
        return Opaque((type_name(output),))
    return snapshot(output)


# The snapshot of a message keeps the message itself, for the parts that applications do not edit (class, name, tool_call_id),
# and copies of content and calls.


def _message(message: Any) -> MessageSnapshot:
    content = message.content
    return MessageSnapshot((message, content if type(content) is str else _blocks(content), None))


def _thread(messages: list[Any]) -> ThreadSnapshot:
    contents = [message.content for message in messages]
    if not _TEXT.issuperset(map(type, contents)):
        contents = [content if type(content) is str else _blocks(content) for content in contents]
    calls = [
        [_tool_call(call) for call in message.tool_calls] if type(message) in _CALLERS and message.tool_calls else None
        for message in messages
    ]
    return ThreadSnapshot((messages, contents, calls))


def _assistant(message: Any) -> MessageSnapshot:
    content, calls = message.content, message.tool_calls
    copy = content if type(content) is str else _blocks(content)
    return MessageSnapshot((message, copy, [_tool_call(call) for call in calls] if calls else None))


def _tool_result(message: Any) -> MessageSnapshot:
    """Copy a tool's own output, with its artifact. Other snapshots have no artifacts: a history would repeat each of them."""
    artifact = message.artifact
    copy = None if artifact is None else snapshot(artifact)
    content = message.content
    return MessageSnapshot((message, content if type(content) is str else _blocks(content), copy))


def _blocks(content: Any) -> Any:
    return [_copy(block) for block in content] if is_a(content, list) else snapshot(content)


def _tool_call(call: Any) -> Any:
    copy = dict.copy(call)
    copy["args"] = _copy(copy.get("args"))
    return copy


def _copy(value: Any) -> Any:
    """Copy a list or dict, and share its values."""
    if value is None:  # most values are
        return None
    kind = type(value)
    if kind is dict or kind is list:
        return value.copy()
    if is_a(value, dict):
        return plain_dict(value)
    return list.copy(value) if is_a(value, list) else value


def _document(document: Any) -> DocumentSnapshot:
    fields = document.__dict__
    return DocumentSnapshot((fields["page_content"], fields["id"], fields["metadata"].copy()))


def _choice(generation: Any, content: bool) -> ChoiceSnapshot:
    info = _copy(generation.generation_info)
    message = getattr(generation, "message", None)
    if message is None:
        return ChoiceSnapshot((generation.text if content else None, None, None, None, info))
    fields = message.__dict__
    return ChoiceSnapshot(
        (
            _LEAF[type(message)](message) if content else None,
            fields["id"],
            _copy(fields.get("usage_metadata")),
            _copy(fields["response_metadata"]),
            info,
        )
    )


def _is_command(kind: type) -> bool:
    # Compared by name, so that langgraph is never imported.
    return class_name(kind) == "Command" and module_of(kind) == "langgraph.types"


def _command(command: Any, *, with_artifacts: bool = False) -> CommandSnapshot:
    fields = _dataclass_fields(command)
    live = fields.get("update")
    update = snapshot(live)
    if with_artifacts and type(live) is dict and type(live.get("messages")) is list:
        update["messages"] = snapshot_tool_output(live["messages"])
    return CommandSnapshot((snapshot(fields.get("resume")), update, snapshot(fields.get("goto"))))


def _copy_items(values: list[Any], copiers: _Copiers) -> Any:
    if len(values) > MAX_ITEMS or (len(values) > MANY_NUMBERS and type(values[0]) in _NUMBERS):
        return values
    try:
        if values and _MESSAGES.issuperset(map(type, values)):
            return _thread(values)
        return [copiers[type(value)](value) for value in values]
    except Exception:  # noqa: BLE001 - a half-built object must not lose its neighbours
        return [_or_opaque(copiers, value) for value in values]


def _entries(values: dict[Any, Any], copiers: _Copiers) -> dict[Any, Any]:
    if len(values) > MAX_ITEMS:
        return values
    try:
        return {key: copiers[type(value)](value) for key, value in values.items()}
    except Exception:  # noqa: BLE001 - a half-built object must not lose its neighbours
        return {key: _or_opaque(copiers, value) for key, value in values.items()}


def _or_opaque(copiers: _Copiers, value: Any) -> Any:
    try:
        return copiers[type(value)](value)
    except Exception:  # noqa: BLE001 - a half-built object must not lose its neighbours
        return _opaque(value)


def _opaque(value: Any) -> Opaque:
    return Opaque((type_name(value),))


class _Copiers(dict[type, Copier]):
    """Type → copier of its values, subclasses included.

    Walks the base classes: ``isinstance`` on a pydantic class reads attributes of the *object*, which runs its ``__getattr__``.
    Caches nothing, because an application may create classes without end.
    """

    __slots__ = ()

    def __missing__(self, kind: type) -> Copier:
        for base in bases_of(kind):
            copier = self.get(base)
            if copier is not None:
                return copier
        if _is_command(kind):
            return _command
        return self[_Fields] if defines(kind, "__dataclass_fields__") else _opaque


class _Fields:
    """Key for every dataclass in a table of copiers."""


def _dataclass_fields(value: Any) -> dict[str, Any]:
    """Return the stored fields; computed fields and fields loaded on access (as in SQLAlchemy) are left out."""
    kind = type(value)
    fields = kind.__dataclass_fields__
    if not kind.__dictoffset__:  # only slots, which store values
        return {name: getattr(value, name) for name in fields if hasattr(value, name)}
    stored = value.__dict__
    if stored.keys() == fields.keys():
        return dict.copy(stored)
    return {name: stored[name] for name in fields if name in stored} | _read_slots(value, fields.keys() - stored)


def _read_slots(value: Any, names: set[str]) -> dict[str, Any]:
    """Return the values in slots and on the class of an object that also has a ``__dict__``; no descriptor runs code."""
    members = {name: getattr_static(type(value), name, None) for name in names}
    return {
        name: getattr(value, name)
        for name, member in members.items()
        if (type(member) is MemberDescriptorType or not hasattr(type(member), "__get__"))
        and member is not None
        and hasattr(value, name)
    }


def _table(inner: _Copiers | None) -> _Copiers:
    """Build the copiers of one level; None = the last level, whose containers share their values."""

    def entries(values: dict[Any, Any]) -> dict[Any, Any]:
        return values if inner is None else _entries(values, inner)

    def items(values: list[Any]) -> Any:
        return values if inner is None else _copy_items(values, inner)

    def whole_tuple(value: Any) -> Any:
        copies = items(list(tuple.__iter__(value)))
        return tuple(copies) if type(copies) is list else copies

    copiers: dict[type, Copier] = {
        **dict.fromkeys(_UNCHANGEABLE, lambda value: value),
        dict: lambda value: entries(plain_dict(value)),
        list: lambda value: items(list.copy(value)),
        tuple: whole_tuple,
        set: lambda value: items(list(set.__iter__(value))),
        frozenset: lambda value: items(list(frozenset.__iter__(value))),
        deque: lambda value: items(list(deque.__iter__(value))),
        BaseModel: lambda value: entries(dict.copy(value.__dict__)),
        _Fields: lambda value: entries(_dataclass_fields(value)),
        **_LANGCHAIN,
    }
    return _Copiers(copiers)


_UNCHANGEABLE: tuple[type, ...] = (
    *(str, int, float, bool, type(None), bytes),
    *(Enum, UUID, Decimal, datetime, date, time, timedelta),
    Snapshot,
)
_NUMBERS = frozenset({int, float})
_LANGCHAIN: Mapping[type, Copier] = {
    **dict.fromkeys((HumanMessage, HumanMessageChunk, SystemMessage, SystemMessageChunk), _message),
    **dict.fromkeys((AIMessage, AIMessageChunk), _assistant),
    **dict.fromkeys((ToolMessage, ToolMessageChunk), _message),
    **dict.fromkeys((ChatMessage, FunctionMessage, RemoveMessage, BaseMessage), _message),
    Document: _document,
    ChatPromptValue: lambda prompt: PromptSnapshot((_copy_items(list(prompt.__dict__["messages"]), _LEAF),)),
    StringPromptValue: lambda prompt: PromptSnapshot((prompt.__dict__["text"],)),
}
_TEXT = frozenset({str})
_CALLERS = frozenset({AIMessage, AIMessageChunk})
_MESSAGES = frozenset(kind for kind in _LANGCHAIN if issubclass(kind, BaseMessage))
_LEAF: _Copiers = _table(None)
_INNER = _table(_LEAF)
_OUTER = _table(_INNER)

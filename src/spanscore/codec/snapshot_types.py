"""What a snapshot is made of: a tuple for each kind of LangChain's objects, with what rendering needs of it."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ChoiceSnapshot",
    "CommandSnapshot",
    "DocumentSnapshot",
    "GenerationSnapshot",
    "MessageSnapshot",
    "Opaque",
    "PromptSnapshot",
    "Snapshot",
    "ThreadSnapshot",
]


class Snapshot(tuple[Any, ...]):
    """What is kept of a known object. A tuple: an ``__init__`` would triple the cost.

    Never a *plain* tuple, which ``("user", "text")`` is.
    """

    __slots__ = ()


class MessageSnapshot(Snapshot):
    """(message, content, rest): rest = tool calls of an assistant, artifact of a tool, else None."""

    __slots__ = ()


class ThreadSnapshot(Snapshot):
    """(messages, their contents, their tool calls): a list of messages by columns, half the cost of a row each."""

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
    """(name of the type,): an object of a type we do not know. The object itself is let go."""

    __slots__ = ()

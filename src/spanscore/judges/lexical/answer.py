"""What an answer of the lexical judge is: a function of the prompt alone. The families of them stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from spanscore.core.prompt import Prompt

__all__ = ["LexicalAnswer", "messages_in", "said_in", "text_in"]

LexicalAnswer: TypeAlias = Callable[[Prompt], Mapping[str, Any]]
"""Prompt → the fields of the answer. Pure: the same prompt always gets the same answer."""


def text_in(prompt: Prompt, name: str) -> str:
    """Return a text of a prompt's evidence, a list of texts joined by line breaks; empty where there is none."""
    value = prompt.evidence.get(name, "")
    if messages := messages_in(prompt, name):
        return "\n".join(map(said_in, messages))
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def messages_in(prompt: Prompt, name: str) -> list[Mapping[str, Any]]:
    """Return a conversation of a prompt's evidence; empty where there is none."""
    value = prompt.evidence.get(name)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def said_in(message: Mapping[str, Any]) -> str:
    """Return what a message says and which tools it calls."""
    calls = (f"{call['name']}: {call['args']}" for call in message.get("tool_calls", ()))
    return "\n".join([*filter(None, [message.get("content")]), *calls])

"""What an answer of the lexical judge is: a function of the prompt alone. The families of them stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from spanscore.model.prompt import Prompt

__all__ = ["LexicalAnswer", "text_in"]

LexicalAnswer: TypeAlias = Callable[[Prompt], Mapping[str, Any]]
"""Prompt → the fields of the answer. Pure: the same prompt always gets the same answer."""


def text_in(prompt: Prompt, name: str) -> str:
    """Return a text of a prompt's evidence, a list of texts joined by line breaks; empty where there is none."""
    value = prompt.evidence.get(name, "")
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

"""A text, and a question → about how many tokens it is, before it is sent."""

from __future__ import annotations

from math import ceil
from typing import Final

from spanscore.core.prompt import Prompt
from spanscore.judges.render import render
from spanscore.judges.tiktoken_count import loaded_counter

__all__ = ["BYTES_PER_TOKEN", "bytes_of", "estimate", "question_tokens"]

BYTES_PER_TOKEN: Final = 3.5
"""Where no tokenizer is here: English prose has 4 to 5, JSON and code fewer, a Chinese character is three."""
_LONGEST: Final = 50_000
"""Characters that are counted by a tokenizer, at some 2 ms: the loop has other questions, too."""


def bytes_of(text: str) -> int:
    """Return how many bytes a text has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def estimate(text: str) -> int:
    """Return about how many tokens a text has. By its bytes, which hold for any script: one of Chinese is worth a word."""
    return ceil(bytes_of(text) / BYTES_PER_TOKEN)


def question_tokens(prompt: Prompt, model: str = "") -> int:
    """Return about how many tokens a model reads of a question: by its tokenizer where that is loaded, else by the bytes."""
    text = "\n".join(render(prompt))
    count = loaded_counter(model) if len(text) <= _LONGEST else None
    return estimate(text) if count is None else count(text)

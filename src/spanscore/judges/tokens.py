"""A question → about how many tokens it is, before it is sent."""

from __future__ import annotations

from typing import Final

from spanscore.judges.render import render
from spanscore.model.prompt import Prompt

__all__ = ["question_tokens"]

_CHARACTERS: Final = 3.5
"""Characters of a token where no tokenizer is here: English prose has 4 to 5, JSON and code fewer."""


def question_tokens(prompt: Prompt, model: str) -> int:
    """Return about how many tokens a model reads of a question."""
    rendered = render(prompt)
    return round((len(rendered.system) + len(rendered.user)) / _CHARACTERS) + 1

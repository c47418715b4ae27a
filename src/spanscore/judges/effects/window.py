"""So many tokens in one question, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.effect import Effect
from spanscore.protocols import Judge

__all__ = ["Windowed"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Windowed(Effect):
    """A judge that tells how many tokens a question to it may have: what is longer is cut before it is asked (``fit.py``)."""

    judge: Judge
    most: int

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ConfigurationError(f"max_input_tokens is {self.most}; it must be 1 or more")

    @property
    def max_input_tokens(self) -> int:
        """What it was given."""
        return self.most

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask."""
        return await self.judge.ask(prompt)

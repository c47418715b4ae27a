"""A deadline for every question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError, JudgeTimeout
from spanscore.judges.effects.effect import Effect
from spanscore.judges.record import TOLD
from spanscore.protocols import Judge

__all__ = ["Timed"]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Timed(Effect):
    """A judge that answers within ``timeout_s`` seconds or raises JudgeTimeout.

    The late question is cancelled and left behind: ``asyncio.wait_for`` would wait for a call that swallows its
    cancellation, and hang with it.
    """

    judge: Judge
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ConfigurationError(f"timeout is {self.timeout_s}; it must be a positive number of seconds")

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask in a task of its own, and give up on it at the deadline."""
        question = asyncio.ensure_future(self.judge.ask(prompt))
        try:
            done, _ = await asyncio.wait({question}, timeout=self.timeout_s)
        except asyncio.CancelledError:
            _abandon(question)
            raise
        if not done:
            _abandon(question, TOLD)
            raise JudgeTimeout(f"{prompt.step}: no answer from {self.model} within {self.timeout_s:g} s")
        return question.result()


def _abandon(question: asyncio.Future[Reply], why: str | None = None) -> None:
    question.cancel(why)
    # What it raises is fetched: else asyncio prints that it was never retrieved.
    question.add_done_callback(lambda late: late.cancelled() or late.exception())

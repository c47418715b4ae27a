"""Asked again, when that may help."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError, JudgeTimeout, JudgeUnavailable
from spanscore.judges.effects.effect import Effect
from spanscore.judges.record import failed_call, record
from spanscore.protocols import Judge

if TYPE_CHECKING:
    import tenacity

__all__ = ["Retrying"]

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
"""A judge that asks us to stay away for longer has failed as far as one score is concerned."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Retrying(Effect):
    """A judge that is asked again when asking again may help: it was unavailable, or late.

    Other errors (a wrong key, an unreadable answer) are raised at once. Waits double from half a second, with full jitter;
    a longer ``Retry-After`` is honoured, and one of more than a minute ends the attempts.

    Attributes:
        max_attempts: the first one included.
        sleep: seconds → wait; for tests.
    """

    judge: Judge
    max_attempts: int = 3
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigurationError(f"max_attempts is {self.max_attempts}; it must be 1 or more")

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask up to ``max_attempts`` times; attempts that were given up are recorded as calls of their own."""
        import tenacity

        started = 0.0

        async def attempt() -> Reply:
            nonlocal started
            started = time.perf_counter()
            return await self.judge.ask(prompt)

        def passed_over(state: tenacity.RetryCallState) -> None:
            record(failed_call(prompt, self.model, _raised(state), time.perf_counter() - started))

        retrying = tenacity.AsyncRetrying(
            sleep=self.sleep,
            stop=tenacity.stop_after_attempt(self.max_attempts),
            retry=tenacity.retry_if_exception(_may_pass),
            wait=_wait_s,
            before_sleep=passed_over,
            reraise=True,
        )
        reply: Reply = await retrying(attempt)
        return reply


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, JudgeUnavailable | JudgeTimeout) and (error.retry_after_s or 0.0) <= _LONGEST_WAIT_S


def _wait_s(state: tenacity.RetryCallState) -> float:
    """Return a random share of 0.5, 1, 2 … s, so that callers turned away together do not come back together."""
    longest = min(_FIRST_WAIT_S * 2 ** (state.attempt_number - 1), _LONGEST_WAIT_S)
    asked_s = getattr(_raised(state), "retry_after_s", None) or 0.0
    return asked_s + random.uniform(0.0, longest)


def _raised(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None

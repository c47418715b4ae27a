"""Three effects around any judge: at most so many at once, at most so long each, again when that may help.

    Retrying(Limited(Timed(judge)))

The order matters: a question that waits for its place is not on the clock yet, and one that waits to be asked again
holds no place.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spanscore.errors import ConfigurationError, JudgeTimeout, JudgeUnavailable
from spanscore.judges.record import record
from spanscore.model.prompt import Prompt, Reply
from spanscore.model.score import JudgeCall
from spanscore.protocols import Judge

if TYPE_CHECKING:
    import tenacity

__all__ = ["Limited", "Retrying", "Timed"]

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
"""A judge that asks us to stay away for longer has failed as far as one score is concerned."""


@dataclass(slots=True, weakref_slot=True)
class Limited:
    """A judge that is asked at most ``max_concurrency`` questions at once; the others wait their turn."""

    judge: Judge
    max_concurrency: int = 16
    _places: asyncio.Semaphore | None = field(default=None, init=False, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max_concurrency < 1:
            raise ConfigurationError(f"max_concurrency is {self.max_concurrency}; it must be 1 or more")

    @property
    def model(self) -> str:
        """The wrapped judge's model."""
        return self.judge.model

    async def ask(self, prompt: Prompt) -> Reply:
        """Wait for a place, then ask."""
        async with self._semaphore():
            return await self.judge.ask(prompt)

    def _semaphore(self) -> asyncio.Semaphore:
        # Made anew on another loop: a forked child inherits a count of places its parent's questions hold, and a contended
        # semaphore raises on a loop that is not its own.
        loop = asyncio.get_running_loop()
        if self._places is None or self._loop is not loop:
            self._places, self._loop = asyncio.Semaphore(self.max_concurrency), loop
        return self._places


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Timed:
    """A judge that answers within ``timeout_s`` seconds or raises JudgeTimeout.

    The late question is cancelled and left behind: ``asyncio.wait_for`` would wait for a call that swallows its
    cancellation, and hang with it.
    """

    judge: Judge
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ConfigurationError(f"timeout is {self.timeout_s}; it must be a positive number of seconds")

    @property
    def model(self) -> str:
        """The wrapped judge's model."""
        return self.judge.model

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask in a task of its own, and give up on it at the deadline."""
        question = asyncio.ensure_future(self.judge.ask(prompt))
        try:
            done, _ = await asyncio.wait({question}, timeout=self.timeout_s)
        except asyncio.CancelledError:
            _abandon(question)
            raise
        if not done:
            _abandon(question)
            raise JudgeTimeout(f"{prompt.step}: no answer from {self.model} within {self.timeout_s:g} s")
        return question.result()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Retrying:
    """A judge that is asked again when asking again may help: it was unavailable, or late.

    Other errors (a wrong key, an unreadable answer) are raised at once. Waits double from half a second, with full jitter;
    a longer ``Retry-After`` is honoured, and one of more than a minute ends the attempts.

    Attributes:
        attempts: the first one included.
        sleep: seconds → wait; for tests.
    """

    judge: Judge
    attempts: int = 3
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigurationError(f"attempts is {self.attempts}; it must be 1 or more")

    @property
    def model(self) -> str:
        """The wrapped judge's model."""
        return self.judge.model

    async def ask(self, prompt: Prompt) -> Reply:
        """Ask up to ``attempts`` times; attempts that were given up are recorded as calls of their own."""
        import tenacity

        started = 0.0

        async def attempt() -> Reply:
            nonlocal started
            started = time.perf_counter()
            return await self.judge.ask(prompt)

        def passed_over(state: tenacity.RetryCallState) -> None:
            took_s = time.perf_counter() - started
            error_type = getattr(_raised(state), "error_type", None)
            record(JudgeCall(step=prompt.step, model=self.model, duration_s=took_s, error_type=error_type))

        retrying = tenacity.AsyncRetrying(
            sleep=self.sleep,
            stop=tenacity.stop_after_attempt(self.attempts),
            retry=tenacity.retry_if_exception(_may_pass),
            wait=_wait_s,
            before_sleep=passed_over,
            reraise=True,
        )
        reply: Reply = await retrying(attempt)
        return reply


def _may_pass(error: BaseException) -> bool:
    if not isinstance(error, JudgeUnavailable | JudgeTimeout):
        return False
    return (error.retry_after_s or 0.0) <= _LONGEST_WAIT_S


def _wait_s(state: tenacity.RetryCallState) -> float:
    """Return a random share of 0.5, 1, 2 … s, so that callers turned away together do not come back together."""
    longest = min(_FIRST_WAIT_S * 2 ** (state.attempt_number - 1), _LONGEST_WAIT_S)
    asked_s = getattr(_raised(state), "retry_after_s", None) or 0.0
    return asked_s + random.uniform(0.0, longest)


def _raised(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _abandon(question: asyncio.Future[Reply]) -> None:
    question.cancel()
    question.add_done_callback(_take_no_notice)


def _take_no_notice(question: asyncio.Future[Reply]) -> None:
    """Fetch what a late question raised: else asyncio prints that nobody did."""
    if not question.cancelled():
        question.exception()

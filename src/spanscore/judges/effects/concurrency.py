"""So many questions at once, and no more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import ConfigurationError
from spanscore.judges.asker import asker
from spanscore.judges.effects.effect import Effect
from spanscore.protocols import Judge

__all__ = ["Limited"]


@dataclass(slots=True, weakref_slot=True)
class Limited(Effect):
    """A judge that is asked at most ``max_concurrency`` questions at once; the others wait their turn."""

    judge: Judge
    max_concurrency: int = 16
    _places: asyncio.Semaphore | None = field(default=None, init=False, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max_concurrency < 1:
            raise ConfigurationError(f"max_concurrency is {self.max_concurrency}; it must be 1 or more")

    async def ask(self, prompt: Prompt) -> Reply:
        """Wait for a place, then ask."""
        places = self._semaphore()
        if places.locked():
            with asker().waits():
                await places.acquire()
        else:
            await places.acquire()
        try:
            return await self.judge.ask(prompt)
        finally:
            places.release()

    def _semaphore(self) -> asyncio.Semaphore:
        # Made anew on another loop: a forked child inherits a count of places its parent's questions hold, and a contended
        # semaphore raises on a loop that is not its own.
        loop = asyncio.get_running_loop()
        if self._places is None or self._loop is not loop:
            self._places, self._loop = asyncio.Semaphore(self.max_concurrency), loop
        return self._places

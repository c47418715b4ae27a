"""Deadline: the time that a score may take. It stands still while nobody works for it, as all its questions wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spanscore.judges.asker import Asker

__all__ = ["Deadline"]


class Deadline:
    """Calls ``late`` when a score was worked for as long as it may take, on the loop on which it is made. Loop thread.

    Args:
        asker: says whether anybody works for it.
        timeout_s: seconds of work.
    """

    def __init__(self, asker: Asker, timeout_s: float, late: Callable[[], None]) -> None:
        self._asker = asker
        self._left_s = timeout_s
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.update()

    def update(self) -> None:
        """Stand still or go on, where the asker has begun to wait or to be worked for."""
        if self._timer is None and not self._asker.is_waiting:
            self._timer = self._loop.call_later(self._left_s, self._late)
        elif self._timer is not None and self._asker.is_waiting:
            self._left_s = max(0.0, self._timer.when() - self._loop.time())
            self.stop()

    def stop(self) -> None:
        """Stand still until the next ``update``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""ReadDeadline: how long what is read may take, by one timer for all that is being read, not by one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["ReadDeadline"]

_Read = TypeVar("_Read")


class ReadDeadline:
    """Of one event loop. All have the same time, so that who came first is due first.

    Args:
        wait_s: for each.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._due: dict[asyncio.Task[Any], float] = {}  # in the order in which they came
        self._overdue: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def within(self, reading: Awaitable[_Read]) -> _Read | None:
        """Return what is read; None where it does not come in time. The running task reads one thing at a time."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # a coroutine is always some task's
        self._due[task] = due = loop.time() + self._wait_s
        if self._timer is None:
            self._timer = loop.call_at(due, self._let_go, loop)
        try:
            return await reading
        except asyncio.CancelledError:
            if task in self._overdue and not task.uncancel():  # else its client has hung up, too
                return None
            raise
        finally:
            del self._due[task]
            self._overdue.discard(task)

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is overdue, and wait for the next; nothing waits while nothing is read."""
        self._timer, now = None, loop.time()
        for task, due in self._due.items():
            if due > now:
                self._timer = loop.call_at(due, self._let_go, loop)
                return
            if task not in self._overdue:
                self._overdue.add(task)
                task.cancel()

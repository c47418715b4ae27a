"""ReadDeadline: how long what is read may take, by one timer for all that is being read, not by one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["ReadDeadline", "TaskDeadline"]

_Reader = TypeVar("_Reader", bound=Hashable)
_Read = TypeVar("_Read")


class ReadDeadline(Generic[_Reader]):
    """Of one event loop. All have the same time, so that who began first is due first.

    Args:
        wait_s: for each.
        late: told of a reader whose time is over, once.
    """

    def __init__(self, wait_s: float, late: Callable[[_Reader], None]) -> None:
        self._wait_s = wait_s
        self._late = late
        self._due: dict[_Reader, float] = {}  # in the order in which they began
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, reader: _Reader) -> None:
        """Give a reader its time; one that has not ended goes on with what it has."""
        if reader in self._due:
            return
        loop = asyncio.get_running_loop()
        self._due[reader] = due = loop.time() + self._wait_s
        if self._timer is None:
            self._timer = loop.call_at(due, self._let_go, loop)

    def end(self, reader: _Reader) -> None:
        """Wait no longer for a reader."""
        self._due.pop(reader, None)

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell who is late, and wait for the next; nothing waits while nothing is read."""
        self._timer, now = None, loop.time()
        for reader, due in [*self._due.items()]:
            if due > now:
                self._timer = loop.call_at(due, self._let_go, loop)
                return
            del self._due[reader]
            self._late(reader)


class TaskDeadline:
    """Of what tasks wait for.

    Args:
        wait_s: for each.
    """

    def __init__(self, wait_s: float) -> None:
        self._deadline = ReadDeadline[asyncio.Task[Any]](wait_s, self._let_go)
        self._late: set[asyncio.Task[Any]] = set()

    async def within(self, reading: Awaitable[_Read]) -> _Read | None:
        """Return what is read; None where it does not come in time. The running task reads one thing at a time."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine is always some task's
        self._deadline.begin(task)
        try:
            return await reading
        except asyncio.CancelledError:
            if task in self._late and not task.uncancel():  # else its client has hung up, too
                return None
            raise
        finally:
            self._deadline.end(task)
            self._late.discard(task)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._late.add(task)
        task.cancel()

"""Delivery: scores that were emitted → exported → their jobs forgotten.

A job is forgotten when a flush of the spans that began after its scores had been emitted is done. Until then a crash has them
emitted again, with the same ids. If spans cannot be exported and metrics can, the jobs are marked as counted: the process that
emits their scores again adds them to no sum.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from spanscore.core import loop
from spanscore.core.span import Unit
from spanscore.protocols import DurableQueue

__all__ = ["Delivery", "LastOfUnit"]

_GATHER_S: Final = 1.0
"""From the first that waits to the flush: one for each would send batches of one span."""


class Delivery:
    """Tells a queue what it may forget. Any thread.

    Args:
        queue: it.
        flush: begins to export what has been emitted; its answer is whether that was done.
        flush_sums: begins to export the sums, likewise.
        counted: told of units whose scores are in exported sums, and have not been exported themselves; None = nobody is.
        later: has something done after so many seconds.
    """

    def __init__(
        self,
        queue: DurableQueue,
        flush: Callable[[], Future[bool]],
        *,
        flush_sums: Callable[[], Future[bool]],
        counted: Callable[[Sequence[Unit]], None] | None = None,
        later: Callable[[float, Callable[[], Any]], None] | None = None,
    ) -> None:
        self._queue = queue
        self._flush = flush
        self._flush_sums, self._counted = flush_sums, counted
        self._later = later or loop.later
        self.reset()

    def reset(self) -> None:
        """Forget what waits: in a forked child."""
        self._lock = threading.Lock()
        self._waiting: list[Unit] = []
        self._marked: set[int] = set()  # by id(), of those that wait
        self._due = False

    def mark_emitted(self, unit: Unit) -> None:
        """Have a unit's job forgotten with the next flush."""
        with self._lock:
            self._waiting.append(unit)
            due, self._due = self._due, True
        if not due:
            self._later(_GATHER_S, self.begin_flush)

    def finish(self, timeout_s: float) -> None:
        """Have all of them forgotten that can be exported in this time."""
        if self._waiting:
            wait([self.begin_flush()], timeout_s)

    def begin_flush(self) -> Future[bool]:
        """Begin the next flush now, and return what it comes to."""
        with self._lock:
            units, self._waiting, self._due = self._waiting, [], False
        flushed = self._flush()
        flushed.add_done_callback(lambda done: self._on_flush(units, done))
        return flushed

    def _on_flush(self, units: list[Unit], done: Future[bool]) -> None:
        if not units:
            return
        if done.exception() is None and done.result():
            self._queue.mark_exported(units)
            self._marked.difference_update(map(id, units))
            return
        for unit in units:  # the backend is away: they are exported by and by, or emitted again in another life
            self.mark_emitted(unit)
        self._count([unit for unit in units if id(unit) not in self._marked])

    def _count(self, units: list[Unit]) -> None:
        """Export the sums, and have those units marked whose scores are in them."""
        counted = self._counted
        if not units or counted is None:
            return

        def mark(exported: Future[bool]) -> None:
            if not exported.cancelled() and exported.exception() is None and exported.result():
                counted(units)
                self._marked.update(map(id, units))

        self._flush_sums().add_done_callback(mark)


@dataclass(frozen=True, slots=True)
class LastOfUnit:
    """Stands behind all that leaves of a unit, as a ``PendingSpan`` that is none."""

    unit: Unit
    delivery: Delivery
    size: int = 0

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Say that all before it has been emitted."""
        self.delivery.mark_emitted(self.unit)

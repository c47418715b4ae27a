"""SpooledCarrier: copies → a spool, and from there by another carrier: what waits outlives the process, and fills no memory.

A copy is answered for when it is on the disk. What has arrived there is deleted; what a process left that has ended, any
other one with the same spool and the same scorer takes there.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.remote_scoring.carrier import Carrier, Told, UnitCopy
from spanscore.spool.rows import Put, RowKey, SpoolRow
from spanscore.spool.spool_file import SpoolFile

__all__ = ["SpooledCarrier"]

_KIND: Final = "copy"
_IN_MEMORY: Final = 64
"""Copies that are being sent: as many as stand in one request."""


class SpooledCarrier:
    """A ``Carrier``.

    Args:
        spool: where copies wait; others may share it.
        inner: takes them on.
        lost: told of a copy that was answered for, and of which nothing will come, and how it ends. Any thread.
    """

    def __init__(self, spool: SpoolFile, inner: Carrier, *, lost: Callable[[UnitCopy, Outcome], None]) -> None:
        self._spool = spool
        self._inner = inner
        self._lost = lost
        self._forget()
        self._take_more()  # what a process left that has ended

    def reset(self) -> None:
        """Be as new, in a forked child; the spool sees to itself."""
        self._inner.reset()
        self._forget()

    def send(self, copy: UnitCopy, told: Told) -> None:
        """Keep a copy; it is told when it is on the disk."""
        key = RowKey(*copy.key, copy.revision, _KIND)
        self._spool.put(key, copy.request, lambda put, why: self._kept(told, put, why), own=False)

    def arrived(self) -> bool:
        """Whether nothing waits in the spool that this process could take there."""
        return not (self._sending or self._asking or self._again)

    def state(self) -> str:
        """Return what is wrong with the disk or the way there, in few words; empty while nothing is."""
        return self._spool.state().fault or self._inner.state()

    def close(self, timeout_s: float) -> None:
        """Send what is being sent for as long as there is time; the rest stays in the spool, which is not closed."""
        self._closed = True
        self._inner.close(timeout_s)
        with self._lock:
            left = [*self._sending]
        self._spool.give_back(left)

    def _forget(self) -> None:
        self._lock = Lock()
        self._sending: set[RowKey] = set()
        self._asking = self._again = self._closed = False

    def _kept(self, told: Told, put: Put, why: str | None) -> None:
        if put in (Put.KEPT, Put.KNOWN):
            self._take_more()
            told(None)
        else:
            told(why or str(put))

    def _take_more(self) -> None:
        """Ask for copies that nobody has, where there is room for some; one question at a time. Those too old are counted."""
        if self._spool.state().expired:
            self._spool.take(_IN_MEMORY, _KIND, self._took_expired, ended_only=True)
        with self._lock:
            self._again = True
            if self._asking or self._closed or len(self._sending) >= _IN_MEMORY:
                return
            self._asking, self._again = True, False
            room = _IN_MEMORY - len(self._sending)
        self._spool.take(room, _KIND, self._took)

    def _took(self, rows: list[SpoolRow]) -> None:
        with self._lock:
            self._asking = False
            self._sending |= {row.key for row in rows}
            more = bool(rows) or self._again
        for row in rows:
            self._send(row)
        if more:
            self._take_more()

    def _took_expired(self, rows: list[SpoolRow]) -> None:
        for row in rows:
            self._lost(_copy(row), Outcome.EXPIRED)
        self._spool.done([row.key for row in rows])

    def _send(self, row: SpoolRow) -> None:
        copy = _copy(row)
        self._inner.send(copy, lambda reason: self._answered(row.key, copy, reason))

    def _answered(self, key: RowKey, copy: UnitCopy, reason: str | None) -> None:
        if reason is not None:
            self._lost(copy, Outcome.QUEUE_FULL)
        self._done(key)

    def _done(self, key: RowKey) -> None:
        self._spool.done([key])
        with self._lock:
            self._sending.discard(key)
        self._take_more()


def _copy(row: SpoolRow) -> UnitCopy:
    trace_id, span_id, revision, _ = row.key
    return UnitCopy(UnitKey(trace_id, span_id), revision, row.body)

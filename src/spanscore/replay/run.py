"""Replay: a store, read once → its units, at a pace, to a scorer; until its end, a limit, or Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final, Self

from spanscore.capture.stored import StoredUnits
from spanscore.core.span import Unit
from spanscore.replay.journal import Journal
from spanscore.replay.planning import UnitPlan, plan_of
from spanscore.replay.reading import StoredUnit, UnitReader
from spanscore.replay.tally import ReplayTally
from spanscore.sources.stored import TraceStore, Unread

__all__ = ["Replay", "ReplayBounds", "units_between"]

_MOST_UNDER_WAY: Final = 128
"""Units at once: enough for 32 workers and what waits for them, far from what the queue refuses."""
_LOOK_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBounds:
    """What of a store is scored, and how fast.

    Attributes:
        since_ns: units that began before are left alone.
        until_ns: units that began then or later are.
        per_second: units that are handed over; infinite = as fast as they are scored.
        limit: units that some metric scores, at most; None = all.
        again: whether those that have been scored are, too.
    """

    since_ns: float = 0
    until_ns: float = inf
    per_second: float = inf
    limit: int | None = None
    again: bool = False

    @classmethod
    def of(cls, since_s: float | None, until_s: float | None, *, limit: int | None = None) -> Self:
        """Return those of units that began between two times, seconds since the epoch; None = no bound."""
        return cls(since_ns=(since_s or 0) * 1e9, until_ns=inf if until_s is None else until_s * 1e9, limit=limit)

    def hold(self, unit: Unit) -> bool:
        """Whether a unit began between both times."""
        return self.since_ns <= (unit.root or unit.spans[0]).start_ns < self.until_ns


def units_between(
    store: TraceStore, reader: UnitReader, bounds: ReplayBounds, tally: ReplayTally, told: Callable[[], None]
) -> Iterator[StoredUnit]:
    """Read a store once, and yield its units that began in time; all else is counted.

    Args:
        tally: takes in what was read, but for the units that are yielded.
        told: called after each trace.
    """
    for trace in store.traces():
        if isinstance(trace, Unread):
            tally.could_not_read(trace)
            continue
        tally.traces += 1
        for stored in reader.units(trace):
            if bounds.hold(stored.unit):
                yield stored
            else:
                tally.outside += 1
        told()


class Replay:
    """One run over a store. The thread of its caller.

    Args:
        store: what is read.
        reader: makes units of its traces.
        door: the scorer's; its sampler decides.
        bounds: what is scored.
        journal: keeps what is scored; None = nothing does.
        told: called after each trace, and while it waits.
        clock: steady, in seconds; likewise ``sleep``.

    Attributes:
        tally: what came of it so far.
    """

    def __init__(
        self,
        store: TraceStore,
        reader: UnitReader,
        door: StoredUnits,
        bounds: ReplayBounds,
        *,
        tally: ReplayTally,
        journal: Journal | None = None,
        told: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._reader = reader
        self._door = door
        self._bounds = bounds
        self._journal = journal
        self._told = told
        self._clock = clock
        self._sleep = sleep
        self._next_s = -inf
        self._chosen = 0
        self.tally = tally
        door.replayed = tally.state

    def look(self) -> None:
        """Read the store and count, and score nothing."""
        self._read(lambda stored, plan: None)

    def score(self) -> None:
        """Read the store and have its units scored; return when the last of them is. Ctrl-C ends it: what is there stays."""
        self._read(self._hand_over)
        self.wait()

    def wait(self, most: int = 0) -> None:
        """Wait until no more units than that are under way."""
        while self._door.under_way > most:
            self._told()
            self._sleep(_LOOK_S)

    def _read(self, take: Callable[[StoredUnit, UnitPlan], None]) -> None:
        for stored in units_between(self._store, self._reader, self._bounds, self.tally, self._told):
            plan = plan_of(stored, self._door.metrics, self._door.decisions, again=self._bounds.again)
            if plan.taken and self._chosen == self._bounds.limit:
                return
            self._chosen += bool(plan.taken)
            self.tally.read(stored, plan)
            take(stored, plan)

    def _hand_over(self, stored: StoredUnit, plan: UnitPlan) -> None:
        self.wait(_MOST_UNDER_WAY)
        if plan.taken:
            self._keep_pace()
            if self._journal is not None:
                self._journal.expect(stored.unit.key, stored.spans)
        for unit in plan.units:
            self._door.put(unit)

    def _keep_pace(self) -> None:
        now_s = self._clock()
        if now_s < self._next_s:
            self._told()
            self._sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + 1 / self._bounds.per_second

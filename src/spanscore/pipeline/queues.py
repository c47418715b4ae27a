"""``MemoryQueue``, a bounded queue of jobs; ``AccountQuotas``, which divides a queue's places; and the registry of queues."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Final

from spanscore.core.job import Job
from spanscore.core.plugins import Registry
from spanscore.core.span import UnitKey
from spanscore.protocols import Queue


class MemoryQueue:
    """A bounded queue. A place is reserved before a job is made; a full queue rejects new units.

    Args:
        capacity: maximum number of units with a reserved place, waiting or being scored; a crash can lose them.
        max_bytes: approximate maximum bytes of their content; a larger unit is accepted only into an empty queue.
    """

    def __init__(self, capacity: int = 1_000, max_bytes: int = 256_000_000) -> None:
        self.capacity = capacity
        self._max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Forget all jobs, in a forked child."""
        self._lock = threading.Lock()
        self._reserved = 0
        self._bytes = 0
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()

    def __len__(self) -> int:
        """Number of reserved places."""
        return self._reserved

    def reserve(self, size_bytes: int) -> bool:
        """Reserve a place for ``size_bytes`` of content. Returns False if the queue is full. Thread-safe."""
        with self._lock:
            if self._reserved >= self.capacity or (self._reserved and self._bytes + size_bytes > self._max_bytes):
                return False
            self._reserved += 1
            self._bytes += size_bytes
            return True

    def cancel(self, size_bytes: int) -> None:
        """Release a reserved place. Thread-safe."""
        with self._lock:
            self._reserved -= 1
            self._bytes -= size_bytes

    def put(self, job: Job) -> None:
        """Fill a reserved place. Call on the loop thread."""
        self._jobs.put_nowait(job)

    async def get(self) -> Job:
        """Wait for the next job. Call on the loop thread."""
        return await self._jobs.get()

    def ack(self, job: Job) -> None:
        """Release the place of a job that has ended."""
        self.cancel(job.size_bytes)

    def close(self) -> list[Job]:
        """Return the jobs that no worker took, and release their places. Call on the loop thread."""
        jobs = []
        while not self._jobs.empty():
            jobs.append(self._jobs.get_nowait())
            self.ack(jobs[-1])
        return jobs


_BUILT_IN = {"memory": "spanscore.pipeline.queues:MemoryQueue"}
QUEUES = Registry(
    kind="queue", protocol=Queue, example="my_pkg.queues:MyQueue", built_in=_BUILT_IN, offers=("capacity", "max_bytes")
)
"""The queues that ``limits.job_queue`` may name."""

_ALPHA: Final = 3
"""α of the dynamic threshold: a quota may hold α times as many places as are free. With α = 3, a judge that hangs leaves 250
of 1,000 places free: enough for 250 units per second that take 1 s each.
"""
_BYTES_WEIGHT: Final = 4
"""Weight of bytes in `AccountQuotas.fill`: the queue counts as full at a quarter of ``max_bytes``, because the content takes
memory of the application.
"""
_BURST_SHARE: Final = 16
"""Divisor of the capacity: units of unknown size may take at most 1/16 of the places at once."""
_PLACES_DECAY: Final = 0.95
"""Factor on ``AccountQuotas.places`` after each unit with fewer inner units."""


@dataclass(slots=True)
class _Usage:
    """The places and bytes that units take in the queue."""

    units: int = 0
    size_bytes: int = 0

    def add(self, units: int, size_bytes: int) -> None:
        self.units += units
        self.size_bytes += size_bytes


@dataclass(eq=False, repr=False)
class AccountQuotas:
    """Limits the places of each account in the queue, so that a judge that hangs leaves places for metrics of other judges.

    Metrics share a quota if their judges are one account. A quota accepts no further unit once it holds three times as many
    places as are free: one quota fills at most three quarters of the queue, two quotas without common units three sevenths
    each. If there is only one quota, it has the whole queue. This is the dynamic threshold of switches that share memory
    between ports (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998), with α = 3.
    Owned by the span thread.

    Attributes:
        of: metric → key of its quota.
        capacity: returns the number of places in the queue.
        max_bytes: maximum bytes of content in the queue.
        under_way: metric → number of units in the queue without a score of that metric yet.
        places: places that a unit and its inner units take: the largest recent number, at least 1.
    """

    of: Mapping[str, Hashable]
    _: KW_ONLY
    capacity: Callable[[], int]
    max_bytes: float = inf

    def __post_init__(self) -> None:
        self._all = _Usage()
        self._quotas: dict[Hashable, _Usage] = {quota: _Usage() for quota in self.of.values()}
        self._open: dict[UnitKey, tuple[int, dict[str, Hashable]]] = {}
        self.under_way: Counter[str] = Counter()
        self.places = 1.0

    def record_inner(self, inner: int) -> None:
        """Record the number of inner units of a closed unit. A large number has no effect after some dozen further units."""
        self.places = max(1.0 + inner, _PLACES_DECAY * self.places)

    def change(self, of: Mapping[str, Hashable]) -> None:
        """Use other quotas for units that enter from now on. Units in the queue keep their quotas."""
        self.of = {**self.of, **of}  # a metric that is left out now may sample units that are still open
        in_use = {quota for _, metrics in self._open.values() for quota in metrics.values()}.union(of.values())
        self._quotas = {quota: self._quotas.get(quota) or _Usage() for quota in in_use}

    def with_room(self, metrics: Collection[str]) -> list[str]:
        """Return the metrics that have room for one more unit in their quota."""
        if len(self._quotas) == 1:
            return list(metrics)
        full = {quota for quota, usage in self._quotas.items() if self._is_full(usage)}
        return [name for name in metrics if self.of[name] not in full]

    def room(self) -> int:
        """Return the number of units that may arrive now without filling a quota. Thread-safe."""
        if self._all.size_bytes > self.max_bytes / 2:  # the size of the next units is unknown
            return 0
        capacity = self.capacity()
        most = capacity if len(self._quotas) == 1 else capacity * _ALPHA // (_ALPHA + 1)
        free = most - self._all.units
        if free < min(self.places, most):
            return 0
        return int(max(1, min(free, max(1, capacity // _BURST_SHARE)) // self.places))

    def fill(self) -> float:
        """Return the fill of the fullest quota, 1 = full; bytes count fourfold. Thread-safe."""
        capacity, queue = self.capacity(), self._all
        parts = [queue.units / capacity, _BYTES_WEIGHT * queue.size_bytes / self.max_bytes]
        if len(self._quotas) > 1:
            free = max(1, capacity - queue.units)
            parts += (usage.units / (_ALPHA * free) for usage in self._quotas.values())
        return max(parts)

    def enter(self, key: UnitKey, metrics: Collection[str], size_bytes: int) -> None:
        """Add a unit that has a place in the queue, with the metrics that will score it."""
        self._open[key] = size_bytes, {}
        self._all.add(1, size_bytes)
        self.join(key, metrics)

    def join(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Add further metrics to a unit in the queue."""
        size_bytes, open_ones = self._open[key]
        metrics = [name for name in metrics if name in self.of]  # another process may have sampled for its own metric
        before = {*open_ones.values()}
        for name in metrics:
            open_ones[name] = self.of[name]
            self.under_way[name] += 1
        for quota in {*open_ones.values()} - before:
            self._quotas.setdefault(quota, _Usage()).add(1, size_bytes)

    def settle(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Remove metrics of a unit, because their scores are in."""
        size_bytes, left = self._open[key]
        before = {*left.values()}
        done = left.keys() & metrics
        for name in done:
            del left[name]
            self.under_way[name] -= 1
        for quota in before.difference(left.values()):
            self._quotas[quota].add(-1, -size_bytes)

    def leave(self, key: UnitKey) -> None:
        """Remove a unit after its place in the queue was released; no effect if the unit is not in the queue."""
        if key in self._open:
            if left := self._open[key][1]:
                self.settle(key, [*left])
            size_bytes, _ = self._open.pop(key)
            self._all.add(-1, -size_bytes)

    def _is_full(self, usage: _Usage) -> bool:
        free, free_bytes = self.capacity() - self._all.units, self.max_bytes - self._all.size_bytes
        return usage.units > 0 and (usage.units >= _ALPHA * free or usage.size_bytes >= _ALPHA * free_bytes)

"""MemoryQueue: jobs in memory, bounded; and the registry of queues. A new queue is a file here, and a line in the registry."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from spanscore.core.job import Job
from spanscore.core.plugins import Registry
from spanscore.protocols import Queue


class MemoryQueue:
    """A bounded queue whose places are reserved before the work of making a job is done (policy ``reject_new``).

    Args:
        capacity: units that are reserved, waiting or in work; as many are lost with the process at most.
        max_bytes: bytes of their content, roughly; a larger unit waits alone.
    """

    def __init__(self, capacity: int = 1_000, max_bytes: int = 256_000_000) -> None:
        self.capacity = capacity
        self._max_bytes = max_bytes
        self.reset()

    def reset(self) -> None:
        """Forget everything: in a forked child."""
        self._lock = threading.Lock()
        self._reserved = 0
        self._bytes = 0
        self._jobs: deque[Job] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._woken: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Places reserved."""
        return self._reserved

    def reserve(self, size_bytes: int) -> bool:
        """Take a place for content of so many bytes. False: full. Any thread."""
        with self._lock:
            if self._reserved >= self.capacity or (self._reserved and self._bytes + size_bytes > self._max_bytes):
                return False
            self._reserved += 1
            self._bytes += size_bytes
            return True

    def cancel(self, size_bytes: int) -> None:
        """Give a reserved place back. Any thread."""
        with self._lock:
            self._reserved -= 1
            self._bytes -= size_bytes

    def put(self, job: Job) -> None:
        """Fill a reserved place. Loop thread."""
        self._jobs.append(job)
        self._wake_one()

    def put_back(self, job: Job) -> None:
        """Have a job that was given be the next again. Loop thread."""
        self._jobs.appendleft(job)
        self._wake_one()

    async def get(self) -> Job:
        """Wait for the next job. Loop thread."""
        while not self._jobs:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._looks(waiter)
                if self._jobs:  # it had just been woken for one of them, which the next worker must learn of
                    self._wake_one()
                raise
            self._looks(waiter)
        job = self._jobs.popleft()
        if self._jobs:
            self._wake_one()
        return job

    def _looks(self, waiter: asyncio.Future[None]) -> None:
        if waiter is self._woken:
            self._woken = None

    def _wake_one(self) -> None:
        """Wake a worker, if none is about to look: that one wakes the next, and a worker that is quick leaves nothing to it."""
        while self._waiters and self._woken is None:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._woken = waiter

    def ack(self, job: Job) -> None:
        """Say that the job is done: its place is free."""
        self.cancel(job.size_bytes)

    def close(self) -> list[Job]:
        """Return the jobs that no worker took, and free their places. Loop thread."""
        left = list(self._jobs)
        self._jobs.clear()
        for job in left:
            self.ack(job)
        return left


_BUILT_IN = {"memory": "spanscore.pipeline.queues:MemoryQueue"}
QUEUES = Registry(
    kind="queue", protocol=Queue, outside="my_pkg.queues:MyQueue", built_in=_BUILT_IN, offers=("capacity", "max_bytes")
)

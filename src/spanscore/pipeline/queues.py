"""``MemoryQueue``, a bounded queue of jobs in memory; and the registry of queues, by which ``limits.job_queue`` names one."""

from __future__ import annotations

import asyncio
import threading

from spanscore.core.job import Job
from spanscore.core.plugins import Registry
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
    kind="queue", protocol=Queue, outside="my_pkg.queues:MyQueue", built_in=_BUILT_IN, offers=("capacity", "max_bytes")
)

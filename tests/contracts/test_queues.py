"""Every queue keeps the contract, and the contract turns away those that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.contracts.found import failing, implementations, never_failing

from spanscore.model.job import Job
from spanscore.protocols import Queue
from spanscore.scoring.memory_queue import MemoryQueue
from spanscore.testing import QueueContract

MADE: dict[type, Callable[[], Queue]] = {MemoryQueue: lambda: MemoryQueue(capacity=4, max_bytes=1_000)}
"""How each is made; one that is not here is made without arguments."""


@pytest.mark.parametrize("kind", implementations("scoring", Queue))
class TestQueues(QueueContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: type) -> None:
        self.make = MADE.get(kind, kind)  # type: ignore[method-assign]


class Unbounded(MemoryQueue):
    def reserve(self, size_bytes: int) -> bool:
        return super().reserve(0) or True


class Strict(MemoryQueue):
    """Has no room for what is larger than all of it."""

    def reserve(self, size_bytes: int) -> bool:
        return size_bytes <= self._max_bytes and super().reserve(size_bytes)


class OnItsLoop(MemoryQueue):
    """Made of asyncio's own, which is no other thread's."""

    def reserve(self, size_bytes: int) -> bool:
        asyncio.get_running_loop()
        return super().reserve(size_bytes)


class Forgetful(MemoryQueue):
    """Frees a place as soon as a worker has the job, and never one of a unit that made none."""

    async def get(self) -> Job:
        job = await super().get()
        super().cancel(job.size_bytes)
        return job

    def cancel(self, size_bytes: int) -> None:
        pass


class Stack(MemoryQueue):
    """The last that came leaves first."""

    def put(self, job: Job) -> None:
        super().put(job)
        self._jobs.rotate(1)


class Impatient(MemoryQueue):
    """Gives what there is, be it nothing, and loses a job where the worker is cancelled meanwhile."""

    async def get(self) -> Any:
        job = self._jobs.popleft() if self._jobs else None
        await asyncio.sleep(0)
        return job


class Deaf(MemoryQueue):
    """Wakes one worker, and does not look whether that one still waits."""

    def put(self, job: Job) -> None:
        self._jobs.append(job)
        if self._waiters:
            self._waiters.popleft().set_result(None)


class Hoarder(MemoryQueue):
    """Returns what is left and keeps it, also beyond a fork."""

    def close(self) -> list[Job]:
        return list(self._jobs)

    def reset(self) -> None:
        jobs = getattr(self, "_jobs", ())
        super().reset()
        self._jobs.extend(jobs)


BROKEN = [Unbounded, Strict, OnItsLoop, Forgetful, Stack, Impatient, Deaf, Hoarder]


def broken(kind: Any) -> type[QueueContract]:
    class Suite(QueueContract):
        patience_s = 0.05

        def make(self) -> Queue:
            made: Queue = kind() if kind is dict else kind(capacity=4)
            return made

    return Suite


@pytest.mark.parametrize("kind", BROKEN)
def test_a_queue_that_breaks_a_promise_is_turned_away(kind: Any) -> None:
    assert failing(broken(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(QueueContract, map(broken, BROKEN)) == {"test_it_is_a_queue"}
    assert "test_it_is_a_queue" in failing(broken(dict))

"""Every queue passes the contract, and the contract rejects faulty ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.found import failing, implementations, never_failing

from spanscore.core.job import Job
from spanscore.durable.spool import SpoolFile
from spanscore.pipeline.queues import MemoryQueue
from spanscore.pipeline.spool_queue import SpoolQueue
from spanscore.protocols import DurableQueue, Queue
from spanscore.testing import DurableQueueContract, QueueContract

MADE: dict[type, Callable[[Path], Queue]] = {
    MemoryQueue: lambda _: MemoryQueue(capacity=4, max_bytes=1_000),
    SpoolQueue: lambda folder: SpoolQueue(SpoolFile(folder / "spool.db"), in_memory=4, max_in_transit=4),
}
"""How each is made."""


@pytest.mark.parametrize("kind", implementations("pipeline", Queue))
class TestQueues(QueueContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: type, tmp_path: Path) -> None:
        self.make = lambda: MADE[kind](tmp_path)  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", implementations("pipeline", DurableQueue))
class TestDurableQueues(DurableQueueContract):
    @pytest.fixture(autouse=True)
    def _of(self, kind: type, tmp_path: Path) -> None:
        self.make = lambda: MADE[kind](tmp_path)  # type: ignore[method-assign]


class Unbounded(MemoryQueue):
    def reserve(self, size_bytes: int) -> bool:
        return super().reserve(0) or True


class Strict(MemoryQueue):
    """Rejects a unit that is larger than the whole queue."""

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

    def reset(self) -> None:
        super().reset()
        self._jobs = asyncio.LifoQueue()


class Impatient(MemoryQueue):
    """Returns without waiting, even nothing, and loses a job if its worker is cancelled meanwhile."""

    async def get(self) -> Any:
        job = None if self._jobs.empty() else self._jobs.get_nowait()
        await asyncio.sleep(0)
        return job


class Deaf(MemoryQueue):
    """Wakes one worker, and does not look whether that one still waits."""

    def reset(self) -> None:
        super().reset()
        self._waiters = list[asyncio.Future[None]]()

    def put(self, job: Job) -> None:
        super().put(job)
        if self._waiters:
            self._waiters.pop(0).set_result(None)

    async def get(self) -> Job:
        if self._jobs.empty():
            self._waiters.append(asyncio.get_running_loop().create_future())
            await self._waiters[-1]
        return self._jobs.get_nowait()


class Hoarder(MemoryQueue):
    """Returns waiting jobs but keeps them, also after a fork."""

    def close(self) -> list[Job]:
        left = super().close()
        for job in left:
            self.reserve(job.size_bytes)
            self.put(job)
        return left

    def reset(self) -> None:
        jobs = getattr(self, "_jobs", None)
        super().reset()
        self._jobs = jobs or self._jobs


BROKEN = [Unbounded, Strict, OnItsLoop, Forgetful, Stack, Impatient, Deaf, Hoarder]


def broken(kind: Any) -> type[QueueContract]:
    class Suite(QueueContract):
        timeout_s = 0.05

        def make(self) -> Queue:
            made: Queue = kind() if kind is dict else kind(capacity=4)
            return made

    return Suite


class Mute(MemoryQueue):
    """Shares no jobs, and never calls back."""

    def on_result(self, callback: Any) -> None:
        pass

    def begin(self) -> None:
        pass

    def save_scores(self, job: Job, scores: Any, callback: Any) -> None:
        pass

    def mark_exported(self, units: Any) -> None:
        pass

    def rejection_reason(self) -> None:
        pass

    def is_durable(self, key: Any) -> bool:
        return True


def durable(kind: Any) -> type[DurableQueueContract]:
    class Suite(broken(kind), DurableQueueContract):  # type: ignore[misc]
        pass

    return Suite


def test_every_check_of_a_durable_queue_turns_one_away() -> None:
    assert failing(durable(Mute)) == {
        "test_each_job_that_is_put_is_reported_once",
        "test_scores_are_reported_as_kept_before_they_are_emitted",
        "test_a_unit_outlives_the_process_when_its_job_is_reported_and_not_before",
    }
    assert "test_it_is_a_durable_queue" in failing(durable(MemoryQueue))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_queue_that_breaks_a_promise_is_turned_away(kind: Any) -> None:
    assert failing(broken(kind))


def test_every_check_turns_one_of_them_away() -> None:
    assert never_failing(QueueContract, map(broken, BROKEN)) == {"test_it_is_a_queue"}
    assert "test_it_is_a_queue" in failing(broken(dict))

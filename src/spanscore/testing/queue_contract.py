"""Tests of a queue, as classes to subclass: ``QueueContract`` and ``DurableQueueContract``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf

from spanscore.core.job import Job
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.protocols import DurableQueue, Queue
from spanscore.testing.doubles import make_score, make_span, make_unit

_HUGE = 1 << 40
"""Size in bytes that exceeds every queue's limit."""


class QueueContract:
    """Tests of a queue. Subclass it and implement ``make``. The checks fill the queue, so a small capacity keeps them fast.

    Attributes:
        timeout_s: time in seconds that a check waits for a job.
    """

    timeout_s = 5.0

    def make(self) -> Queue:
        """Return a new queue with at least three places."""
        raise NotImplementedError

    def test_it_is_a_queue(self) -> None:
        """It has all methods and attributes that a scorer uses."""
        assert isinstance(self.make(), Queue)

    def test_there_are_as_many_places_as_it_says(self) -> None:
        """The queue is bounded, and ``len`` is the number of occupied places."""
        queue = self.make()

        places = [queue.reserve(1) for _ in range(queue.capacity + 1)]

        assert places == [True] * queue.capacity + [False], (
            "reserve must refuse units beyond the capacity, and no others"
        )
        assert len(queue) == queue.capacity, "len must be the number of occupied places"

    def test_a_place_that_was_given_back_can_be_taken_again(self) -> None:
        """A unit without a job frees its place."""
        queue = self._full()

        queue.cancel(1)

        assert (queue.reserve(1), queue.reserve(1)) == (True, False), "cancel must free one place"

    def test_an_empty_queue_takes_a_unit_of_any_size(self) -> None:
        """Otherwise a large unit would never be scored."""
        assert self.make().reserve(_HUGE)

    def test_a_job_holds_its_place_until_it_is_done(self) -> None:
        """A job in scoring is in memory, and counts, too."""
        queue = self.make()

        (job,) = asyncio.run(self._through(queue, a_job(1)))
        before = len(queue)
        queue.ack(job)

        assert (before, len(queue)) == (1, 0), "a place must be occupied from reserve to ack"

    def test_jobs_are_given_once_each_in_the_order_in_which_they_came(self) -> None:
        """No job is lost, scored twice, or delayed behind later jobs."""
        jobs = [a_job(number) for number in range(3)]

        assert _as_put(*asyncio.run(self._through(self.make(), *jobs))) == jobs

    def test_a_worker_waits_for_its_job(self) -> None:
        """``get`` of an empty queue waits, and returns once there is a job."""
        queue, job = self.make(), a_job(1)

        async def put_later() -> tuple[bool, Job]:
            worker = asyncio.ensure_future(queue.get())
            await _turns()
            returned_early = worker.done()
            self._put(queue, job)
            return returned_early, _as_put(await self._soon(worker))[0]

        assert asyncio.run(put_later()) == (False, job)

    def test_a_worker_that_is_cancelled_takes_no_job_with_it(self) -> None:
        """The next worker gets the job, whether the other was cancelled before there was a job or while it was woken."""
        queue, job = self.make(), a_job(1)

        async def take_as_third() -> Job:
            first, second, third = (asyncio.ensure_future(queue.get()) for _ in range(3))
            await _turns()
            first.cancel()
            await asyncio.wait({first})
            self._put(queue, job)
            second.cancel()
            await asyncio.wait({second})
            return await self._soon(third)

        assert _as_put(asyncio.run(take_as_third())) == [job]

    def test_places_are_taken_on_another_thread_than_the_loops(self) -> None:
        """``reserve`` is called on the span thread."""
        queue = self.make()

        async def reserve_elsewhere() -> bool:
            with ThreadPoolExecutor(1) as span_thread:
                return await asyncio.get_running_loop().run_in_executor(span_thread, queue.reserve, 1)

        assert asyncio.run(reserve_elsewhere())

    def test_what_nobody_took_is_given_back_at_the_end(self) -> None:
        """``close`` returns waiting jobs and frees their places; jobs in scoring keep theirs."""
        queue, jobs = self.make(), [a_job(number) for number in range(3)]

        async def close_twice() -> list[list[Job]]:
            for job in jobs:
                self._put(queue, job)
            await self._soon(queue.get())
            return [queue.close(), queue.close()]

        left, again = asyncio.run(close_twice())
        assert (_as_put(*left), again) == (jobs[1:], []), "close must return waiting jobs, in order, once"
        assert len(queue) == 1, "close must free the places of the jobs it returns, and no others"

    def test_after_a_fork_it_is_as_new(self) -> None:
        """A forked child has an empty queue. The jobs belong to the parent process; the loop and waiting workers are gone."""
        queue, job = self._full(), a_job(1)

        async def leave_a_job() -> None:
            asyncio.ensure_future(queue.get()).cancel()
            queue.cancel(1)
            self._put(queue, a_job(2))

        asyncio.run(leave_a_job())
        queue.reset()

        assert len(queue) == 0, "reset must free every place"
        assert _as_put(*asyncio.run(self._through(queue, job))) == [job], "reset must forget the jobs"

    def _full(self) -> Queue:
        queue = self.make()
        for _ in range(queue.capacity):
            queue.reserve(1)
        return queue

    def _put(self, queue: Queue, job: Job) -> None:
        assert queue.reserve(job.size_bytes), "reserve refused although there is room"
        queue.put(job)

    async def _through(self, queue: Queue, *jobs: Job) -> list[Job]:
        for job in jobs:
            self._put(queue, job)
        return [await self._soon(queue.get()) for _ in jobs]

    async def _soon(self, job: Awaitable[Job]) -> Job:
        try:
            return await asyncio.wait_for(job, self.timeout_s)
        except TimeoutError:
            raise AssertionError("a job in the queue did not reach the waiting worker") from None


class DurableQueueContract(QueueContract):
    """Tests of a queue that processes share and that survives them."""

    def test_it_is_a_durable_queue(self) -> None:
        """It has the methods that a scorer calls on durable queues only."""
        assert isinstance(self.make(), DurableQueue)

    def test_each_job_that_is_put_is_reported_once(self) -> None:
        """Then the scorer continues with the next job, and a unit that is scored elsewhere ends."""
        queue, jobs = self._durable(), list[Job]()

        async def put() -> None:
            queue.on_result(lambda job, outcome, reason: jobs.append(job))
            for number in range(3):
                self._put(queue, a_job(number))
            await self._until(lambda: len(jobs) >= 3)  # noqa: PLR2004  (as many as were put)

        asyncio.run(put())
        assert [job.samples.single_turn and job.samples.single_turn.user_input for job in jobs] == [
            f"question {n}" for n in range(3)
        ]

    def test_a_unit_outlives_the_process_when_its_job_is_reported_and_not_before(self) -> None:
        """After this callback a worker's source may forget the unit."""
        queue, job, states = self._durable(), a_job(1), list[bool]()

        async def put() -> None:
            queue.on_result(
                lambda job, outcome, reason: states.append(queue.is_durable(job.unit.key) or outcome is not None)
            )
            states.append(queue.is_durable(job.unit.key))
            self._put(queue, job)
            await self._until(lambda: len(states) > 1)

        asyncio.run(put())
        assert states == [False, True]

    def test_scores_are_reported_as_kept_before_they_are_emitted(self) -> None:
        """Otherwise scores might never be emitted, or by two processes."""
        queue, kept = self._durable(), list[bool]()

        async def save() -> None:
            (job,) = await self._through(queue, a_job(1))
            queue.save_scores(job, [make_score(1.0)], kept.append)
            await self._until(lambda: kept != [])
            queue.ack(job)
            queue.mark_exported([job.unit])

        asyncio.run(save())
        assert kept == [True], "scores of a job that no other process has must be kept"

    def _durable(self) -> DurableQueue:
        queue = self.make()
        assert isinstance(queue, DurableQueue)
        return queue

    async def _until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                while not condition():  # noqa: ASYNC110  (a callback of the queue makes it true)
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError("the queue did not call back") from None


def _as_put(*jobs: Job) -> list[Job]:
    """Return jobs with the fields that they had when they were put. Storage between processes changes the other fields."""
    return [replace(job, taken_s=None, held_until_s=-inf, delegated=False, scored=()) for job in jobs]


def a_job(number: int) -> Job:
    """Return a job that differs from the jobs of other numbers."""
    sample = SingleTurnSample(user_input=f"question {number}", response="answer")
    return Job(make_unit(make_span()).without_content(), Samples(single_turn=sample), {}, size_bytes=1)


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)

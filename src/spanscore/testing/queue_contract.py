"""QueueContract: what every queue promises."""

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

__all__ = ["DurableQueueContract", "QueueContract"]

_HUGE = 1 << 40
"""Bytes: more than any queue may hold."""


class QueueContract:
    """Subclass it in a test and say how your queue is made: with few places, as the checks fill it.

    Attributes:
        patience_s: how long a check waits for a job that must come.
    """

    patience_s = 5.0

    def make(self) -> Queue:
        """Return a new queue with at least three places."""
        raise NotImplementedError

    def test_it_is_a_queue(self) -> None:
        """It has what a scorer calls and reads."""
        assert isinstance(self.make(), Queue)

    def test_there_are_as_many_places_as_it_says(self) -> None:
        """It is bounded, and ``len`` tells the places that are taken."""
        queue = self.make()

        given = [queue.reserve(1) for _ in range(queue.capacity + 1)]

        assert given == [True] * queue.capacity + [False], "reserve is to refuse what is over the capacity, and no more"
        assert len(queue) == queue.capacity, "len is to tell the places that are taken"

    def test_a_place_that_was_given_back_can_be_taken_again(self) -> None:
        """A unit that makes no job leaves no trace."""
        queue = self._full()

        queue.cancel(1)

        assert (queue.reserve(1), queue.reserve(1)) == (True, False), "cancel is to free one place"

    def test_an_empty_queue_takes_a_unit_of_any_size(self) -> None:
        """It would else never be scored."""
        assert self.make().reserve(_HUGE)

    def test_a_job_holds_its_place_until_it_is_done(self) -> None:
        """What is being scored counts as well: it is in memory."""
        queue = self.make()

        (job,) = asyncio.run(self._through(queue, a_job(1)))
        before = len(queue)
        queue.ack(job)

        assert (before, len(queue)) == (1, 0), "a place is taken from reserve to ack"

    def test_jobs_are_given_once_each_in_the_order_in_which_they_came(self) -> None:
        """No job is lost, none is scored twice, and none waits behind later ones."""
        jobs = [a_job(number) for number in range(3)]

        assert _as_put(*asyncio.run(self._through(self.make(), *jobs))) == jobs

    def test_a_worker_waits_for_its_job(self) -> None:
        """An empty queue gives nothing, and wakes whoever waits once there is something."""
        queue, job = self.make(), a_job(1)

        async def waits() -> tuple[bool, Job]:
            worker = asyncio.ensure_future(queue.get())
            await _turns()
            early = worker.done()
            self._put(queue, job)
            return early, _as_put(await self._soon(worker))[0]

        assert asyncio.run(waits()) == (False, job)

    def test_a_worker_that_is_cancelled_takes_no_job_with_it(self) -> None:
        """Whether it is cancelled before there is a job, or as it is being woken for one: the next worker gets it."""
        queue, job = self.make(), a_job(1)

        async def given() -> Job:
            first, second, third = (asyncio.ensure_future(queue.get()) for _ in range(3))
            await _turns()
            first.cancel()
            await asyncio.wait({first})
            self._put(queue, job)
            second.cancel()
            await asyncio.wait({second})
            return await self._soon(third)

        assert _as_put(asyncio.run(given())) == [job]

    def test_places_are_taken_on_another_thread_than_the_loops(self) -> None:
        """``reserve`` is the span thread's."""
        queue = self.make()

        async def reserved() -> bool:
            with ThreadPoolExecutor(1) as span_thread:
                return await asyncio.get_running_loop().run_in_executor(span_thread, queue.reserve, 1)

        assert asyncio.run(reserved())

    def test_what_nobody_took_is_given_back_at_the_end(self) -> None:
        """``close`` returns it and frees its places, and leaves those of jobs that are being scored."""
        queue, jobs = self.make(), [a_job(number) for number in range(3)]

        async def closed() -> list[list[Job]]:
            for job in jobs:
                self._put(queue, job)
            await self._soon(queue.get())
            return [queue.close(), queue.close()]

        left, again = asyncio.run(closed())
        assert (_as_put(*left), again) == (jobs[1:], []), "close is to return what was not taken, in order, once"
        assert len(queue) == 1, "close is to free the places of what it returns, and no other"

    def test_after_a_fork_it_is_as_new(self) -> None:
        """What was in it is the parent's; its loop is gone, and so is who waited on it."""
        queue, job = self._full(), a_job(1)

        async def abandoned() -> None:
            asyncio.ensure_future(queue.get()).cancel()
            queue.cancel(1)
            self._put(queue, a_job(2))

        asyncio.run(abandoned())
        queue.reset()

        assert len(queue) == 0, "reset is to free every place"
        assert _as_put(*asyncio.run(self._through(queue, job))) == [job], "reset is to forget the jobs"

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
            return await asyncio.wait_for(job, self.patience_s)
        except TimeoutError:
            raise AssertionError("a job that is in the queue did not reach the worker who waits") from None


class DurableQueueContract(QueueContract):
    """Subclass it in a test of a queue that is shared by processes and survives them."""

    def test_it_is_a_durable_queue(self) -> None:
        """It has what a scorer calls beside what it calls of every queue."""
        assert isinstance(self.make(), DurableQueue)

    def test_each_job_that_is_put_is_told_of_once(self) -> None:
        """The scorer goes on to the next one then; and a unit whose job does not come out here ends."""
        queue, told = self._durable(), list[Job]()

        async def put() -> None:
            queue.on_result(lambda job, outcome, reason: told.append(job))
            for number in range(3):
                self._put(queue, a_job(number))
            await self._until(lambda: len(told) >= 3)  # noqa: PLR2004  (as many as were put)

        asyncio.run(put())
        assert [job.samples.single_turn and job.samples.single_turn.user_input for job in told] == [
            f"question {n}" for n in range(3)
        ]

    def test_a_unit_outlives_the_process_when_its_job_is_told_to_be_there_and_not_before(self) -> None:
        """What a worker has read is forgotten where it was read from by this word."""
        queue, job, told = self._durable(), a_job(1), list[bool]()

        async def put() -> None:
            queue.on_result(
                lambda job, outcome, reason: told.append(queue.is_durable(job.unit.key) or outcome is not None)
            )
            told.append(queue.is_durable(job.unit.key))
            self._put(queue, job)
            await self._until(lambda: len(told) > 1)

        asyncio.run(put())
        assert told == [False, True]

    def test_scores_are_told_to_be_kept_before_they_are_emitted(self) -> None:
        """Else they would be emitted never, or by two processes."""
        queue, kept = self._durable(), list[bool]()

        async def save() -> None:
            (job,) = await self._through(queue, a_job(1))
            queue.save_scores(job, [make_score(1.0)], kept.append)
            await self._until(lambda: kept != [])
            queue.ack(job)
            queue.mark_exported([job.unit])

        asyncio.run(save())
        assert kept == [True], "what nobody else can have is to be kept"

    def _durable(self) -> DurableQueue:
        queue = self.make()
        assert isinstance(queue, DurableQueue)
        return queue

    async def _until(self, it_is: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self.patience_s):
                while not it_is():  # noqa: ASYNC110  (what is asked for comes by a callback of the queue's)
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError("it was not told") from None


def _as_put(*jobs: Job) -> list[Job]:
    """Return jobs as they were put: one that another process may have has come a long way."""
    return [replace(job, taken_s=None, held_until_s=-inf, delegated=False, scored=()) for job in jobs]


def a_job(number: int) -> Job:
    """Return a job that differs from those of other numbers."""
    sample = SingleTurnSample(user_input=f"question {number}", response="answer")
    return Job(make_unit(make_span()).without_content(), Samples(single_turn=sample), {}, size_bytes=1)


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)

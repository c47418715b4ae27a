"""Engine: sampled units on the loop → jobs → scores, posted back to the span thread.

Jobs are made a little ahead of the workers and not as units arrive: a burst of traffic would else have its content rendered
while it still runs. Whatever happens to a job on the way, its place in the queue is given back, and it is posted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from spanscore.judges.suppress import suppressed, suppressed_context
from spanscore.model.job import Job, JobResult, SampledUnit
from spanscore.model.score import Score
from spanscore.protocols import Queue
from spanscore.runtime import loop
from spanscore.runtime.gil import yield_gil
from spanscore.runtime.log import log_internal_error
from spanscore.scoring.evaluation import Evaluation
from spanscore.scoring.jobs import Pipeline

__all__ = ["Engine"]

_MOMENT_S: Final = 0.05
"""How long a hook may hold up the next units: it is not at once a thread for each, which would take the GIL in turns."""
_MOST_SLOW: Final = 4
"""Units at once whose hooks take longer than that."""


class Engine:
    """Workers on the one loop of the process.

    Args:
        post: gives the result of a job to the span thread. Any thread.
        workers: jobs scored at the same time; as many more are made ahead.
    """

    def __init__(
        self,
        queue: Queue,
        pipeline: Pipeline,
        evaluation: Evaluation,
        *,
        post: Callable[[JobResult], None],
        workers: int = 32,
    ) -> None:
        self._queue = queue
        self._pipeline = pipeline
        self._evaluation = evaluation
        self._post = post
        self._workers = workers
        self.reset()

    def reset(self) -> None:
        """Forget the workers: in a forked child their loop does not run."""
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: deque[SampledUnit] = deque()
        self._makers: set[asyncio.Task[None]] = set()
        self._ahead = 0
        self._slow = 0
        self._stopped = False

    def accept(self, sampled: Sequence[SampledUnit]) -> None:
        """Take sampled units, whose places in the queue are reserved. Span thread; one wake-up of the loop for all."""
        loop.running().call_soon_threadsafe(self._accept, sampled)

    def stop(self, timeout_s: float) -> None:
        """Cancel the workers, empty the queue; what swallows its cancellation is left behind. Any thread but the loop's."""
        self._stopped = True
        if self._tasks:
            with suppress(TimeoutError):
                loop.submit(self._stop(timeout_s)).result(timeout_s)

    async def _stop(self, timeout_s: float) -> None:
        tasks, self._tasks = [*self._tasks, *self._makers], []
        for task in tasks:
            task.cancel()
        self._queue.close()
        self._make_jobs()  # no more jobs are made: gives back the places of units that wait
        await asyncio.wait(tasks, timeout=timeout_s)

    def _accept(self, sampled: Sequence[SampledUnit]) -> None:
        if not self._tasks and not self._stopped:
            start = asyncio.get_running_loop().create_task
            self._tasks = [start(self._work(), context=suppressed_context()) for _ in range(self._workers)]
        self._waiting.extend(sampled)
        self._make_jobs()

    def _make_jobs(self) -> None:
        if not self._waiting:
            return
        with suppressed():  # a filter or a redactor may ask a model
            while self._waiting and (self._may_make() or self._stopped):
                self._take(self._waiting.popleft())
                yield_gil()

    def _may_make(self) -> bool:
        """Whether the next job may be begun: in order, and not past those of which it is not known yet that they take long."""
        return self._ahead < self._workers and len(self._makers) == self._slow < _MOST_SLOW

    def _take(self, sampled: SampledUnit) -> None:
        if self._stopped:
            self._queue.cancel(sampled.size_bytes)
            return
        self._ahead += 1
        if self._pipeline.box.has_hooks:
            task = asyncio.get_running_loop().create_task(self._make(sampled), context=suppressed_context())
            self._makers.add(task)
            return
        try:
            self._queue.put(self._pipeline.job(sampled))
        except Exception as error:  # noqa: BLE001  (the other units of this call go on)
            self._spoilt(sampled, error)

    async def _make(self, sampled: SampledUnit) -> None:
        """Make a job whose hooks may hang: the next ones wait for a moment, and then pass it."""
        making = asyncio.ensure_future(self._pipeline.job_in_time(sampled))
        slow = False
        try:
            await asyncio.wait({making}, timeout=_MOMENT_S)
            if slow := not making.done():
                self._slow += 1
                self._make_jobs()
            self._queue.put(await making)
        except BaseException as error:  # noqa: BLE001  (also where some judge cancels whatever runs on its loop)
            making.cancel()
            self._spoilt(sampled, error)
        self._slow -= slow
        self._makers -= {asyncio.current_task()}
        self._make_jobs()

    def _spoilt(self, sampled: SampledUnit, error: BaseException) -> None:
        self._ahead -= 1
        self._queue.cancel(sampled.size_bytes)
        if self._stopped:
            return
        log_internal_error("make a job", error)
        self._post(JobResult(sampled.unit.without_content(), ()))

    async def _work(self) -> None:
        while True:
            try:
                job = await self._queue.get()
                self._ahead -= 1
                self._make_jobs()
                await self._do(job)
            except asyncio.CancelledError:
                if self._stopped:
                    raise
            yield_gil()

    async def _do(self, job: Job) -> None:
        scores: Sequence[Score] = ()
        try:
            scores = await self._evaluation.scores(job)
        except BaseException as error:
            if self._stopped:
                raise
            log_internal_error("score a job", error)
        finally:
            self._queue.ack(job)
        self._post(JobResult(job.unit, scores, job.samples.attributes()))

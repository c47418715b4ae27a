"""Engine: chosen units on the loop → jobs → scores, posted back to the span thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from spanscore import loop
from spanscore.engine.units import Settled
from spanscore.evaluation import Evaluation
from spanscore.model.job import Job
from spanscore.pipeline import Chosen, Pipeline
from spanscore.protocols import Queue

__all__ = ["Engine"]


class Engine:
    """Workers on the one loop of the process.

    Args:
        post: gives a settled job back to the span thread. Any thread.
        workers: jobs scored at the same time.
    """

    def __init__(
        self,
        queue: Queue,
        pipeline: Pipeline,
        evaluation: Evaluation,
        *,
        post: Callable[[Settled], None],
        workers: int = 32,
    ) -> None:
        self._queue = queue
        self._pipeline = pipeline
        self._evaluation = evaluation
        self._post = post
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []

    def reset(self) -> None:
        """Forget the workers: in a forked child their loop does not run."""
        self._tasks = []

    def accept(self, chosen: Sequence[Chosen]) -> None:
        """Take chosen units, whose places in the queue are reserved. Span thread; one wake-up of the loop for all."""
        loop.running().call_soon_threadsafe(self._accept, chosen)

    def stop(self) -> None:
        """Cancel the workers; nothing waits for them. Any thread."""
        tasks, self._tasks = self._tasks, []
        if tasks:
            loop.running().call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

    def _accept(self, chosen: Sequence[Chosen]) -> None:
        if not self._tasks:
            self._tasks = [asyncio.get_running_loop().create_task(self._work()) for _ in range(self._workers)]
        for unit in chosen:
            self._queue.put(self._pipeline.job(unit))

    async def _work(self) -> None:
        while True:
            job = await self._queue.get()
            await self._do(job)

    async def _do(self, job: Job) -> None:
        try:
            scores = await self._evaluation.scores(job)
        finally:
            self._queue.ack(job)
        self._post(Settled(job.unit, scores))

"""BegunJob: what the engine knows of a job whose metrics are at work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from spanscore.model.score import Score
from spanscore.scoring.evaluation import JobAtWork

__all__ = ["BegunJob"]


@dataclass(slots=True, eq=False)
class BegunJob:
    """A job that was begun.

    Attributes:
        worker: what its worker waits for; None where it was over at once.
        staying: while it does so in any case.
        posting: whether scores that are in are about to be posted.
        told: the scores so far, where anybody wants all of them.
        lost: another process has it.
    """

    worker: asyncio.Future[None] | None = None
    staying: asyncio.TimerHandle | None = None
    posting: bool = False
    told: list[Score] = field(default_factory=list)
    lost: bool = False
    job: JobAtWork = field(init=False)

    def free_worker(self) -> None:
        """Let the worker go on to another unit."""
        if self.staying is not None:
            self.staying.cancel()
        if self.worker is not None and not self.worker.done():
            self.worker.set_result(None)

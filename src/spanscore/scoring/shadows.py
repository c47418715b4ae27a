"""Shadows: second judges, asked about the samples that the metrics score; their scores stand beside those, never among them.

They have deadlines, a budget and room of their own: one that fails, is slow or is away costs the metrics nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, replace
from math import inf

from spanscore import semconv
from spanscore.core.job import Job, JobResult
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome, from_source
from spanscore.scoring.evaluation import Evaluation, JobAtWork
from spanscore.scoring.memory_queue import MemoryQueue
from spanscore.units.ledger import Ledger

__all__ = ["Shadows"]


@dataclass(eq=False, repr=False)
class Shadows:
    """The second judges of one scorer. Loop thread.

    Attributes:
        metrics: names of those that have one.
        evaluation: asks them.
        ledger: of them alone: a unit is eligible from the moment in which its metrics are begun.
        room: holds the units of which their scores are to come; those past it are ``queue_full``.
        post: gives their scores to the span thread.
        source: of their scores.
    """

    metrics: Collection[str]
    evaluation: Evaluation
    _: KW_ONLY
    ledger: Ledger
    room: MemoryQueue
    post: Callable[[JobResult], None]
    source: str = semconv.SOURCE_SHADOW

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._at_work: set[JobAtWork] = set()
        self._stopped = False
        self.evaluation.reset()
        self.room.reset()

    def begin(self, job: Job) -> None:
        """Begin those of the metrics that were chosen for a job. Never raises: the job's own scores are another matter."""
        asked = {name: decision for name, decision in job.decisions.items() if name in self.metrics}
        key = job.unit.key
        if not asked or not self.ledger.enter(key, asked.keys()):
            return
        self.ledger.choose(key, asked)
        self.ask(replace(job, decisions=asked, held_until_s=-inf))  # no span waits for them

    def ask(self, job: Job) -> None:
        """Begin the metrics of a job whose unit has entered the ledger. Never raises."""
        if self._stopped or not self.room.reserve(job.size_bytes):
            self._end(job, Outcome.SHUTDOWN if self._stopped else Outcome.QUEUE_FULL)
            return
        try:
            at_work = self.evaluation.begin(job, lambda: self._changed(at_work))
            self._at_work.add(at_work)
            self._changed(at_work)
        except Exception as error:  # noqa: BLE001  (the job's own scores go on)
            log_internal_error("ask a second judge", error)
            self._end(job, Outcome.METRIC_ERROR)

    def give_up(self) -> None:
        """Let all of them go: no score will use their answers."""
        for at_work in self._at_work:
            at_work.give_up()

    def stop(self) -> None:
        """Tell what they have asked for in vain, and begin no more."""
        self._stopped = True
        for at_work in list(self._at_work):
            at_work.scores += at_work.unused()
            self._changed(at_work)

    def _end(self, job: Job, outcome: Outcome) -> None:
        for name in job.decisions:
            self.ledger.settle(job.unit.key, name, outcome)

    def _changed(self, at_work: JobAtWork) -> None:
        unit = at_work.job.unit
        if scores := [from_source(score, unit, self.source) for score in at_work.take()]:
            self.post(JobResult(unit, scores, over=at_work.is_over))
        if at_work.is_over:
            self._at_work.discard(at_work)
            self.room.ack(at_work.job)

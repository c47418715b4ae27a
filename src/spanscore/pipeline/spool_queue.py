"""``SpoolQueue`` keeps jobs on a disk, so that they outlive the process, and a bounded number of jobs also in memory.

    put ─▶ on the disk ─▶ leased, in memory ─▶ begun ─▶ scores kept ─▶ emitted, exported ─▶ deleted
                 └─▶ without a lease: ``delegated`` ─▶ taken, here or by another process ─▶ begun …

A *lease* is the right to score a job: one process has it. A job beyond the bound in memory has no lease, and is taken later:
a backlog needs disk space, and no memory. *Delegated* jobs are scored by any process that reads the file.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Final

from spanscore.core.codecs.job import UnreadableJob, job_of, json_of_job, json_of_scores, scores_of
from spanscore.core.job import Job
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit, UnitKey
from spanscore.durable.rows import PutResult, RowEnd, RowKey, SpoolRow, metrics_of, text_of_metrics
from spanscore.durable.spool import SpoolFile
from spanscore.pipeline.queues import MemoryQueue

_PASSING: Final = 20
"""Units on their way to the disk for each unit that may be in memory, so that a burst passes as fast as the disk allows."""
_AT_ONCE: Final = 64
"""Number of rows that are taken at once."""
_LOOK_S: Final = 1.0
"""Pause between two searches for rows of other processes: delegated rows, and rows of processes that have ended."""
_PROVISIONAL: Final = 1 << 31
_COME_AGAIN: Final = {
    PutResult.KNOWN: "the unit is in the spool already",
    PutResult.DONE: "the unit came again: its scores have been exported (spanscore.redelivered)",
}
_ENDS: Final = {
    RowEnd.EXPIRED: (Outcome.EXPIRED, "it waited in the spool for longer than max_age"),
    RowEnd.DEAD_LETTER: (
        Outcome.METRIC_ERROR,
        "three processes crashed while they scored the unit: it is a dead letter in the spool",
    ),
}


def row_key(unit: Unit) -> RowKey:
    """Return the key of a unit's job in a spool; a conversation that goes on has a new key with each turn."""
    revision = unit.revision
    if unit.session is not None and unit.is_provisional:
        revision = _PROVISIONAL + unit.session.turns
    return RowKey(*unit.ledger_key, revision)


@dataclass(eq=False, repr=False)
class SpoolQueue:
    """Implements ``DurableQueue``. Call on the loop thread, except for sizes and the methods that name another thread.

    Attributes:
        spool: file with the jobs.
        in_memory: maximum number of jobs leased by this process, which wait in memory or are being scored.
        max_bytes: approximate bytes of content in memory: one half for leased jobs, one half for jobs on their way to the
            disk.
        scores_here: whether this process scores jobs; otherwise each job is delegated.
        unreadable: called with the reason if a row cannot be decoded; the row becomes a dead letter in the file.
        resource: returns the resource of this process, which is written with a job.
        passing: maximum number of units on their way to the disk; None = twenty for each of ``in_memory``.
        metrics: names of this process's metrics; jobs of other metrics wait for a process that has these. None = it has all.
        redelivered: units that arrived again: put once more, or taken with all scores, which may have been emitted before.
    """

    spool: SpoolFile
    _: KW_ONLY
    in_memory: int = 1_000
    max_bytes: int = 256_000_000
    scores_here: bool = True
    unreadable: Callable[[str], None] = lambda because: None
    resource: Callable[[], Mapping[str, Any]] = dict
    passing: int | None = None
    metrics: Collection[str] | None = None

    def __post_init__(self) -> None:
        self.on_result(lambda job, outcome, reason: None)
        self.reset()

    def reset(self) -> None:
        """Return to the initial state, in a forked child process; the parent keeps the leases."""
        self._passing = MemoryQueue(self.passing or _PASSING * self.in_memory, self.max_bytes // 2)
        self._memory = MemoryQueue(self.in_memory, self.max_bytes // 2)
        self.redelivered = 0
        self._kept: set[UnitKey] = set()  # units with a job in memory and a row on the disk
        self._rests: dict[RowKey, str] = {}  # rows in work → the metrics that this process lacks
        self._results: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._wakes = False
        self._life = object()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.TimerHandle | None = None
        self._takes = False
        self._more = False
        self._closed = False

    @property
    def capacity(self) -> int:
        """Maximum number of units on their way to the disk."""
        return self._passing.capacity

    def __len__(self) -> int:
        """Number of units on their way to the disk, and of jobs in memory."""
        return len(self._passing) + len(self._memory)

    def reserve(self, size_bytes: int) -> bool:
        """Reserve a place on the way to the disk. Returns False if all are taken, or the spool accepts no job. Thread-safe.

        If no unit is on its way, one is accepted in any case, so that the queue notices when the disk accepts jobs again.
        """
        if len(self._passing) and self.spool.room(size_bytes) is not None:
            return False
        return self._passing.reserve(size_bytes)

    def cancel(self, size_bytes: int) -> None:
        """Release a reserved place. Thread-safe."""
        self._passing.cancel(size_bytes)

    def rejection_reason(self) -> str | None:
        """Return why the spool accepts no job. Thread-safe."""
        return self.spool.room(1)

    def is_durable(self, key: UnitKey) -> bool:
        """Whether a unit's job is in memory and on the disk, so that it is scored even if this process ends. Thread-safe."""
        return key in self._kept

    def on_result(self, callback: Callable[[Job, Outcome | None, str | None], None]) -> None:
        """Set the callback of each job that is put; see ``DurableQueue.on_result``."""
        self._on_result = callback

    def begin(self) -> None:
        """Take jobs without an owner, now and at intervals, if this process scores jobs."""
        if self._look is None and self.scores_here and not self._closed:
            self._loop = asyncio.get_running_loop()
            self._look_for_more()

    def put(self, job: Job) -> None:
        """Write a job to the disk, and then release the job's place."""
        body = json_of_job(job, self.resource() or None)
        self._loop = asyncio.get_running_loop()
        own = self.scores_here and not self._closed and not self._more and self._memory.reserve(job.size_bytes)
        callback = self._soon(partial(self._was_put, job, own))
        self.spool.put(row_key(job.unit), body, callback, own=own, metrics=text_of_metrics(job.decisions))

    async def get(self) -> Job:
        """Wait for the next job. From then on, a crash counts against the job."""
        self._loop = loop = asyncio.get_running_loop()
        job = await self._memory.get()
        begun = loop.create_future()
        self.spool.begin([row_key(job.unit)], self._soon(lambda: None if begun.done() else begun.set_result(None)))
        try:
            await begun
        except asyncio.CancelledError:
            self._memory.put(job)
            raise
        return job

    def save_scores(self, job: Job, scores: Sequence[Score], callback: Callable[[bool], None]) -> None:
        """Write all scores of a job so far, then call ``callback``: with False if another process has the row by now."""
        self.spool.keep_scores(row_key(job.unit), json_of_scores(scores), self._soon(callback))

    def mark_exported(self, units: Sequence[Unit]) -> None:
        """Delete rows with exported scores; keep rows for metrics that this process lacks. Thread-safe.

        A conversation is not remembered: if it continues after a restart, it counts as a new conversation with the same id.
        """
        rests = [(unit, row_key(unit), self._rests.pop(row_key(unit), None)) for unit in units]
        for is_session in (False, True):
            done = [key for unit, key, rest in rests if rest is None and (unit.session is not None) == is_session]
            self.spool.done(done, remember=not is_session)
        for _, key, rest in rests:
            if rest is not None:
                self.spool.leave(key, rest)

    def mark_counted(self, units: Sequence[Unit]) -> None:
        """Record that sums with the scores of these units were exported, though the scores were not. Thread-safe.

        A row that waits for a metric of another process is not marked, because the mark would apply to that metric's score,
        too.
        """
        keys = [row_key(unit) for unit in units if unit.session is None]
        self.spool.remember(key for key in keys if key not in self._rests)

    def mark_sent(self, units: Sequence[Unit]) -> None:
        """Keep the rows of units with exported scores until the sums with these scores are exported (``mark_exported``).

        A row with metrics that this process lacks is given up at once, because these wait for another process. Thread-safe.
        """
        keys = {row_key(unit): unit for unit in units}
        left = [key for key in keys if key in self._rests]
        self.spool.mark_sent([key for key in keys if key not in left])
        self.mark_exported([keys[key] for key in left])

    def ack(self, job: Job) -> None:
        """Release the place of a job that is done, and take waiting rows from the disk."""
        if not job.unit.revision:
            self._kept.discard(job.unit.key)
        self._memory.ack(job)
        if self._more and self._room() >= min(_AT_ONCE, self._memory.capacity // 4):
            self._take()

    def close(self) -> list[Job]:
        """Return the jobs that no worker took. These jobs, and jobs that are put from now on, have no owner."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        left = self._memory.close()
        self.spool.give_back([row_key(job.unit) for job in left])
        return left

    # --- put jobs ----------------------------------------------------------------------------------------------

    def _was_put(self, job: Job, own: bool, put: PutResult, reason: str | None) -> None:
        self.cancel(job.size_bytes)
        if put is PutResult.KEPT and own and not self._closed:
            if not job.unit.revision:
                self._kept.add(job.unit.key)
            self._on_result(job, None, None)
            self._memory.put(job)
            return
        if own:
            self._memory.ack(job)
        if put is PutResult.KEPT:
            if own:  # the queue was closed meanwhile
                self.spool.give_back([row_key(job.unit)])
            self._more = self.scores_here
            self._on_result(job, Outcome.DELEGATED, None)
        elif put in _COME_AGAIN:
            self.redelivered += 1
            self._on_result(job, Outcome.DELEGATED, _COME_AGAIN[put])
        else:
            self._on_result(job, Outcome.QUEUE_FULL, reason)

    # --- taken jobs --------------------------------------------------------------------------------------------

    def _look_for_more(self) -> None:
        assert self._loop is not None
        self._look = self._loop.call_later(_LOOK_S, self._look_for_more)
        self._take()
        if self._room():
            self.spool.take(min(self._room(), _AT_ONCE), "job", self._soon(self._took_ended), ended_only=True)

    def _room(self) -> int:
        return self._memory.capacity - len(self._memory)

    def _take(self) -> None:
        if self._takes or self._closed or not self._room():
            return
        self._takes = True
        asked = min(self._room(), _AT_ONCE)
        self.spool.take(asked, "job", self._soon(partial(self._took, asked)), has=self._has_one_of)

    def _took(self, asked: int, rows: list[SpoolRow]) -> None:
        self._takes, self._more = False, len(rows) == asked
        for row in rows:
            job = self._job(row)
            if job is not None:
                self._take_in(row.key, job)
        if self._more:
            self._take()

    def _took_ended(self, rows: list[SpoolRow]) -> None:
        for row in rows:
            job = self._job(row)
            if job is not None and row.end is not None:
                outcome, reason = _ENDS[row.end]
                self._take_in(row.key, replace(job, samples=Samples(outcome=outcome, reason=reason)))

    def _take_in(self, key: RowKey, job: Job) -> None:
        if self._closed or not self._memory.reserve(job.size_bytes):
            self.spool.give_back([key])
            self._more = True
            return
        self._memory.put(job)

    def _job(self, row: SpoolRow) -> Job | None:
        job = job_of(row.body)
        if isinstance(job, UnreadableJob):
            self.unreadable(job.because)
            (self.spool.put_aside if row.end is None else self.spool.done)([row.key])
            return None
        scored = () if row.scores is None else scores_of(row.scores)
        scored = () if isinstance(scored, UnreadableJob) else scored  # the judge is asked again
        scored = tuple(replace(score, counted=row.counted, sent=row.sent) for score in scored)
        part = self._part(replace(job, taken_s=asyncio.get_running_loop().time(), scored=scored), row)
        if part is not None and scored and part.decisions.keys() <= {score.metric for score in scored}:
            self.redelivered += 1
        return part

    def _part(self, job: Job, row: SpoolRow) -> Job | None:
        """Return a job with the metrics that this process can score, and record the other metrics; None without a metric."""
        names = {*(metrics_of(row.metrics) or job.decisions)}
        lacking = set() if self.metrics is None or row.end is not None else names.difference(self.metrics)
        lacking -= {score.metric for score in job.scored}
        if lacking and lacking == names:  # the row has no list of metrics: an earlier version wrote it
            self.spool.leave(row.key, text_of_metrics(names))
            return None
        if lacking:
            self._rests[row.key] = text_of_metrics(lacking)
        decisions = {name: taken for name, taken in job.decisions.items() if name in names and name not in lacking}
        # Metrics that depend on scores are decided on once, by the process that takes the whole row.
        undecided = job.undecided if names >= job.decisions.keys() else None
        return replace(job, decisions=decisions, undecided=undecided)

    def _has_one_of(self, metrics: str) -> bool:
        """Whether this process has a metric of a row. Runs on the spool's thread."""
        names = metrics_of(metrics)
        if not names or self.metrics is None or any(name in self.metrics for name in names):
            return True
        listed = ", ".join(names)
        log_once(
            f"spool {self.spool.path} {listed}",
            f"the spool {self.spool.path} has units for metrics that this process lacks: {listed}; they wait for a process "
            "that has them, until spool.max_age",
        )
        return False

    # --- the spool's thread ------------------------------------------------------------------------------------

    def _soon(self, answer: Callable[..., Any]) -> Callable[..., None]:
        """Return a function that runs a callback on the loop, in one step with all others that are due. Not after a fork."""
        life = self._life

        def post(*arguments: Any) -> None:
            with self._lock:
                if life is not self._life:
                    return
                self._results.append(partial(answer, *arguments))
                wakes, self._wakes = self._wakes, True
            if not wakes and self._loop is not None:
                with suppress(RuntimeError):  # the loop was closed
                    self._loop.call_soon_threadsafe(self._process_results)

        return post

    def _process_results(self) -> None:
        with self._lock:
            results, self._results, self._wakes = self._results, deque(), False
        for answer in results:
            try:
                answer()
            except Exception as error:  # noqa: BLE001  (the other callbacks must run)
                log_internal_error("process the result of a job", error)

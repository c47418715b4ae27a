"""``SpoolQueue`` keeps jobs on the disk, so that they outlive the process, and a bounded number of these jobs also in memory.

    put ─▶ on the disk ─┬─ leased, in memory ─▶ begun ─▶ scores stored ─▶ emitted, exported ─▶ deleted
                        └─ without a lease: ``delegated`` ─▶ taken by this or another process ─▶ begun …

A *lease* is the right to score a job, which one process has. A job beyond the bound in memory has no lease, and is taken
later: a backlog takes disk space, but no memory. *Delegated* jobs are scored by any process that reads the file.
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

_TRANSIT_FACTOR: Final = 20
"""Maximum number of units on their way to the disk per unit that may be in memory, so that only the disk limits a burst."""
_BATCH: Final = 64
"""Maximum number of rows that are taken in one step."""
_SEARCH_S: Final = 1.0
"""Pause between two searches for rows of other processes: delegated rows, and rows of processes that have ended."""
_PROVISIONAL: Final = 1 << 31
"""Revision in the row key of a provisional scoring, without its turns; they are added. Other revisions are far lower."""
_REPEATED: Final = {
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
    """Return the key of a unit's job in a spool. The key of a provisional scoring contains the number of turns."""
    revision = unit.revision
    if unit.session is not None and unit.is_provisional:
        revision = _PROVISIONAL + unit.session.turns
    return RowKey(*unit.ledger_key, revision)


@dataclass(eq=False, repr=False)
class SpoolQueue:
    """Implements ``DurableQueue``. Call on the loop thread, except for sizes and the methods that name another thread.

    A row of the file waits for the export of its scores, and of the sums with these scores:

    ===================  ==================  ==============================================================
    exported             method              the row
    ===================  ==================  ==============================================================
    scores, no sums      ``mark_sent``       stays; a process that takes it only adds the scores to its sums
    sums, no scores      ``mark_counted``    stays; a process that takes it only emits the scores
    both                 ``mark_exported``   is deleted, or released for metrics that this process lacks
    ===================  ==================  ==============================================================

    Attributes:
        in_memory: maximum number of jobs leased by this process, which wait in memory or are being scored.
        max_bytes: approximate bytes of content in memory: one half for leased jobs, one half for jobs on their way to the
            disk.
        scores_here: whether this process scores jobs; otherwise each job is delegated.
        unreadable: called with the reason for each row that cannot be decoded, which becomes a dead letter in the file.
        resource: returns the resource of this process, which is written with a job.
        max_in_transit: maximum number of units on their way to the disk; None = twenty for each of ``in_memory``.
        metrics: names of this process's metrics; jobs for other metrics wait for a process that has them. None = all metrics.
        redelivered: number of units that arrived again: jobs that the spool had already when they were put, and rows taken with
            all scores, which an ended process may have emitted.
    """

    spool: SpoolFile
    _: KW_ONLY
    in_memory: int = 1_000
    max_bytes: int = 256_000_000
    scores_here: bool = True
    unreadable: Callable[[str], None] = lambda because: None
    resource: Callable[[], Mapping[str, Any]] = dict
    max_in_transit: int | None = None
    metrics: Collection[str] | None = None

    def __post_init__(self) -> None:
        self.on_result(lambda job, outcome, reason: None)
        self.reset()

    def reset(self) -> None:
        """Return to the initial state, in a forked child process; the parent keeps the leases."""
        self._in_transit = MemoryQueue(self.max_in_transit or _TRANSIT_FACTOR * self.in_memory, self.max_bytes // 2)
        self._memory = MemoryQueue(self.in_memory, self.max_bytes // 2)
        self.redelivered = 0
        self._durable_units: set[UnitKey] = set()  # with a job in memory and a row on the disk
        self._other_metrics: dict[RowKey, str] = {}  # row in work → metrics that this process lacks
        self._results: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._wake_scheduled = False
        self._generation = object()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._search_timer: asyncio.TimerHandle | None = None
        self._is_taking = False
        self._has_more = False  # rows without a lease wait on the disk, so new jobs queue behind them there
        self._closed = False

    @property
    def capacity(self) -> int:
        """Maximum number of units on their way to the disk."""
        return self._in_transit.capacity

    def __len__(self) -> int:
        """Number of units on their way to the disk, and of jobs in memory."""
        return len(self._in_transit) + len(self._memory)

    def reserve(self, size_bytes: int) -> bool:
        """Reserve a place on the way to the disk. Returns False if none is free, or if the spool accepts no job. Thread-safe.

        If no unit is on its way, one is accepted in any case, to try whether the disk accepts jobs again.
        """
        if len(self._in_transit) and self.spool.room(size_bytes) is not None:
            return False
        return self._in_transit.reserve(size_bytes)

    def cancel(self, size_bytes: int) -> None:
        """Release a reserved place. Thread-safe."""
        self._in_transit.cancel(size_bytes)

    def rejection_reason(self) -> str | None:
        """Return why the spool accepts no job. Thread-safe."""
        return self.spool.room(1)

    def is_durable(self, key: UnitKey) -> bool:
        """Whether a unit's job is in memory and on the disk, so that it is scored even if this process ends. Thread-safe."""
        return key in self._durable_units

    def on_result(self, callback: Callable[[Job, Outcome | None, str | None], None]) -> None:
        """Set the callback of each job that is put; see ``DurableQueue.on_result``."""
        self._on_result = callback

    def begin(self) -> None:
        """Take jobs without an owner, now and at intervals, if this process scores jobs."""
        if self._search_timer is None and self.scores_here and not self._closed:
            self._loop = asyncio.get_running_loop()
            self._search()

    def put(self, job: Job) -> None:
        """Write a job to the disk, and then release the job's place."""
        body = json_of_job(job, self.resource() or None)
        self._loop = asyncio.get_running_loop()
        own = self.scores_here and not self._closed and not self._has_more and self._memory.reserve(job.size_bytes)
        callback = self._on_loop(partial(self._on_put, job, own))
        self.spool.put(row_key(job.unit), body, callback, own=own, metrics=text_of_metrics(job.decisions))

    async def get(self) -> Job:
        """Wait for the next job. From then on, a crash counts against the job."""
        self._loop = loop = asyncio.get_running_loop()
        job = await self._memory.get()
        begun = loop.create_future()
        self.spool.begin([row_key(job.unit)], self._on_loop(lambda: None if begun.done() else begun.set_result(None)))
        try:
            await begun
        except asyncio.CancelledError:
            self._memory.put(job)
            raise
        return job

    def save_scores(self, job: Job, scores: Sequence[Score], callback: Callable[[bool], None]) -> None:
        """Write all scores of a job so far, then call ``callback``: with False if another process has the lease by now."""
        self.spool.keep_scores(row_key(job.unit), json_of_scores(scores), self._on_loop(callback))

    def mark_exported(self, units: Sequence[Unit]) -> None:
        """Delete rows whose scores and sums are exported; release rows for metrics that this process lacks. Thread-safe.

        If no sums are awaited, the export of the scores is enough. A conversation is not remembered: if it continues after a
        restart, it counts as a new conversation with the same id.
        """
        rows = [(unit, row_key(unit), self._other_metrics.pop(row_key(unit), None)) for unit in units]
        for is_session in (False, True):
            done = [key for unit, key, others in rows if others is None and (unit.session is not None) == is_session]
            self.spool.done(done, remember=not is_session)
        for _, key, others in rows:
            if others is not None:
                self.spool.leave(key, others)

    def mark_counted(self, units: Sequence[Unit]) -> None:
        """Mark rows with exported sums, whose scores are not exported yet. Thread-safe.

        A row that waits for a metric of another process is not marked, because the mark would also apply to that metric.
        """
        keys = [row_key(unit) for unit in units if unit.session is None]
        self.spool.remember(key for key in keys if key not in self._other_metrics)

    def mark_sent(self, units: Sequence[Unit]) -> None:
        """Mark rows with exported scores, and keep them until the sums with these scores are exported. Thread-safe.

        A row for further metrics, which this process lacks, is passed on at once.
        """
        by_key = {row_key(unit): unit for unit in units}
        passed_on = [key for key in by_key if key in self._other_metrics]
        self.spool.mark_sent([key for key in by_key if key not in passed_on])
        self.mark_exported([by_key[key] for key in passed_on])

    def ack(self, job: Job) -> None:
        """Release the place of a job that has ended, and take waiting rows from the disk."""
        if not job.unit.revision:
            self._durable_units.discard(job.unit.key)
        self._memory.ack(job)
        if self._has_more and self._free_places() >= min(_BATCH, self._memory.capacity // 4):
            self._take()

    def close(self) -> list[Job]:
        """Return the jobs that no worker took. These jobs, and jobs that are put from now on, have no owner."""
        self._closed = True
        if self._search_timer is not None:
            self._search_timer.cancel()
        jobs = self._memory.close()
        self.spool.give_back([row_key(job.unit) for job in jobs])
        return jobs

    # --- jobs of this process -----------------------------------------------------------------------------------

    def _on_put(self, job: Job, own: bool, put: PutResult, reason: str | None) -> None:
        """Continue with the spool's answer to ``put``; ``own``: whether the job has a place in memory, and a lease."""
        self.cancel(job.size_bytes)
        if put is PutResult.KEPT and own and not self._closed:
            if not job.unit.revision:
                self._durable_units.add(job.unit.key)
            self._on_result(job, None, None)
            self._memory.put(job)
            return
        if own:
            self._memory.ack(job)
        if put is PutResult.KEPT:
            if own:  # the queue was closed meanwhile
                self.spool.give_back([row_key(job.unit)])
            self._has_more = self.scores_here
            self._on_result(job, Outcome.DELEGATED, None)
        elif put in _REPEATED:
            self.redelivered += 1
            self._on_result(job, Outcome.DELEGATED, _REPEATED[put])
        else:
            self._on_result(job, Outcome.QUEUE_FULL, reason)

    # --- jobs without an owner ----------------------------------------------------------------------------------

    def _search(self) -> None:
        assert self._loop is not None
        self._search_timer = self._loop.call_later(_SEARCH_S, self._search)
        self._take()
        if self._free_places():
            callback = self._on_loop(self._add_rows)
            self.spool.take(min(self._free_places(), _BATCH), "job", callback, ended_only=True)

    def _free_places(self) -> int:
        return self._memory.capacity - len(self._memory)

    def _take(self) -> None:
        if self._is_taking or self._closed or not self._free_places():
            return
        self._is_taking = True
        asked = min(self._free_places(), _BATCH)
        self.spool.take(asked, "job", self._on_loop(partial(self._on_rows, asked)), has=self._has_one_of)

    def _on_rows(self, asked: int, rows: list[SpoolRow]) -> None:
        self._is_taking, self._has_more = False, len(rows) == asked
        self._add_rows(rows)
        if self._has_more:
            self._take()

    def _add_rows(self, rows: list[SpoolRow]) -> None:
        for row in rows:
            job = self._decode(row)
            if job is None:
                continue
            if self._closed or not self._memory.reserve(job.size_bytes):
                self.spool.give_back([row.key])
                self._has_more = True
            else:
                self._memory.put(job)

    def _decode(self, row: SpoolRow) -> Job | None:
        job = job_of(row.body)
        if isinstance(job, UnreadableJob):
            self.unreadable(job.because)
            # an expired row is deleted, and a dead letter stays, marked as counted
            end_row = self.spool.put_aside if row.end is None else self.spool.done
            end_row([row.key])
            return None
        if row.end is not None:
            outcome, reason = _ENDS[row.end]
            job = replace(job, samples=Samples(outcome=outcome, reason=reason))
        scored = () if row.scores is None else scores_of(row.scores)
        scored = () if isinstance(scored, UnreadableJob) else scored  # the judge is asked again
        scored = tuple(replace(score, counted=row.counted, sent=row.sent) for score in scored)
        part = self._scorable_part(replace(job, taken_s=asyncio.get_running_loop().time(), scored=scored), row)
        if part is not None and scored and part.decisions.keys() <= {score.metric for score in scored}:
            self.redelivered += 1
        return part

    def _scorable_part(self, job: Job, row: SpoolRow) -> Job | None:
        """Return a job with only the row's metrics that have a score or that this process has; None without such metrics.

        The metrics of a row are its list, or without a list all metrics of the job. Metrics without a score that this process
        lacks are recorded, and the row is released for them when the scores of the others are exported. A row that has expired
        or is a dead letter ends with all its metrics.
        """
        names = {*(metrics_of(row.metrics) or job.decisions)}
        lacking = set() if self.metrics is None or row.end is not None else names.difference(self.metrics)
        lacking -= {score.metric for score in job.scored}
        if lacking and lacking == names:  # the row has no list of metrics: an earlier version wrote it
            self.spool.leave(row.key, text_of_metrics(names))
            return None
        if lacking:
            self._other_metrics[row.key] = text_of_metrics(lacking)
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

    def _on_loop(self, answer: Callable[..., Any]) -> Callable[..., None]:
        """Return a function that runs ``answer`` on the loop, together with all others that are due; no effect after a fork."""
        generation = self._generation

        def post(*arguments: Any) -> None:
            with self._lock:
                if generation is not self._generation:
                    return
                self._results.append(partial(answer, *arguments))
                wakes, self._wake_scheduled = self._wake_scheduled, True
            if not wakes and self._loop is not None:
                with suppress(RuntimeError):  # the loop was closed
                    self._loop.call_soon_threadsafe(self._process_results)

        return post

    def _process_results(self) -> None:
        with self._lock:
            results, self._results, self._wake_scheduled = self._results, deque(), False
        for answer in results:
            try:
                answer()
            except Exception as error:  # noqa: BLE001  (the other callbacks must run)
                log_internal_error("process the result of a job", error)

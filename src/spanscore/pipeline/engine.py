"""``ScoringEngine`` makes jobs of sampled units on the loop, scores them, and posts each score to the span thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count
from typing import Final

from spanscore.core import loop
from spanscore.core.event_queue import Turns, yield_gil
from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit, UnitKey
from spanscore.judges.score_context import suppress_tracing, suppressed_context
from spanscore.pipeline.evaluation import Evaluation, RunningJob, wait_for_cancelled
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.population import ScoreSource
from spanscore.protocols import DurableQueue, Queue


class UnitsInTransit:
    """Tracks units from the sampling decision until a durable queue has them, or until they have ended. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revisions: set[tuple[UnitKey, int]] = set()  # key and revision of each unit
        self._waiters: list[tuple[set[tuple[UnitKey, int]], Callable[[], None]]] = []

    def add(self, units: Iterable[Unit]) -> None:
        """Add sampled units."""
        with self._lock:
            self._revisions |= {(unit.ledger_key, unit.revision) for unit in units}

    def remove(self, unit: Unit) -> None:
        """Remove a unit that is on the disk or has ended; call the callbacks that waited for it alone."""
        revision = unit.ledger_key, unit.revision
        with self._lock:
            self._revisions.discard(revision)
            for revisions, _ in self._waiters:
                revisions.discard(revision)
            due = [callback for revisions, callback in self._waiters if not revisions]
            if due:
                self._waiters = [waiter for waiter in self._waiters if waiter[0]]
        for callback in due:
            callback()

    def when_removed(self, callback: Callable[[], None]) -> None:
        """Call a function when every unit that is in transit now is removed; immediately if no unit is."""
        with self._lock:
            if waits := bool(self._revisions):
                self._waiters.append(({*self._revisions}, callback))
        if not waits:
            callback()


_MAX_DELAY_S: Final = 0.05
"""Maximum time for which a slow hook delays the next units. Without a delay, the hooks' threads would contend for the GIL."""
_MAX_SLOW: Final = 4
"""Maximum number of concurrent units with hooks slower than ``_MAX_DELAY_S``."""
_MIN_STAY_S: Final = 0.2
"""Minimum time for which a worker stays with a unit whose metrics only wait. So 32 workers begin at most 160 units a second,
and a burst is not rendered at once.
"""
_JOBS_PER_TURN: Final = 8
"""Number of jobs after which a worker yields to the loop's other tasks, if each of the jobs ends immediately."""
_TAKEN_ELSEWHERE: Final = "another process has taken it"
_LEFT_IN_SPOOL: Final = "the scorer was shut down: the unit is in the spool"


@dataclass(eq=False, repr=False)
class ScoringEngine:
    """Makes jobs of sampled units, and runs workers on the process's loop that score them; each score is posted on arrival.

    Jobs are made only a little ahead of the workers, so that the content of a traffic burst is not rendered during the burst. A
    unit needs no worker while its metrics only wait: as many units as the queue has places may wait for judges. Whatever
    happens to a job, its place in the queue is released, and its end is posted. With a ``DurableQueue``, scores are stored
    before they are posted: after a crash they are emitted again, and no judge is asked again.

    Attributes:
        evaluation: returns the evaluation that scores a unit. Called on the loop.
        post: posts scores of a job to the span thread. Called on any thread.
        on_samples: passes the samples of a unit to the span thread, if an observer is interested. Called on any thread.
        on_foreign_job: passes a job from another process to the span thread, before its scores. Called on any thread.
        on_end: called on the loop thread with a job that has ended here, and all its scores; not for inner units. Must not
            block. None = no call.
        sources: score sources that get each job that begins; the sources stop with the workers.
        workers: maximum number of jobs with metrics that compute; as many further jobs are made ahead.
        turns: bounds the time for which the loop runs without a rest for the application; None = without bound.
    """

    queue: Queue
    builder: JobBuilder
    evaluation: Callable[[Unit], Evaluation]
    _: KW_ONLY
    post: Callable[[JobResult], None]
    on_samples: Callable[[Unit, Samples], None] = lambda unit, samples: None
    on_foreign_job: Callable[[Job], None] = lambda job: None
    on_end: Callable[[Job, Sequence[Score]], None] | None = None
    sources: Sequence[ScoreSource] = ()
    workers: int = 32
    turns: Turns | None = None

    def __post_init__(self) -> None:
        self._durable = self.queue if isinstance(self.queue, DurableQueue) else None
        self.in_transit = UnitsInTransit()
        self._tasks: list[asyncio.Task[None]] = []  # the workers
        self._waiting: deque[SampledUnit] = deque()  # units without a job
        self._active: set[ActiveJob] = set()
        self._undecided: dict[UnitKey, ActiveJob] = {}  # jobs for which further metrics may be decided on
        self._makers: set[asyncio.Task[None]] = set()  # each makes a job with hooks
        self._ahead = 0  # jobs that are being made, or wait for a worker
        self._slow = 0  # makers with hooks slower than ``_MAX_DELAY_S``
        self._rest_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        if self._durable is not None:
            self._durable.on_result(self._on_put)

    def begin(self) -> None:
        """Start to take jobs of other processes, before this process has a unit. Thread-safe."""
        loop.call_soon(self._start)

    def accept(self, sampled: Sequence[SampledUnit]) -> None:
        """Accept sampled units with reserved places in the queue, and wake the loop once. Call on the span thread."""
        if self._durable is not None:
            self.in_transit.add([unit.unit for unit in sampled if unit.decisions])
        loop.call_soon(self._accept, sampled)

    def accept_rest(self, decided: Mapping[UnitKey, Mapping[str, Decision]]) -> None:
        """Accept the decisions of further metrics on active units, and wake the loop once. Call on the span thread."""
        loop.call_soon(self._accept_rest, decided)

    def hand_back(self, timeout_s: float) -> None:
        """Begin no more jobs of a durable queue, so that other processes take them. Call on any thread but the loop's."""
        if self._durable is not None and self._tasks:
            with suppress(TimeoutError):
                loop.submit(self._hand_back()).result(timeout_s)

    async def _hand_back(self) -> None:
        for job in self.queue.close():
            if self._durable is not None and not job.delegated:  # a delegated unit is not eligible here yet
                self.post(JobResult(job.unit, (), rest=Outcome.DELEGATED, reason=_LEFT_IN_SPOOL))

    def stop(self, timeout_s: float) -> None:
        """Cancel the workers and empty the queue; a task that does not end is abandoned. Call on any thread but the loop's."""
        self._stopped = True
        if self._tasks:
            with suppress(TimeoutError):
                loop.submit(self._stop(timeout_s)).result(timeout_s)

    async def _stop(self, timeout_s: float) -> None:
        tasks, self._tasks = [*self._tasks, *self._makers], []
        for task in tasks:
            task.cancel()
        for active in self._active:
            active.running.give_up()
            active.free_worker()  # otherwise the timer would end the job as failed
        for source in self.sources:
            source.give_up()
        await wait_for_cancelled()
        for active in list(self._active):
            if self._durable is not None:
                self._drop(active, _LEFT_IN_SPOOL)
                continue
            active.running.add_unused()
            self._post_scores(active)
            self._report_end(active)
            self._release(active)
        for source in self.sources:
            source.stop()
        await self._hand_back()
        self._make_jobs()  # makes no more jobs, but releases the places of waiting units
        await asyncio.wait(tasks, timeout=timeout_s)

    def _start(self) -> None:
        if not self._tasks and not self._stopped:
            start = asyncio.get_running_loop().create_task
            self._tasks = [start(self._work(), context=suppressed_context()) for _ in range(self.workers)]
            if self._durable is not None:
                self._durable.begin()

    def _accept(self, sampled: Sequence[SampledUnit]) -> None:
        self._start()
        self._waiting.extend(sampled)
        self._make_jobs()

    def _accept_rest(self, decided: Mapping[UnitKey, Mapping[str, Decision]]) -> None:
        for key, decisions in decided.items():
            active = self._undecided.pop(key, None)
            if active is not None:  # None: the job has ended meanwhile
                rest = replace(active.running.job, decisions=decisions).without_scored()
                self.evaluation(rest.unit).begin_rest(rest.decisions, active.running)
                self._begin_sources(rest)
                self._on_change(active)

    def _begin_sources(self, job: Job) -> None:
        if not job.unit.revision and job.unit.inner is None:  # sources score only the first revision of a root
            for source in self.sources:
                source.begin(job)

    def _make_jobs(self) -> None:
        if not self._waiting:
            return
        with suppress_tracing():  # a filter or a redactor may call a model
            while self._waiting and not self._is_resting():
                all_makers_are_slow = len(self._makers) == self._slow  # jobs are made in order, but overtake slow ones
                may_make = self._ahead < self.workers and all_makers_are_slow and self._slow < _MAX_SLOW
                if not (may_make or self._stopped):
                    return
                self._begin_making(self._waiting.popleft())
                yield_gil()

    def _is_resting(self) -> bool:
        """Whether no job is made for a while, so that the application has the CPU. Active jobs continue."""
        if self._rest_timer is None and self.turns is not None and (rest_s := self.turns.rest_s()):
            self._rest_timer = asyncio.get_running_loop().call_later(rest_s, self._end_rest)
        return self._rest_timer is not None and not self._stopped

    def _end_rest(self) -> None:
        self._rest_timer = None
        self._make_jobs()

    def _begin_making(self, sampled: SampledUnit) -> None:
        if self._stopped:
            self.queue.cancel(sampled.size_bytes)
            self.in_transit.remove(sampled.unit)
            return
        self._ahead += 1
        if self.builder.box.has_hooks:
            task = asyncio.get_running_loop().create_task(self._make(sampled), context=suppressed_context())
            self._makers.add(task)
            return
        try:
            self._put(sampled, self.builder.job(sampled))
        except Exception as error:  # noqa: BLE001  (the other units of this call go on)
            self._fail(sampled, error)

    async def _make(self, sampled: SampledUnit) -> None:
        """Make a job with hooks that may hang. The next jobs wait for ``_MAX_DELAY_S``, and then overtake it."""
        making = asyncio.ensure_future(self.builder.job_in_time(sampled))
        is_slow = False
        try:
            await asyncio.wait({making}, timeout=_MAX_DELAY_S)
            if is_slow := not making.done():
                self._slow += 1
                self._make_jobs()
            self._put(sampled, await making)
        except BaseException as error:  # noqa: BLE001  (also if a judge cancels every task of its loop)
            making.cancel()
            self._fail(sampled, error)
        self._slow -= is_slow
        self._makers -= {asyncio.current_task()}
        self._make_jobs()

    def _put(self, sampled: SampledUnit, job: Job) -> None:
        if sampled.wanted:
            self.on_samples(job.unit, job.samples)
        if job.decisions:
            self.queue.put(job)
        else:
            self._ahead -= 1
            self.queue.cancel(sampled.size_bytes)

    def _on_put(self, job: Job, outcome: Outcome | None, reason: str | None) -> None:
        """Make the next job, because the queue has put this job, or has ended it with an outcome."""
        self._ahead -= 1
        if outcome is not None:
            self.post(JobResult(job.unit, (), rest=outcome, reason=reason))
        self.in_transit.remove(job.unit)
        self._make_jobs()

    def _fail(self, sampled: SampledUnit, error: BaseException) -> None:
        self._ahead -= 1
        self.queue.cancel(sampled.size_bytes)
        self.in_transit.remove(sampled.unit)
        if self._stopped:
            return
        log_internal_error("make a job", error)
        unit = sampled.unit.without_content()
        if sampled.wanted:
            self.on_samples(unit, Samples(outcome=Outcome.METRIC_ERROR, reason="making the job failed"))
        if sampled.decisions:
            self.post(JobResult(unit, ()))

    async def _work(self) -> None:
        for jobs in count(1):
            try:
                job = await self.queue.get()
                if self._durable is None:  # otherwise `_on_put` has counted it
                    self._ahead -= 1
                    self._make_jobs()
                worker = self._begin(job)
                if worker is not None:
                    await worker
                elif jobs % _JOBS_PER_TURN == 0:
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self._stopped:
                    raise
            yield_gil()

    def _begin(self, job: Job) -> asyncio.Future[None] | None:
        """Begin a job. Return a future that is done when the job needs no worker any more; None if it has ended already."""
        active = ActiveJob()
        if job.delegated:
            self.on_foreign_job(job)
            job = job.without_scored()
        try:
            active.running = self.evaluation(job.unit).begin(job, lambda: self._on_change(active))
        except Exception as error:  # noqa: BLE001  (the worker goes on)
            log_internal_error("begin a job", error)
            active.running = RunningJob(job, lambda: None)  # ends at once: its metrics have no score
        active.running.scores += job.scored
        self._active.add(active)
        if job.undecided is not None:
            self._undecided[job.unit.key] = active
        if not active.running.is_over:
            loop = asyncio.get_running_loop()
            active.worker = loop.create_future()
            active.stay_timer = loop.call_later(_MIN_STAY_S, self._end_stay, active)
        self._begin_sources(job)
        self._on_change(active)
        return active.worker

    def _end_stay(self, active: ActiveJob) -> None:
        active.stay_timer = None
        self._on_change(active)

    def _on_change(self, active: ActiveJob) -> None:
        if active.running.is_over:
            self._end(active)
            return
        if active.running.scores and not active.posting:
            active.posting = True  # posts all scores that arrive in this turn of the loop together
            asyncio.get_running_loop().call_soon(self._post_scores, active)
        if active.stay_timer is None and not active.running.computes:
            active.free_worker()

    def _post_scores(self, active: ActiveJob) -> None:
        active.posting = False
        if active in self._active and (scores := active.running.take()):
            job = active.running.job
            self._save_and_post(active, JobResult(job.unit, scores, job.samples.attributes(), over=False))

    def _end(self, active: ActiveJob) -> None:
        job, scores = active.running.job, active.running.take()
        self._release(active)
        self._save_and_post(active, JobResult(job.unit, scores, job.samples.attributes()))

    def _save_and_post(self, active: ActiveJob, result: JobResult) -> None:
        """Post scores; with a durable queue, after they are stored."""
        if self._durable is not None or self.on_end is not None:
            active.posted += result.scores
        if self._durable is None:
            self._post(active, result)
            return

        def on_saved(saved: bool) -> None:
            if saved and not active.dropped:
                self._post(active, result)
            elif not active.dropped:
                active.running.give_up()
                self._drop(active, _TAKEN_ELSEWHERE)

        self._durable.save_scores(active.running.job, active.posted, on_saved)

    def _post(self, active: ActiveJob, result: JobResult) -> None:
        if result.over:
            self._report_end(active)  # before the scores: a caller that waits for them finds the case collected
        self.post(result)

    def _report_end(self, active: ActiveJob) -> None:
        if self.on_end is not None and active.running.job.unit.inner is None:
            self.on_end(active.running.job, active.posted)

    def _drop(self, active: ActiveJob, reason: str) -> None:
        """End a job as ``delegated``: another process makes the scores that were not posted."""
        active.dropped = True
        if active in self._active:
            self._release(active)
        self.post(JobResult(active.running.job.unit, (), rest=Outcome.DELEGATED, reason=reason))

    def _release(self, active: ActiveJob) -> None:
        self._active.discard(active)
        self._undecided.pop(active.running.job.unit.key, None)
        active.free_worker()
        try:
            self.queue.ack(active.running.job)
        except Exception as error:  # noqa: BLE001  (a user's queue)
            log_internal_error("release a place in the queue", error)


@dataclass(slots=True, eq=False)
class ActiveJob:
    """A job that has begun, and its worker.

    Attributes:
        worker: future that the job's worker awaits; None if the job ended immediately.
        stay_timer: timer until which the worker stays in any case; None after that time.
        posting: whether scores are about to be posted.
        posted: the scores so far, if a durable queue or ``on_end`` needs all of them.
        dropped: whether another process scores the job.
    """

    worker: asyncio.Future[None] | None = None
    stay_timer: asyncio.TimerHandle | None = None
    posting: bool = False
    posted: list[Score] = field(default_factory=list)
    dropped: bool = False
    running: RunningJob = field(init=False)

    def free_worker(self) -> None:
        """Release the worker for another unit."""
        if self.stay_timer is not None:
            self.stay_timer.cancel()
        if self.worker is not None and not self.worker.done():
            self.worker.set_result(None)

"""The engine turns sampled units into jobs on the loop, scores them, and posts each score to the span thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count
from typing import Final, TypeAlias

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

_Pass: TypeAlias = tuple[UnitKey, int]


class UnitsInTransit:
    """Tracks units from the sampling decision until a durable queue has them, or until they have ended. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._units: set[_Pass] = set()
        self._waiters: list[tuple[set[_Pass], Callable[[], None]]] = []

    def begin(self, units: Iterable[Unit]) -> None:
        """Add sampled units."""
        with self._lock:
            self._units |= {(unit.ledger_key, unit.revision) for unit in units}

    def over(self, unit: Unit) -> None:
        """Remove a unit that is on the disk or has ended; call back every waiter whose units are all removed."""
        transit = unit.ledger_key, unit.revision
        with self._lock:
            self._units.discard(transit)
            for units, _ in self._waiters:
                units.discard(transit)
            safe = [callback for units, callback in self._waiters if not units]
            if safe:
                self._waiters = [waiter for waiter in self._waiters if waiter[0]]
        for callback in safe:
            callback()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when every unit that is now in transit is removed; immediately if no unit is in transit."""
        with self._lock:
            if waits := bool(self._units):
                self._waiters.append(({*self._units}, callback))
        if not waits:
            callback()


_MOMENT_S: Final = 0.05
"""Maximum time for which a slow hook delays the next units. The delay keeps the hooks' threads from contending for the GIL."""
_MOST_SLOW: Final = 4
"""Maximum number of concurrent units whose hooks are slower than ``_MOMENT_S``."""
_STAYS_S: Final = 0.2
"""Minimum time for which a worker stays with a unit, even if its metrics only wait. So 32 workers begin at most 160 units a
second, and a burst is not rendered at once.
"""
_IN_A_TURN: Final = 8
"""Number of jobs that a worker begins before it yields to the loop's other tasks, if each of them ends immediately."""
_OTHERS: Final = "another process has taken it"
_LEFT: Final = "the scorer was shut down: the unit is in the spool"


@dataclass(eq=False, repr=False)
class ScoringEngine:
    """Runs workers on the process's loop. A worker makes jobs of sampled units, scores them, and posts each score on arrival.

    Jobs are made only a little ahead of the workers, so that the content of a traffic burst is not rendered during the burst. A
    unit needs no worker while its metrics only wait: as many units as the queue holds may wait for judges. Whatever happens to
    a job, its place in the queue is released, and its end is posted. With a ``DurableQueue`` scores are stored before they are
    posted: after a crash they are emitted again, and no judge is asked again.

    Attributes:
        evaluation: returns the evaluation that scores a unit. Called on the loop.
        post: posts scores of a job to the span thread. Called on any thread.
        made: passes the samples of a unit to the span thread, if an observer is interested. Called on any thread.
        came: passes a job from another process to the span thread, before its scores. Called on any thread.
        ended: called on the loop thread with a job that has ended here, and all its scores, except inner units; must not
            block. None = no call.
        sources: score sources that get every job that is begun; the sources stop with the workers.
        workers: maximum number of jobs with metrics that compute; the same number of further jobs is made ahead.
        turns: turns of the loop's thread, after which it yields to the application; None = it never yields.
        passing: units that are not on the disk yet, if the queue is shared.
    """

    queue: Queue
    pipeline: JobBuilder
    evaluation: Callable[[Unit], Evaluation]
    _: KW_ONLY
    post: Callable[[JobResult], None]
    made: Callable[[Unit, Samples], None] = lambda unit, samples: None
    came: Callable[[Job], None] = lambda job: None
    ended: Callable[[Job, Sequence[Score]], None] | None = None
    sources: Sequence[ScoreSource] = ()
    workers: int = 32
    turns: Turns | None = None

    def __post_init__(self) -> None:
        self._shared = self.queue if isinstance(self.queue, DurableQueue) else None
        self.passing = UnitsInTransit()
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: deque[SampledUnit] = deque()
        self._begun: set[ActiveJob] = set()
        self._undecided: dict[UnitKey, ActiveJob] = {}
        self._makers: set[asyncio.Task[None]] = set()
        self._ahead = 0
        self._slow = 0
        self._resting: asyncio.TimerHandle | None = None
        self._stopped = False
        if self._shared is not None:
            self._shared.on_result(self._on_put)

    def begin(self) -> None:
        """Start to take jobs of other processes, before this process has a unit. Thread-safe."""
        loop.call_soon(self._start)

    def accept(self, sampled: Sequence[SampledUnit]) -> None:
        """Take sampled units with reserved places in the queue, and wake the loop once for all. Call on the span thread."""
        if self._shared is not None:
            self.passing.begin([unit.unit for unit in sampled if unit.decisions])
        loop.call_soon(self._accept, sampled)

    def accept_rest(self, decided: Mapping[UnitKey, Mapping[str, Decision]]) -> None:
        """Take further decisions on units that have their first scores, and wake the loop once. Call on the span thread."""
        loop.call_soon(self._accept_rest, decided)

    def hand_back(self, timeout_s: float) -> None:
        """Begin no more jobs of a shared queue, so that other processes take them. Call on any thread but the loop's."""
        if self._shared is not None and self._tasks:
            with suppress(TimeoutError):
                loop.submit(self._hand_back()).result(timeout_s)

    async def _hand_back(self) -> None:
        for job in self.queue.close():
            if self._shared is not None and not job.delegated:  # a delegated one has not become eligible here yet
                self.post(JobResult(job.unit, (), rest=Outcome.DELEGATED, reason=_LEFT))

    def stop(self, timeout_s: float) -> None:
        """Cancel the workers and empty the queue; tasks that swallow the cancellation are abandoned. Call on any thread but the
        loop's.
        """
        self._stopped = True
        if self._tasks:
            with suppress(TimeoutError):
                loop.submit(self._stop(timeout_s)).result(timeout_s)

    async def _stop(self, timeout_s: float) -> None:
        tasks, self._tasks = [*self._tasks, *self._makers], []
        for task in tasks:
            task.cancel()
        for begun in self._begun:
            begun.job.give_up()
            begun.free_worker()  # its timer would end the job as one that failed
        for source in self.sources:
            source.give_up()
        await wait_for_cancelled()
        for begun in list(self._begun):
            if self._shared is not None:
                self._lose(begun, _LEFT)
                continue
            begun.job.add_unused()
            self._post_scores(begun)
            self._report_end(begun)
            self._leave(begun)
        for source in self.sources:
            source.stop()
        await self._hand_back()
        self._make_jobs()  # makes no more jobs, but releases the places of waiting units
        await asyncio.wait(tasks, timeout=timeout_s)

    def _start(self) -> None:
        if not self._tasks and not self._stopped:
            start = asyncio.get_running_loop().create_task
            self._tasks = [start(self._work(), context=suppressed_context()) for _ in range(self.workers)]
            if self._shared is not None:
                self._shared.begin()

    def _accept(self, sampled: Sequence[SampledUnit]) -> None:
        self._start()
        self._waiting.extend(sampled)
        self._make_jobs()

    def _accept_rest(self, decided: Mapping[UnitKey, Mapping[str, Decision]]) -> None:
        for key, decisions in decided.items():
            begun = self._undecided.pop(key, None)
            if begun is not None:  # None: the unit was abandoned meanwhile
                rest = replace(begun.job.job, decisions=decisions).without_scored()
                self.evaluation(rest.unit).begin_rest(rest.decisions, begun.job)
                self._begin_sources(rest)
                self._changed(begun)

    def _begin_sources(self, job: Job) -> None:
        if not job.unit.revision and job.unit.inner is None:  # sources score only the first revision of a root
            for source in self.sources:
                source.begin(job)

    def _make_jobs(self) -> None:
        if not self._waiting:
            return
        with suppress_tracing():  # a filter or a redactor may call a model
            while self._waiting and not self._rests():
                # Jobs are made in order, except that they overtake slow jobs.
                may_make = self._ahead < self.workers and len(self._makers) == self._slow < _MOST_SLOW
                if not (may_make or self._stopped):
                    return
                self._take(self._waiting.popleft())
                yield_gil()

    def _rests(self) -> bool:
        """Whether the loop yields to the application for a while. The few jobs that have begun continue."""
        if self._resting is None and self.turns is not None and (rest_s := self.turns.rest_s()):
            self._resting = asyncio.get_running_loop().call_later(rest_s, self._end_rest)
        return self._resting is not None and not self._stopped

    def _end_rest(self) -> None:
        self._resting = None
        self._make_jobs()

    def _take(self, sampled: SampledUnit) -> None:
        if self._stopped:
            self.queue.cancel(sampled.size_bytes)
            self.passing.over(sampled.unit)
            return
        self._ahead += 1
        if self.pipeline.box.has_hooks:
            task = asyncio.get_running_loop().create_task(self._make(sampled), context=suppressed_context())
            self._makers.add(task)
            return
        try:
            self._put(sampled, self.pipeline.job(sampled))
        except Exception as error:  # noqa: BLE001  (the other units of this call go on)
            self._spoilt(sampled, error)

    async def _make(self, sampled: SampledUnit) -> None:
        """Make a job with hooks that may hang. The next jobs wait for ``_MOMENT_S``, and then overtake it."""
        making = asyncio.ensure_future(self.pipeline.job_in_time(sampled))
        slow = False
        try:
            await asyncio.wait({making}, timeout=_MOMENT_S)
            if slow := not making.done():
                self._slow += 1
                self._make_jobs()
            self._put(sampled, await making)
        except BaseException as error:  # noqa: BLE001  (also if a judge cancels every task of its loop)
            making.cancel()
            self._spoilt(sampled, error)
        self._slow -= slow
        self._makers -= {asyncio.current_task()}
        self._make_jobs()

    def _put(self, sampled: SampledUnit, job: Job) -> None:
        if sampled.wanted:
            self.made(job.unit, job.samples)
        if job.decisions:
            self.queue.put(job)
        else:
            self._ahead -= 1
            self.queue.cancel(sampled.size_bytes)

    def _on_put(self, job: Job, outcome: Outcome | None, reason: str | None) -> None:
        """Make the next job, because this job was put. If the queue gave an outcome, this job ends with it."""
        self._ahead -= 1
        if outcome is not None:
            self.post(JobResult(job.unit, (), rest=outcome, reason=reason))
        self.passing.over(job.unit)
        self._make_jobs()

    def _spoilt(self, sampled: SampledUnit, error: BaseException) -> None:
        self._ahead -= 1
        self.queue.cancel(sampled.size_bytes)
        self.passing.over(sampled.unit)
        if self._stopped:
            return
        log_internal_error("make a job", error)
        unit = sampled.unit.without_content()
        if sampled.wanted:
            self.made(unit, Samples(outcome=Outcome.METRIC_ERROR, reason="making the job failed"))
        if sampled.decisions:
            self.post(JobResult(unit, ()))

    async def _work(self) -> None:
        for jobs in count(1):
            try:
                job = await self.queue.get()
                if self._shared is None:  # otherwise `_on_put` has counted it
                    self._ahead -= 1
                    self._make_jobs()
                worker = self._begin(job)
                if worker is not None:
                    await worker
                elif jobs % _IN_A_TURN == 0:
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self._stopped:
                    raise
            yield_gil()

    def _begin(self, job: Job) -> asyncio.Future[None] | None:
        """Begin a job. Return a future that is done when the job no longer needs a worker; None if the job has ended."""
        begun = ActiveJob()
        if job.delegated:
            self.came(job)
            job = job.without_scored()
        begun.job = self.evaluation(job.unit).begin(job, lambda: self._changed(begun))
        begun.job.scores += job.scored
        self._begun.add(begun)
        if job.undecided is not None:
            self._undecided[job.unit.key] = begun
        if not begun.job.is_over:
            loop = asyncio.get_running_loop()
            begun.worker, begun.staying = loop.create_future(), loop.call_later(_STAYS_S, self._end_stay, begun)
        self._begin_sources(job)
        self._changed(begun)
        return begun.worker

    def _end_stay(self, begun: ActiveJob) -> None:
        begun.staying = None
        self._changed(begun)

    def _changed(self, begun: ActiveJob) -> None:
        if begun.job.is_over:
            self._end(begun)
            return
        if begun.job.scores and not begun.posting:
            begun.posting = True  # all scores that are in at the end of this turn of the loop
            asyncio.get_running_loop().call_soon(self._post_scores, begun)
        if begun.staying is None and not begun.job.computes:
            begun.free_worker()

    def _post_scores(self, begun: ActiveJob) -> None:
        begun.posting = False
        if begun in self._begun and (scores := begun.job.take()):
            job = begun.job.job
            self._publish_kept(begun, JobResult(job.unit, scores, job.samples.attributes(), over=False))

    def _end(self, begun: ActiveJob) -> None:
        job, scores = begun.job.job, begun.job.take()
        self._leave(begun)
        self._publish_kept(begun, JobResult(job.unit, scores, job.samples.attributes()))

    def _publish_kept(self, begun: ActiveJob, result: JobResult) -> None:
        """Post scores; with a shared queue, after they are stored."""
        if self._shared is not None or self.ended is not None:
            begun.posted += result.scores
        if self._shared is None:
            self._publish(begun, result)
            return
        self._shared.save_scores(begun.job.job, begun.posted, lambda kept: self._on_saved(begun, result, kept=kept))

    def _on_saved(self, begun: ActiveJob, result: JobResult, *, kept: bool) -> None:
        if kept and not begun.lost:
            self._publish(begun, result)
        elif not begun.lost:
            begun.job.give_up()
            self._lose(begun, _OTHERS)

    def _publish(self, begun: ActiveJob, result: JobResult) -> None:
        if result.over:
            self._report_end(begun)  # first: a caller that waits for the scores finds the case collected
        self.post(result)

    def _report_end(self, begun: ActiveJob) -> None:
        if self.ended is not None and begun.job.job.unit.inner is None:
            self.ended(begun.job.job, begun.posted)

    def _lose(self, begun: ActiveJob, reason: str) -> None:
        """Drop a job that another process has taken; that process makes the scores that were not posted."""
        begun.lost = True
        if begun in self._begun:
            self._leave(begun)
        self.post(JobResult(begun.job.job.unit, (), rest=Outcome.DELEGATED, reason=reason))

    def _leave(self, begun: ActiveJob) -> None:
        self._begun.discard(begun)
        self._undecided.pop(begun.job.job.unit.key, None)
        begun.free_worker()
        try:
            self.queue.ack(begun.job.job)
        except Exception as error:  # noqa: BLE001  (a user's queue)
            log_internal_error("release a place in the queue", error)


@dataclass(slots=True, eq=False)
class ActiveJob:
    """A job that has begun.

    Attributes:
        worker: future that the job's worker awaits; None if the job ended immediately.
        staying: timer until which the worker stays in any case; None after that time.
        posting: whether scores are about to be posted.
        posted: the scores so far, if a durable queue or ``ended`` needs all of them.
        lost: whether another process has taken the job.
    """

    worker: asyncio.Future[None] | None = None
    staying: asyncio.TimerHandle | None = None
    posting: bool = False
    posted: list[Score] = field(default_factory=list)
    lost: bool = False
    job: RunningJob = field(init=False)

    def free_worker(self) -> None:
        """Release the worker for another unit."""
        if self.staying is not None:
            self.staying.cancel()
        if self.worker is not None and not self.worker.done():
            self.worker.set_result(None)

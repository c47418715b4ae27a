"""Engine: sampled units on the loop → jobs → scores of metrics and second judges, posted to the span thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count
from math import inf
from typing import Final, NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core import loop
from spanscore.core.event_queue import Turns, yield_gil
from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score, from_source
from spanscore.core.span import Unit, UnitKey
from spanscore.judges.score_context import suppress_tracing, suppressed_context
from spanscore.pipeline.evaluation import Evaluation, RunningJob, cancelled_tell
from spanscore.pipeline.jobs import JobBuilder
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.queues import MemoryQueue
from spanscore.protocols import DurableQueue, Queue

__all__ = ["ScoringEngine", "ShadowScoring", "UnitsInTransit"]

# --- passing --------------------------------------------------------------------------------------------------------

# UnitsInTransit: units from the sampling decision until a durable queue has them or they have ended.

_Pass: TypeAlias = tuple[UnitKey, int]


class _SafeMark(NamedTuple):
    units: set[_Pass]
    told: Callable[[], None]


class UnitsInTransit:
    """Which units are on their way to a queue that outlives the process, and who waits for them. Any thread."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._lock = threading.Lock()
        self._units: set[_Pass] = set()
        self._waiters: list[_SafeMark] = []

    def begin(self, units: Iterable[Unit]) -> None:
        """Note units that were chosen."""
        with self._lock:
            self._units |= {_pass_of(unit) for unit in units}

    def over(self, unit: Unit) -> None:
        """Note that a unit is safe, or has ended."""
        transit = _pass_of(unit)
        with self._lock:
            self._units.discard(transit)
            for waiter in self._waiters:
                waiter.units.discard(transit)
            safe = [waiter for waiter in self._waiters if not waiter.units]
            if safe:
                self._waiters = [waiter for waiter in self._waiters if waiter.units]
        for waiter in safe:
            waiter.told()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call it when all that are on their way now are no more; at once where none is."""
        with self._lock:
            if waits := bool(self._units):
                self._waiters.append(_SafeMark({*self._units}, callback))
        if not waits:
            callback()


def _pass_of(unit: Unit) -> _Pass:
    return unit.ledger_key, unit.revision


# --- shadows --------------------------------------------------------------------------------------------------------

# ShadowScoring: second judges score the samples of the metrics. Their scores have a source of their own.
#
# They have deadlines, a budget and room of their own: one that fails, is slow or is away costs the metrics nothing.


@dataclass(eq=False, repr=False)
class ShadowScoring:
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
        self._at_work: set[RunningJob] = set()
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

    def _changed(self, at_work: RunningJob) -> None:
        unit = at_work.job.unit
        if scores := [from_source(score, unit, self.source) for score in at_work.take()]:
            self.post(JobResult(unit, scores, over=at_work.is_over))
        if at_work.is_over:
            self._at_work.discard(at_work)
            self.room.ack(at_work.job)


# --- workers --------------------------------------------------------------------------------------------------------

# ScoringEngine: sampled units on the loop → jobs → scores, posted back to the span thread.
#
# Jobs are made a little ahead of the workers and not as units arrive: a burst of traffic would else have its content
# rendered while it still runs. A unit of which nothing computes any more needs no worker: as many units as the queue holds
# may wait for judges, and none of them keeps another from being begun. Each score is posted when it is there. Whatever
# happens to a job on the way, its place in the queue is given back, and it is posted. Where others may have it, too, its
# scores are kept before they are posted (``DurableQueue``): after a crash they are emitted again, and no judge is asked
# again.

_MOMENT_S: Final = 0.05
"""How long a hook may hold up the next units: it is not at once a thread for each, which would take the GIL in turns."""
_MOST_SLOW: Final = 4
"""Units at once whose hooks take longer than that."""
_STAYS_S: Final = 0.2
"""How long a worker stays with a unit of which nothing computes: 32 begin at most 160 of those a second, so that a burst is not
rendered in one go. With judges that answer sooner it is as if they stayed.
"""
_IN_A_TURN: Final = 8
"""Jobs that are over at once, and that one worker begins before the loop looks after the others of its guests."""
_OTHERS: Final = "another process has taken it"
_LEFT: Final = "the scorer was shut down: it is in the spool"


@dataclass(eq=False, repr=False)
class ScoringEngine:
    """Workers on the one loop of the process.

    Attributes:
        post: gives scores of a job to the span thread. Any thread.
        made: likewise the samples of a unit that somebody wants, as soon as they are there.
        came: likewise a job that another process has handed over, before its scores.
        ended: likewise a job that is over here, with all its scores; None = nobody is told. Loop thread; must not block.
        shadows: asked about every job that is begun; None = nobody is.
        workers: jobs at the same time of which something computes; as many more are made ahead.
        turns: of the loop's thread, beside the application; None = it has the CPU for itself.
        beside: whose work ends with it, too.
        passing: units that are yet to be on the disk, where the queue is shared.
    """

    queue: Queue
    pipeline: JobBuilder
    evaluation: Evaluation
    _: KW_ONLY
    post: Callable[[JobResult], None]
    made: Callable[[Unit, Samples], None] = lambda unit, samples: None
    came: Callable[[Job], None] = lambda job: None
    ended: Callable[[Job, Sequence[Score]], None] | None = None
    shadows: ShadowScoring | None = None
    workers: int = 32
    turns: Turns | None = None

    def __post_init__(self) -> None:
        self._shared = self.queue if isinstance(self.queue, DurableQueue) else None
        self.beside = [] if self.shadows is None else [self.shadows]
        self.passing = UnitsInTransit()
        self.reset()

    def reset(self) -> None:
        """Forget the workers: in a forked child their loop does not run."""
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: deque[SampledUnit] = deque()
        self._begun: set[ActiveJob] = set()
        self._undecided: dict[UnitKey, ActiveJob] = {}
        self._makers: set[asyncio.Task[None]] = set()
        self._ahead = 0
        self._slow = 0
        self._resting: asyncio.TimerHandle | None = None
        self._stopped = False
        self.passing.reset()
        if self._shared is not None:
            self._shared.on_result(self._told)
        for shadows in self.beside:
            shadows.reset()

    def begin(self) -> None:
        """Take jobs that others have handed over, without waiting for a unit of this process. Any thread."""
        loop.call_soon(self._start)

    def accept(self, sampled: Sequence[SampledUnit]) -> None:
        """Take sampled units, whose places in the queue are reserved. Span thread; one wake-up of the loop for all."""
        if self._shared is not None:
            self.passing.begin([one.unit for one in sampled if one.decisions])
        loop.call_soon(self._accept, sampled)

    def accept_rest(self, decided: Mapping[UnitKey, Mapping[str, Decision]]) -> None:
        """Take what else was chosen for units of which the first scores are in. Span thread; one wake-up likewise."""
        loop.call_soon(self._accept_rest, decided)

    def hand_back(self, timeout_s: float) -> None:
        """Begin no more jobs that others may have as well: what waits is theirs. Any thread but the loop's."""
        if self._shared is not None and self._tasks:
            with suppress(TimeoutError):
                loop.submit(self._hand_back()).result(timeout_s)

    async def _hand_back(self) -> None:
        for job in self.queue.close():
            if self._shared is not None and not job.delegated:  # else it has not come yet
                self.post(JobResult(job.unit, (), rest=Outcome.DELEGATED, reason=_LEFT))

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
        for begun in self._begun:
            begun.job.give_up()
        for shadows in self.beside:
            shadows.give_up()
        await cancelled_tell()
        for begun in list(self._begun):
            if self._shared is not None:
                self._lose(begun, _LEFT)
                continue
            begun.job.scores += begun.job.unused()
            self._post_scores(begun)
            self._say_ended(begun)
            self._leave(begun)
        for shadows in self.beside:
            shadows.stop()
        await self._hand_back()
        self._make_jobs()  # no more jobs are made: gives back the places of units that wait
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
            if begun is not None:  # else it was given up
                rest = replace(begun.job.job, decisions=decisions).unscored()
                self.evaluation.begin_rest(rest.decisions, begun.job)
                self._begin_shadows(rest)
                self._changed(begun)

    def _begin_shadows(self, job: Job) -> None:
        if self.shadows is not None and not job.unit.revision:  # they were asked about the first
            self.shadows.begin(job)

    def _make_jobs(self) -> None:
        if not self._waiting:
            return
        with suppress_tracing():  # a filter or a redactor may ask a model
            while self._waiting and not self._rests() and (self._may_make() or self._stopped):
                self._take(self._waiting.popleft())
                yield_gil()

    def _rests(self) -> bool:
        """Whether the application is given way to, for a while; those begun go on, and are few."""
        if self._resting is None and self.turns is not None and (rest_s := self.turns.rest_s()):
            self._resting = asyncio.get_running_loop().call_later(rest_s, self._rested)
        return self._resting is not None and not self._stopped

    def _rested(self) -> None:
        self._resting = None
        self._make_jobs()

    def _may_make(self) -> bool:
        """Whether the next job may be begun: in order, and not past those of which it is not known yet that they take long."""
        return self._ahead < self.workers and len(self._makers) == self._slow < _MOST_SLOW

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
        """Make a job whose hooks may hang: the next ones wait for a moment, and then pass it."""
        making = asyncio.ensure_future(self.pipeline.job_in_time(sampled))
        slow = False
        try:
            await asyncio.wait({making}, timeout=_MOMENT_S)
            if slow := not making.done():
                self._slow += 1
                self._make_jobs()
            self._put(sampled, await making)
        except BaseException as error:  # noqa: BLE001  (also where some judge cancels whatever runs on its loop)
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

    def _told(self, job: Job, outcome: Outcome | None, reason: str | None) -> None:
        """Go on to the next unit, as a job was put; one that does not come out here ends."""
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
                if self._shared is None:  # else it was told when the job had been put
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
        """Begin a job; done is what is returned when it needs no worker, and None where it is over."""
        begun = ActiveJob()
        if job.delegated:
            self.came(job)
            job = job.unscored()
        begun.job = self.evaluation.begin(job, lambda: self._changed(begun))
        begun.job.scores += job.scored
        self._begun.add(begun)
        if job.undecided is not None:
            self._undecided[job.unit.key] = begun
        if not begun.job.is_over:
            loop = asyncio.get_running_loop()
            begun.worker, begun.staying = loop.create_future(), loop.call_later(_STAYS_S, self._stayed, begun)
        self._begin_shadows(job)
        self._changed(begun)
        return begun.worker

    def _stayed(self, begun: ActiveJob) -> None:
        begun.staying = None
        self._changed(begun)

    def _changed(self, begun: ActiveJob) -> None:
        if begun.job.is_over:
            self._end(begun)
            return
        if begun.job.scores and not begun.posting:
            begun.posting = True  # of those that are in when this turn of the loop is over
            asyncio.get_running_loop().call_soon(self._post_scores, begun)
        if begun.staying is None and not begun.job.computes:
            begun.free_worker()

    def _post_scores(self, begun: ActiveJob) -> None:
        begun.posting = False
        if begun in self._begun and (scores := begun.job.take()):
            job = begun.job.job
            self._tell(begun, JobResult(job.unit, scores, job.samples.attributes(), over=False))

    def _end(self, begun: ActiveJob) -> None:
        job, scores = begun.job.job, begun.job.take()
        self._leave(begun)
        self._tell(begun, JobResult(job.unit, scores, job.samples.attributes()))

    def _tell(self, begun: ActiveJob, result: JobResult) -> None:
        """Post scores: where others may have the job, too, when they are kept."""
        if self._shared is not None or self.ended is not None:
            begun.told += result.scores
        if self._shared is None:
            self._publish(begun, result)
            return
        self._shared.save_scores(begun.job.job, begun.told, lambda kept: self._kept(begun, result, kept=kept))

    def _kept(self, begun: ActiveJob, result: JobResult, *, kept: bool) -> None:
        if kept and not begun.lost:
            self._publish(begun, result)
        elif not begun.lost:
            begun.job.give_up()
            self._lose(begun, _OTHERS)

    def _publish(self, begun: ActiveJob, result: JobResult) -> None:
        if result.over:
            self._say_ended(begun)  # first: who waits for the scores finds it told
        self.post(result)

    def _say_ended(self, begun: ActiveJob) -> None:
        if self.ended is not None:
            self.ended(begun.job.job, begun.told)

    def _lose(self, begun: ActiveJob, reason: str) -> None:
        """Leave a job to others: what is not posted of it is made there."""
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
            log_internal_error("give a place in the queue back", error)


@dataclass(slots=True, eq=False)
class ActiveJob:
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
    job: RunningJob = field(init=False)

    def free_worker(self) -> None:
        """Let the worker go on to another unit."""
        if self.staying is not None:
            self.staying.cancel()
        if self.worker is not None and not self.worker.done():
            self.worker.set_result(None)

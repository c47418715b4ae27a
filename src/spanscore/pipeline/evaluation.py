"""Job → scores: every metric of a job at once, each with its deadline; a failure is a value."""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

from spanscore.core.job import Decision, Job
from spanscore.core.log import raised_by_user, type_name
from spanscore.core.sample import Sample, Samples, missing_fields
from spanscore.core.score import JudgeCall, Outcome, Score, Usage, signed
from spanscore.core.threads import DaemonPool, run_interruptibly, run_without_loop
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.effects.middleware import account_of
from spanscore.judges.records import record_calls
from spanscore.judges.score_context import ScoreContext, ask_for, asked_by, asker, suppressed_context
from spanscore.protocols import Metric

__all__ = [
    "Deadline",
    "Evaluation",
    "RunningJob",
    "absent_fields",
    "accounts_asked",
    "asks_a_judge",
    "cancelled_tell",
    "lane_of",
]

# --- asked ----------------------------------------------------------------------------------------------------------

# The accounts that a metric asks, and the lane of metrics that it waits with.


def accounts_asked(metric: Metric) -> tuple[Hashable, ...]:
    """Return the accounts of a metric's judge and embeddings; none for one that asks nobody, or by means of its own."""
    asked = (getattr(metric, name, None) for name in ("_judge", "_embedder"))
    return tuple(account_of(one) for one in asked if one is not None)


def asks_a_judge(metric: Metric) -> bool:
    """Whether a metric asks a judge or embeddings, also by means of its own that tell their model."""
    return bool(accounts_asked(metric) or getattr(metric, "_judge_model", ""))


def lane_of(metric: Metric) -> Hashable:
    """Return what metrics share that wait for the same answers, or compute in the same pool; else a metric's own name."""
    return accounts_asked(metric) or ("computes" if metric.cpu_bound else metric.name)


# --- evaluation -----------------------------------------------------------------------------------------------------

# Job → Scores: every metric of a job at once, each with its deadline, failure as a value.

_THREADS = 2
"""Metrics that compute at the same time: two threads are at odds over one lock, and more are no faster."""
_TURNS = 10
"""Of the loop, in which what is cancelled tells of its questions that are out: from task to task, a turn each."""


_SHUT_DOWN = "the scorer was shut down while its judge was asked"


async def cancelled_tell() -> None:
    """Wait until what was cancelled has told of its questions that are out."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@dataclass(eq=False, repr=False)
class Evaluation:
    """Scores jobs. Loop thread.

    Attributes:
        metrics: by name.
        timeout_s: for which one metric may be at work on one sample, the time in which its questions wait left out; a
            metric's own ``timeout_s`` wins.
        purse: from which the metrics' questions are paid; None = no budget is set.
        at_once: scores of one metric that asks no judge we know of, but may well await a service of its own; None = any number.
        transcribes: whether what judges were asked is told with the scores.
        quotes: and with prompts and answers.
        disabled: every score is ``filtered``, and no metric is asked.
    """

    metrics: Mapping[str, Metric]
    _: KW_ONLY
    timeout_s: float = 180.0
    purse: BudgetLedger | None = None
    at_once: int | None = None
    transcribes: bool = False
    quotes: bool = False
    disabled: bool = False

    def __post_init__(self) -> None:
        self._asker = partial(ScoreContext, transcribes=self.transcribes, quotes=self.quotes)
        self.reset()

    def reset(self) -> None:
        """Forget the pool and who is at work: in a forked child their threads do not exist."""
        self._pool: DaemonPool | None = None
        computing = asyncio.Semaphore(_THREADS)  # who waits for a thread is not late
        self._places = {name: computing for name, metric in self.metrics.items() if metric.cpu_bound}
        self._places |= {
            name: asyncio.Semaphore(self.at_once)
            for name, metric in self.metrics.items()
            if self.at_once is not None and not metric.cpu_bound and not accounts_asked(metric)
        }

    def close(self) -> None:
        """Let the threads end: no further metric is begun."""
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, job: Job, on_change: Callable[[], None]) -> RunningJob:
        """Begin every metric that was chosen for a job.

        Args:
            on_change: called when a score is in; never before this returns.
        """
        at_work = RunningJob(job, on_change, undecided=job.undecided is not None)
        self._begin_each(job.decisions, at_work)
        return at_work

    def begin_rest(self, decisions: Mapping[str, Decision], at_work: RunningJob) -> None:
        """Begin the metrics that were decided on when the first scores of a job were in; there may be none."""
        at_work.job = replace(at_work.job, decisions={**at_work.job.decisions, **decisions})
        at_work.undecided = False
        self._begin_each(decisions, at_work)

    def _begin_each(self, names: Iterable[str], at_work: RunningJob) -> None:
        for name in names:
            try:
                self._begin(name, at_work)
            except BaseException as error:  # noqa: BLE001  (a metric that cannot even say what it needs)
                at_work.take_in(name, _broken(name, error))

    async def scores(self, job: Job) -> list[Score]:
        """Return one score per metric chosen for the job, in that order."""
        found = {score.metric: score async for score in self.each(job)}
        return [found[name] for name in job.decisions]

    async def each(self, job: Job) -> AsyncGenerator[Score]:
        """Yield one score per metric chosen for the job, as they come."""
        changed = asyncio.Event()
        at_work = self.begin(job, changed.set)
        try:
            over = False
            while not over:
                over = at_work.is_over  # before they are taken: what comes meanwhile is taken next time
                for score in at_work.take():
                    yield score
                if not over:
                    await changed.wait()
                    changed.clear()
        finally:
            at_work.give_up()

    def _begin(self, name: str, at_work: RunningJob) -> None:
        job = at_work.job
        metric = self.metrics.get(name)
        if metric is None:  # another process has chosen it
            at_work.take_in(name, _unknown(name, job.samples))
            return
        if self.disabled:
            at_work.take_in(name, _unscored(metric, Outcome.FILTERED, "disabled"))
            return
        sample = _sample_for(metric, job.samples)
        if sample is None:
            at_work.take_in(name, _without_sample(metric, job.samples))
            return
        timeout_s = getattr(metric, "timeout_s", None) or self.timeout_s
        one = self._asker(name, job.taken_s, job.held_until_s, self.purse)
        turn = MetricSlot(self._places[name]) if name in self._places else None
        # Whatever a metric asks, and however: it is no run of the application.
        context = suppressed_context()
        calls = context.run(_asking_for, one)
        scoring = self._guarded(metric, sample, turn)
        task = asyncio.get_running_loop().create_task(scoring, context=context)
        at_work.follow(name, RunningMetric(metric, sample, timeout_s, calls, one, turn, task))

    async def _guarded(self, metric: Metric, sample: Sample, turn: MetricSlot | None) -> Score:
        try:
            if turn is not None:
                await turn.take()
            score: object = await (self._computed(metric, sample) if metric.cpu_bound else metric.score(sample))
            if isinstance(score, Score):
                return score
            reason = f"the metric answered {type_name(score)}, not a Score"  # a user's metric that breaks the protocol
            return _unscored(metric, Outcome.METRIC_ERROR, reason, error_type="no_score")
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task would end the loop of the whole process)
            reason = f"the metric raised {raised_by_user(error)}"
            return _unscored(metric, Outcome.METRIC_ERROR, reason, error_type=type_name(error))

    async def _computed(self, metric: Metric, sample: Sample) -> Score:
        if self._pool is None:
            self._pool = DaemonPool(_THREADS, "spanscore-metric", native=True)
        # Called on the thread: what is given up before its turn would leave a coroutine, and Python says so on stderr.
        with asked_by(self._asker(metric.name)):  # no question that it asks there is one of the loop's
            return await run_interruptibly(self._pool, lambda: run_without_loop(metric.score(sample)))


@dataclass(slots=True, eq=False)
class RunningMetric:
    """A metric that is at work on a sample, and the calls that it has paid for so far."""

    metric: Metric
    sample: Sample
    timeout_s: float
    calls: list[JudgeCall]
    asker: ScoreContext
    turn: MetricSlot | None
    task: asyncio.Task[Score]

    def score(self, samples: Samples) -> Score:
        """Return the score that it came to, which may be that it came to none."""
        if self.task.cancelled():  # by the metric itself, or by a client of its judge
            return _unscored(self.metric, Outcome.METRIC_ERROR, "the metric was cancelled", error_type="CancelledError")
        return _placed(self.task.result(), self.metric, self.sample, samples)

    def late(self) -> Score:
        """Return the score of a metric that took too long."""
        reason = f"no score within {self.timeout_s:g} s"
        return _unscored(self.metric, Outcome.TIMEOUT, reason, error_type="timeout", calls=tuple(self.calls))


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job whose metrics are at work side by side. Loop thread.

    Attributes:
        scores: those that are in and were not taken away.
        undecided: whether further metrics may be begun.
    """

    job: Job
    _on_change: Callable[[], None]
    undecided: bool = False
    scores: list[Score] = field(default_factory=list)
    _unfinished: dict[str, tuple[RunningMetric, Deadline]] = field(default_factory=dict)
    _late_ones: set[str] = field(default_factory=set)
    _given_up: list[RunningMetric] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether all scores are in."""
        return not self._unfinished and not self._late_ones and not self.undecided

    @property
    def computes(self) -> bool:
        """Whether one of the metrics that go on computes; the others wait for somebody."""
        return any(one.metric.cpu_bound for one, _ in self._unfinished.values())

    def take(self) -> list[Score]:
        """Return the scores that are in and were not taken yet."""
        taken, self.scores = self.scores, []
        return taken

    def take_in(self, name: str, score: Score, source: str | None = None) -> None:
        """Add the score of a metric, whatever it calls itself there; the source is that of one that has none."""
        self.scores.append(_signed(score, name, self.job, source))

    def follow(self, name: str, one: RunningMetric) -> None:
        """Take in the score of a metric when it is there, or when it is late."""
        deadline = Deadline(one.asker, one.timeout_s, lambda: self._late(name))
        self._unfinished[name] = one, deadline
        one.task.add_done_callback(lambda _: self._ended(name))
        one.asker.on_change = deadline.update

    def give_up(self) -> None:
        """Let every metric go that is still at work: an answer that no score will use is not paid for."""
        self._late_ones.clear()
        for name in list(self._unfinished):
            self._given_up.append(one := self._let_go(name))
            one.task.cancel()

    def unused(self) -> list[Score]:
        """Return what those that were given up have asked for, and may have to pay, as scores that a shutdown ended.

        To be called when they have taken notice (``cancelled_tell``).
        """
        paid = (
            (one, _unscored(one.metric, Outcome.SHUTDOWN, _SHUT_DOWN, calls=tuple(one.calls))) for one in self._given_up
        )
        return [_signed(score, one.asker.metric, self.job, one.asker.source) for one, score in paid if one.calls]

    def _ended(self, name: str) -> None:
        if name in self._unfinished:  # else it was late, or given up
            one = self._let_go(name)
            self._finish(name, one, lambda: one.score(self.job.samples))

    def _late(self, name: str) -> None:
        one = self._let_go(name)
        one.task.cancel()  # and abandoned: wait_for would wait for a judge that swallows its cancellation
        self._late_ones.add(name)
        _in_turns(_TURNS, lambda: self._ended_late(name, one))

    def _ended_late(self, name: str, one: RunningMetric) -> None:
        if name in self._late_ones:  # else the job was given up meanwhile
            self._late_ones.remove(name)
            self._finish(name, one, one.late)

    def _let_go(self, name: str) -> RunningMetric:
        one, deadline = self._unfinished.pop(name)
        one.asker.on_change = None
        deadline.stop()
        if one.turn is not None:
            one.turn.give_back()
        return one

    def _finish(self, name: str, one: RunningMetric, come_to: Callable[[], Score]) -> None:
        try:
            with asked_by(one.asker):  # the evaluator version is that of the judge that was asked
                score = come_to()
            self.take_in(name, score, one.asker.source)
        except BaseException as error:  # noqa: BLE001  (a metric whose own version raises)
            self.take_in(name, _broken(name, error))
        self._on_change()


def _asking_for(one: ScoreContext) -> list[JudgeCall]:
    """Have all that is asked in this context from now on, which is a task's own, asked for a score; return the calls."""
    ask_for(one)
    return record_calls()


def _in_turns(turns: int, call: Callable[[], None]) -> None:
    """Call it after so many turns of the loop."""
    if turns == 0:
        call()
    else:
        asyncio.get_running_loop().call_soon(_in_turns, turns - 1, call)


def absent_fields(metric: Metric, samples: Samples) -> tuple[str, ...]:
    """Return the fields that a metric needs and its sample lacks; the kinds of samples that it takes if there is none."""
    sample = _sample_for(metric, samples)
    if sample is None:
        return tuple(metric.requires)
    kind = "multi_turn" if sample is samples.multi_turn else "single_turn"
    return tuple(missing_fields(sample, metric.requires[kind]))


def _sample_for(metric: Metric, samples: Samples) -> Sample | None:
    if samples.multi_turn is not None and "multi_turn" in metric.requires:
        return samples.multi_turn
    return samples.single_turn if "single_turn" in metric.requires else None


def _without_sample(metric: Metric, samples: Samples) -> Score:
    if samples.outcome is not None:
        return _unscored(metric, samples.outcome, samples.reason or samples.outcome.value)
    kinds = " or ".join(kind.replace("_", "-") for kind in metric.requires)
    score = _unscored(metric, Outcome.MISSING_FIELD, f"{metric.name} needs a {kinds} sample; the unit gives none")
    return replace(score, missing=absent_fields(metric, samples))


def _placed(score: Score, metric: Metric, sample: Sample, samples: Samples) -> Score:
    """Return a score; of one that lacks a field with the places where that was looked for."""
    if score.outcome is not Outcome.MISSING_FIELD:
        return score
    missing = absent_fields(metric, samples)
    places = [f"{name} was looked for in {where}" for name, where in samples.searched if name in missing]
    return replace(score, missing=missing, reason="; ".join([score.reason or score.outcome.value, *places]))


def _unscored(
    metric: Metric,
    outcome: Outcome,
    reason: str,
    *,
    error_type: str | None = None,
    calls: tuple[JudgeCall, ...] = (),
) -> Score:
    if outcome.failed and error_type is None:
        error_type = outcome.value
    return Score(
        metric=metric.name,
        version=metric.version,
        evaluator_version=metric.evaluator_version,
        scale=metric.scale,
        outcome=outcome,
        reason=reason,
        error_type=error_type,
        usage=Usage(calls),
    )


def _broken(name: str, error: BaseException) -> Score:
    """Return the failure of a metric of which nothing can be read but the name by which it is known."""
    reason, kind = f"the metric raised {raised_by_user(error)}", type_name(error)
    return Score(metric=name, version="", outcome=Outcome.METRIC_ERROR, reason=reason, error_type=kind)


def _unknown(name: str, samples: Samples) -> Score:
    """Return the score of a metric that this process lacks; the samples' own outcome, as ``too_late``, comes first."""
    if (outcome := samples.outcome) is not None:
        kind = outcome.value if outcome.failed else None
        return Score(metric=name, version="", outcome=outcome, reason=samples.reason or outcome.value, error_type=kind)
    reason = "this scorer has no such metric: it was chosen by a process with another configuration"
    return Score(metric=name, version="", outcome=Outcome.METRIC_ERROR, reason=reason, error_type="unknown_metric")


def _signed(score: Score, name: str, job: Job, source: str | None) -> Score:
    decision = job.decisions[name]
    return signed(
        score,
        job.unit,
        metric=name,
        probability=decision.probability,
        threshold=decision.threshold,
        rule=decision.rule,
        source=score.source or source,
        revision=job.unit.revision,
    )


@dataclass(slots=True)
class MetricSlot:
    """The turn of one score. Loop thread."""

    _places: Semaphore
    _is_taken: bool = False

    async def take(self) -> None:
        """Wait for a place; no time of the score's."""
        if self._places.locked():
            with asker().asks(), asker().waits():
                await self._places.acquire()
        else:
            await self._places.acquire()
        self._is_taken = True

    def give_back(self) -> None:
        """Let the next one have the place, if it was taken."""
        if self._is_taken:
            self._is_taken = False
            self._places.release()


class Deadline:
    """Calls ``late`` when a score was worked for as long as it may take, on the loop on which it is made. Loop thread.

    Args:
        asker: says whether anybody works for it.
        timeout_s: seconds of work.
    """

    def __init__(self, asker: ScoreContext, timeout_s: float, late: Callable[[], None]) -> None:
        self._asker = asker
        self._left_s = timeout_s
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.update()

    def update(self) -> None:
        """Stand still or go on, where the asker has begun to wait or to be worked for."""
        if self._timer is None and not self._asker.is_waiting:
            self._timer = self._loop.call_later(self._left_s, self._late)
        elif self._timer is not None and self._asker.is_waiting:
            self._left_s = max(0.0, self._timer.when() - self._loop.time())
            self.stop()

    def stop(self) -> None:
        """Stand still until the next ``update``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""``Evaluation`` runs all metrics of a job concurrently, each with a deadline. A failure is a score without a value."""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import NamedTuple

from spanscore.core.job import Decision, Job
from spanscore.core.log import type_name, user_origin
from spanscore.core.loop import after_turns
from spanscore.core.sample import Sample, Samples, missing_fields
from spanscore.core.score import JudgeCall, Outcome, Score, Usage, change_score
from spanscore.core.threads import DaemonPool, run_interruptibly, run_without_loop
from spanscore.judges.effects.budget_ledger import BudgetLedger
from spanscore.judges.effects.middleware import account_of
from spanscore.judges.records import record_calls
from spanscore.judges.score_context import ScoreContext, ask_for, asked_by, current_score, suppressed_context
from spanscore.protocols import Metric

_THREADS = 2
"""Maximum number of metrics that compute at the same time. More threads contend for the GIL, and are not faster."""
_TURNS = 10
"""Turns of the loop after which a cancelled metric has recorded its open questions: each task below it takes one turn."""
_SHUT_DOWN = "the scorer was shut down while its judge was asked"
_DISABLED = Samples(outcome=Outcome.FILTERED, reason="disabled")


def accounts_asked(metric: Metric) -> tuple[Hashable, ...]:
    """Return the accounts of a metric's judge and embeddings; empty if it uses neither, or uses its own client."""
    judges = (getattr(metric, name, None) for name in ("_judge", "_embedder"))
    return tuple(account_of(judge) for judge in judges if judge is not None)


class Beginning(NamedTuple):
    """The beginning of a metric's questions about a sample, which the provider caches.

    Questions about one sample have the same beginning if the ``account`` of their judges and ``first_field``, the field of the
    sample with which they begin, are equal. ``questions`` is the number of the metric's questions with this beginning.
    """

    account: Hashable
    first_field: str
    questions: int


def _beginnings_of(metric: Metric) -> dict[str, Beginning | None]:
    """Return kind of sample → beginning of the metric's questions, None if no field of the sample begins them; empty without
    a judge.
    """
    judge, beginning = getattr(metric, "_judge", None), getattr(metric, "beginning", None)
    if judge is None or beginning is None:
        return {}
    firsts = {kind: beginning(kind) for kind in metric.requires}
    account = account_of(judge)
    return {kind: Beginning(account, field, number) if field else None for kind, (field, number) in firsts.items()}


def asks_a_judge(metric: Metric) -> bool:
    """Whether a metric calls a judge or embeddings. A client of the metric's own counts if the metric names the model."""
    return bool(accounts_asked(metric) or getattr(metric, "_judge_model", ""))


def quota_of(metric: Metric) -> Hashable:
    """Return a key that metrics share if they ask the same accounts or compute in the same pool; otherwise the metric's
    name.
    """
    return accounts_asked(metric) or ("computes" if metric.cpu_bound else metric.name)


async def wait_for_cancelled() -> None:
    """Wait until cancelled metrics have recorded the questions that they had sent."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@dataclass(eq=False, repr=False)
class Evaluation:
    """Runs all metrics of a job concurrently, each with a deadline. Call on the loop thread.

    Attributes:
        timeout_s: seconds that one metric may work on one sample; a metric's own ``timeout_s`` overrides it. Time in
            which the score waits for its place, or all its open questions wait to be sent, does not count.
        budget_ledger: budgets that pay the metrics' questions; None = no budget.
        at_once: maximum concurrent scores of a metric without a known judge, which may call a service; None = unlimited.
        transcribes: whether a score contains the questions to its judge, for `JudgeSpans`.
        quotes: whether these questions contain prompts and answers.
        disabled: whether every score is ``filtered``, and no metric is called.
    """

    metrics: Mapping[str, Metric]
    _: KW_ONLY
    timeout_s: float = 180.0
    budget_ledger: BudgetLedger | None = None
    at_once: int | None = None
    transcribes: bool = False
    quotes: bool = False
    disabled: bool = False

    def __post_init__(self) -> None:
        self._score_context = partial(ScoreContext, transcribes=self.transcribes, quotes=self.quotes)
        self._pool: DaemonPool | None = None
        self._beginnings = {name: _beginnings_of(metric) for name, metric in self.metrics.items()}
        computing = asyncio.Semaphore(_THREADS)  # waiting for a thread does not count against the metric
        self._places = {name: computing for name, metric in self.metrics.items() if metric.cpu_bound}
        self._places |= {
            name: asyncio.Semaphore(self.at_once)
            for name, metric in self.metrics.items()
            if self.at_once is not None and not metric.cpu_bound and not accounts_asked(metric)
        }

    def close(self) -> None:
        """End the pool's threads, each after its present metric. It does not keep a later metric from beginning."""
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, job: Job, on_change: Callable[[], None]) -> RunningJob:
        """Begin every metric that sampled the job's unit.

        ``on_change`` is called when a score arrives after this method has returned. Scores that arrive earlier are in
        ``RunningJob.scores``.
        """
        running_job = RunningJob(job, on_change, undecided=job.undecided is not None)
        self._begin_each(job.decisions, running_job)
        return running_job

    def begin_rest(self, decisions: Mapping[str, Decision], running_job: RunningJob) -> None:
        """Begin the metrics that were decided on after a job's first scores; ``decisions`` may be empty."""
        running_job.job = replace(running_job.job, decisions={**running_job.job.decisions, **decisions})
        running_job.undecided = False
        self._begin_each(decisions, running_job)

    def _begin_each(self, names: Iterable[str], running_job: RunningJob) -> None:
        job, alike = running_job.job, Counter[tuple[Hashable, str]]()
        beginnings = {name: begin for name in job.decisions if (begin := self._beginning(name, job.samples))}
        for account, first_field, questions in beginnings.values():
            alike[account, first_field] += questions
        questions_alike = {name: (field, alike[account, field]) for name, (account, field, _) in beginnings.items()}
        for name in names:
            try:
                self._begin(name, running_job, questions_alike)
            except BaseException as error:  # noqa: BLE001  (a metric's ``requires`` may raise)
                running_job.take_in(name, _broken(name, error))

    async def each(self, job: Job) -> AsyncGenerator[Score]:
        """Yield one score per metric of a job, in the order of completion. No further metric of the job may be decided on."""
        changed = asyncio.Event()
        running_job = self.begin(job, changed.set)
        try:
            over = False
            while not over:
                over = running_job.is_over  # read first: scores that arrive meanwhile are taken next time
                for score in running_job.take():
                    yield score
                if not over:
                    await changed.wait()
                    changed.clear()
        finally:
            running_job.give_up()

    def _beginning(self, name: str, samples: Samples) -> Beginning | None:
        beginnings = self._beginnings.get(name, {})
        kind = _kind_for(beginnings, samples)
        return None if kind is None else beginnings[kind]

    def _begin(self, name: str, running_job: RunningJob, questions_alike: Mapping[str, tuple[str, int]]) -> None:
        job = running_job.job
        samples = _DISABLED if self.disabled else job.samples
        metric = self.metrics.get(name)
        if metric is None:  # another process sampled for a metric that is missing here
            running_job.take_in(name, _unknown(name, samples))
            return
        sample = _sample_for(metric, samples)
        if sample is None:
            if samples.outcome is not None:
                score = _unscored(metric, samples.outcome, samples.reason or samples.outcome.value)
            else:
                kinds = " or ".join(kind.replace("_", "-") for kind in metric.requires)
                reason = f"{metric.name} needs a {kinds} sample; the unit has none"
                score = _unscored(metric, Outcome.MISSING_FIELD, reason)
                score = replace(score, missing=absent_fields(metric, job.samples))
            running_job.take_in(name, score)
            return
        timeout_s = getattr(metric, "timeout_s", None) or self.timeout_s
        score_context = self._score_context(name, job.taken_s, job.held_until_s, self.budget_ledger)
        if name in questions_alike:
            score_context.first_field, score_context.questions_alike = questions_alike[name]
        slot = MetricSlot(self._places[name]) if name in self._places else None
        context = suppressed_context()  # a metric's questions are not runs of the application
        context.run(ask_for, score_context)
        calls = context.run(record_calls)
        task = asyncio.get_running_loop().create_task(self._guarded(metric, sample, slot), context=context)
        running_job.follow(name, RunningMetric(metric, timeout_s, calls, score_context, slot, task))

    async def _guarded(self, metric: Metric, sample: Sample, slot: MetricSlot | None) -> Score:
        try:
            if slot is not None:
                await slot.take()
            score: object = await (self._compute(metric, sample) if metric.cpu_bound else metric.score(sample))
            if isinstance(score, Score):
                return score
            reason = f"the metric returned {type_name(score)}, not a Score"  # a user's metric breaks the protocol
            return _unscored(metric, Outcome.METRIC_ERROR, reason, error_type="no_score")
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task would end the loop of the whole process)
            reason = f"the metric raised {user_origin(error)}"
            return _unscored(metric, Outcome.METRIC_ERROR, reason, error_type=type_name(error))

    async def _compute(self, metric: Metric, sample: Sample) -> Score:
        if self._pool is None:
            self._pool = DaemonPool(_THREADS, "spanscore-metric", native=True)
        # `metric.score` is called on the thread: if the pool drops the job, no coroutine is left unawaited.
        with asked_by(self._score_context(metric.name)):  # the score's own context belongs to the loop thread
            return await run_interruptibly(self._pool, lambda: run_without_loop(metric.score(sample)))


@dataclass(slots=True, eq=False)
class RunningMetric:
    """A metric that is scoring a sample.

    ``timeout_s`` bounds its work, ``calls`` are its judge calls so far. Without a ``slot`` its concurrent scores are unlimited.
    """

    metric: Metric
    timeout_s: float
    calls: list[JudgeCall]
    score_context: ScoreContext
    slot: MetricSlot | None
    task: asyncio.Task[Score]

    def score(self, samples: Samples) -> Score:
        """Return the score of the task, which has ended; for ``missing_field`` with the searched places in its reason."""
        if self.task.cancelled():  # the metric itself or its judge's client cancelled the task
            return _unscored(self.metric, Outcome.METRIC_ERROR, "the metric was cancelled", error_type="CancelledError")
        score = self.task.result()
        if score.outcome is not Outcome.MISSING_FIELD:
            return score
        missing = absent_fields(self.metric, samples)
        places = [f"{name} was looked for in {where}" for name, where in samples.searched if name in missing]
        return replace(score, missing=missing, reason="; ".join([score.reason or score.outcome.value, *places]))

    def late(self) -> Score:
        """Return the score for a metric that exceeded its time."""
        reason = f"no score within {self.timeout_s:g} s"
        return _unscored(self.metric, Outcome.TIMEOUT, reason, error_type="timeout", calls=tuple(self.calls))


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job with its metrics, which run concurrently. Call on the loop thread.

    States of a metric:
        unfinished: its task runs. When the task ends, its score is added.
        late: its deadline has passed, and its task is cancelled. After ``_TURNS`` turns, in which the task records its open
            questions, the score ``timeout`` is added.
        given up: the job was cancelled. ``add_unused`` adds the score ``shutdown`` if it called the judge.

    Attributes:
        undecided: whether further metrics may begin, after the scores of condition metrics.
        scores: scores that have arrived and that ``take`` has not returned.
    """

    job: Job
    _on_change: Callable[[], None]
    undecided: bool = False
    scores: list[Score] = field(default_factory=list)
    _unfinished: dict[str, tuple[RunningMetric, Deadline]] = field(default_factory=dict)
    _late_metrics: dict[str, RunningMetric] = field(default_factory=dict)
    _given_up: list[RunningMetric] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether all scores have arrived, and no further metric may begin."""
        return not self._unfinished and not self._late_metrics and not self.undecided

    @property
    def computes(self) -> bool:
        """Whether a running metric uses the CPU; if not, all running metrics wait for a judge or a service."""
        return any(running.metric.cpu_bound for running, _ in self._unfinished.values())

    def take(self) -> list[Score]:
        """Return and remove the scores that have arrived."""
        taken, self.scores = self.scores, []
        return taken

    def take_in(self, name: str, score: Score, source: str | None = None) -> None:
        """Add a score of the metric ``name``; ``source`` is the source of a score that has none."""
        decision = self.job.decisions[name]
        self.scores.append(
            change_score(
                score,
                self.job.unit,
                metric=name,
                probability=decision.probability,
                threshold=decision.threshold,
                rule=decision.rule,
                source=score.source or source,
                revision=self.job.unit.revision,
            )
        )

    def follow(self, name: str, running: RunningMetric) -> None:
        """Arrange that the score of a running metric is added when it arrives, or at the metric's deadline."""
        deadline = Deadline(running.score_context, running.timeout_s, lambda: self._late(name))
        self._unfinished[name] = running, deadline
        running.task.add_done_callback(lambda _: self._ended(name))
        running.score_context.on_change = deadline.update

    def give_up(self) -> None:
        """Cancel every running metric, so that unused answers are not paid for."""
        self._given_up += self._late_metrics.values()
        self._late_metrics.clear()
        for name in list(self._unfinished):
            self._given_up.append(running := self._stop_metric(name))
            running.task.cancel()

    def add_unused(self) -> None:
        """Add a score ``shutdown`` for each cancelled metric with judge calls, because the provider may bill these calls.

        Call it after ``wait_for_cancelled``.
        """
        for running in self._given_up:
            if running.calls:
                score = _unscored(running.metric, Outcome.SHUTDOWN, _SHUT_DOWN, calls=tuple(running.calls))
                self.take_in(running.score_context.metric, score, running.score_context.source)

    def _ended(self, name: str) -> None:
        if name in self._unfinished:  # the task of a late or given up metric ends, too
            running = self._stop_metric(name)
            self._finish(name, running, lambda: running.score(self.job.samples))

    def _late(self, name: str) -> None:
        running = self._stop_metric(name)
        running.task.cancel()  # without ``wait_for``, which would wait for a judge that swallows the cancellation
        self._late_metrics[name] = running
        after_turns(_TURNS, lambda: self._end_late(name, running))

    def _end_late(self, name: str, running: RunningMetric) -> None:
        if name in self._late_metrics:  # ``give_up`` removes late metrics
            del self._late_metrics[name]
            self._finish(name, running, running.late)

    def _stop_metric(self, name: str) -> RunningMetric:
        running, deadline = self._unfinished.pop(name)
        running.score_context.on_change = None
        deadline.stop()
        if running.slot is not None:
            running.slot.give_back()
        return running

    def _finish(self, name: str, running: RunningMetric, make_score: Callable[[], Score]) -> None:
        try:
            with asked_by(running.score_context):  # so that the evaluator version names the judge that answered
                score = make_score()
            self.take_in(name, score, running.score_context.source)
        except BaseException as error:  # noqa: BLE001  (a metric's own version may raise)
            self.take_in(name, _broken(name, error))
        self._on_change()


def absent_fields(metric: Metric, samples: Samples) -> tuple[str, ...]:
    """Return the required fields that a metric's sample lacks; without a sample, the kinds of samples that it accepts."""
    sample = _sample_for(metric, samples)
    if sample is None:
        return tuple(metric.requires)
    kind = "multi_turn" if sample is samples.multi_turn else "single_turn"
    return tuple(missing_fields(sample, metric.requires[kind]))


def _kind_for(kinds: Collection[str], samples: Samples) -> str | None:
    """Return the kind of sample that a metric of these kinds scores, a conversation first; None without such a sample."""
    if samples.multi_turn is not None and "multi_turn" in kinds:
        return "multi_turn"
    return "single_turn" if samples.single_turn is not None and "single_turn" in kinds else None


def _sample_for(metric: Metric, samples: Samples) -> Sample | None:
    kind = None if samples.outcome is not None else _kind_for(metric.requires, samples)
    return None if kind is None else getattr(samples, kind)


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
    """Return the failure of a metric with unreadable attributes, under its name in the scorer."""
    reason, kind = f"the metric raised {user_origin(error)}", type_name(error)
    return Score(metric=name, version="", outcome=Outcome.METRIC_ERROR, reason=reason, error_type=kind)


def _unknown(name: str, samples: Samples) -> Score:
    """Return the score of a metric that this process lacks. An outcome of the samples, such as ``no_sample``, has priority."""
    if (outcome := samples.outcome) is not None:
        kind = outcome.value if outcome.failed else None
        return Score(metric=name, version="", outcome=outcome, reason=samples.reason or outcome.value, error_type=kind)
    reason = "this scorer has no such metric: another process with another configuration sampled the unit for it"
    return Score(metric=name, version="", outcome=Outcome.METRIC_ERROR, reason=reason, error_type="unknown_metric")


@dataclass(slots=True)
class MetricSlot:
    """The place of one score among the concurrent scores of its metric. Call on the loop thread."""

    _places: Semaphore
    _is_taken: bool = False

    async def take(self) -> None:
        """Wait for a place. The wait does not count against the score's time."""
        if self._places.locked():  # counts as one open question, which waits to be sent, so that the deadline stops
            with current_score().asks(), current_score().waits():
                await self._places.acquire()
        else:
            await self._places.acquire()
        self._is_taken = True

    def give_back(self) -> None:
        """Release the place, if it was taken."""
        if self._is_taken:
            self._is_taken = False
            self._places.release()


@dataclass(slots=True)
class Deadline:
    """Calls ``late`` when the work on a score exceeds the remaining ``left_s`` seconds. Call on the loop thread.

    While ``score_context.is_waiting`` is true, no time passes.
    """

    score_context: ScoreContext
    left_s: float
    late: Callable[[], None]
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.update()

    def update(self) -> None:
        """Stop or resume the time, after the score has begun or ended a wait."""
        if self._timer is None and not self.score_context.is_waiting:
            self._timer = self._loop.call_later(self.left_s, self.late)
        elif self._timer is not None and self.score_context.is_waiting:
            self.left_s = max(0.0, self._timer.when() - self._loop.time())
            self.stop()

    def stop(self) -> None:
        """Stop the time until the next ``update``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

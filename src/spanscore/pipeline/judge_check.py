"""``JudgeCheckRuns`` scores labelled samples on a schedule, and compares with the first answers to detect a changed judge.

The statistics are in ``monitoring/judge_check_runs.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.config.monitoring import JudgeCheck
from spanscore.core import loop
from spanscore.core.codecs.annotation_file import passes, read_annotations
from spanscore.core.codecs.stored_sample import content_hash
from spanscore.core.files import ProcessLock
from spanscore.core.job import Decision, Job
from spanscore.core.log import log_internal_error
from spanscore.core.printable import format_age
from spanscore.core.sample import HumanValue, Sample, Samples
from spanscore.core.score import Score
from spanscore.core.span import Unit, UnitKey
from spanscore.core.timebox import HookTimeout, Timebox
from spanscore.errors import ConfigurationError
from spanscore.judges.effects.cache import answers_kept
from spanscore.monitoring.judge_check import select_watched
from spanscore.monitoring.judge_check_runs import FirstAnswers, PairedAnswer, PairedRuns, compare_runs
from spanscore.outputs.aggregates import GaugeReading, labels_of_source
from spanscore.outputs.instruments import Telemetry
from spanscore.pipeline.evaluation import Evaluation
from spanscore.pipeline.jobs import Hooks
from spanscore.protocols import Metric


class JudgeCheckCase(NamedTuple):
    """A labelled sample. ``key`` is a hash of its content: edits of other lines of the file do not change it."""

    key: str
    sample: Sample
    human: HumanValue


def cases_of(judge_check: JudgeCheck, watched: Mapping[str, Metric]) -> tuple[JudgeCheckCase, ...]:
    """Return the labelled samples of a judge check's file, each sample once.

    Raises:
        ConfigurationError: the file cannot be read, has no sample, or has a label that is neither pass nor fail on the scale of
            a watched metric.
    """
    rows = [*read_annotations(judge_check.path, name=judge_check.name)]
    cases = {
        key: JudgeCheckCase(key, row.sample, row.human)
        for row in rows
        if row.sample and (key := content_hash(row.sample))
    }
    if not cases:
        raise ConfigurationError(
            f"judge_check.golden_set: {judge_check.path} has labels without samples; a judge needs their fields"
        )
    for row in rows:
        for metric in watched.values():
            try:
                passes(row.human, metric.scale)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"judge_check.golden_set: {judge_check.path}, line {row.line}, {metric.name}: {error}"
                ) from None
    return tuple(cases.values())


_FIRST_S: Final = (10.0, 60.0)
"""Range of seconds from the first unit to the first run, to avoid the burst of a start, and a run in all replicas at once."""
_STAND_BY_S: Final = 600.0
"""Seconds after which a waiting process checks whether the process with the runs has ended."""
_CONCURRENT: Final = 2
"""Number of concurrent samples; all metrics of a sample are scored at once."""
_ALWAYS = Decision(take=True, probability=1.0, threshold=0, rule=semconv.SOURCE_JUDGE_CHECK)
"""The decision on each labelled sample."""
Prepare = Callable[[Sample], Awaitable[Samples]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCheckStatus:
    """The state of one metric's judge check.

    Attributes:
        metric: name of the metric.
        evaluator_version: evaluator version of the metric.
        last: comparison of the last run with the first; None before the first run has ended.
        ran_s: seconds since the last run ended; None before the first run has ended.
        next_s: seconds until the next run begins; None during a run, before the first unit, and after the shutdown.
        reason: latest reason for a missing score in the last or present run, or the fallback that answered; empty if the judge
            gave every score.
        stands_by: whether another process of this machine does the runs.
        runs: whether a run is in progress.
    """

    metric: str
    evaluator_version: str
    last: PairedRuns | None
    ran_s: float | None
    next_s: float | None
    reason: str
    stands_by: bool = False
    runs: bool = False

    def __str__(self) -> str:
        if self.stands_by:
            return f"{self.metric} judge check: another process of this machine does its runs"
        why = f" (latest {self.reason})" if self.reason else ""
        ran = "" if self.ran_s is None else f"; ran {format_age(self.ran_s)} ago"
        runs = "; runs now" if self.runs else ""
        next_run = "" if self.next_s is None else f"; next in {format_age(self.next_s)}"
        return f"{self.metric} judge check: {self._describe()}{why}{ran}{runs}{next_run}"

    def _describe(self) -> str:
        run = self.last
        if run is None:
            return "no run yet"
        if not run.is_enough:
            return f"too few answers for a result: {run.answered} of {run.samples} samples"
        changed = f"qualities compared with the first run: {run.raised} higher, {run.lowered} lower"
        right = f"agrees with {run.right} of {run.answered} labels, at first with {run.was_right}"
        return f"{right}; {changed}, p = {run.p:.2g}"


@dataclass(eq=False, repr=False)
class JudgeCheckRuns:
    """Scores labelled samples on a schedule, and compares each run with the first.

    - Runs use the metrics' own judges, and bypass every cache, because a cache would hide a changed judge.
    - A run's questions have lower priority than those of live units whose spans wait for scores.
    - Runs are outside sampling, and no ledger counts them. They export their cost, score sums with the source ``judge_check``,
      and three gauges.
    - If processes of a machine share a baseline and watch the same evaluator versions, one of them does the runs. If that
      process ends, another continues.

    All methods run on the loop except ``copy_with_evaluation``, ``start``, ``stop``, ``states`` and ``points``.

    Attributes:
        metrics: name → watched metric.
        every_s: seconds from the start of one run to the start of the next.
        first: the judges' first answers, from a file.
        lock: lock that one process has at a time; that process does the runs.
        evaluation: scores the metrics, each under the name of ``build_check_name``.
        prepare: returns the redacted samples for a judge.
        record: called with each score, which has the source ``judge_check``.
        clock: returns seconds, monotonic.
    """

    metrics: Mapping[str, Metric]
    cases: Sequence[JudgeCheckCase]
    _: KW_ONLY
    every_s: float
    first: FirstAnswers
    lock: ProcessLock
    evaluation: Evaluation
    prepare: Prepare
    record: Callable[[Score], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = random.uniform
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self._stands_by = self._runs = False
        self._running: Future[None] | None = None
        self._last: Mapping[str, PairedRuns] = {}
        self._reasons: dict[str, str] = {}
        self._ended_s: float | None = None
        self._due_s: float | None = None

    @property
    def versions(self) -> Mapping[str, str]:
        """Metric → its evaluator version."""
        return {name: metric.evaluator_version for name, metric in self.metrics.items()}

    def copy_with_evaluation(self, evaluation: Evaluation) -> JudgeCheckRuns:
        """Return a copy with another evaluation, and release this object's lock.

        A forked child waits while its parent has the lock.
        """
        self.lock.release()
        return replace(self, evaluation=evaluation)

    def start(self) -> None:
        """Start the runs, unless they have been started. Thread-safe; does not block."""
        if self._running is None:
            self._running = loop.submit(self._run_on_schedule())

    def stop(self) -> None:
        """Begin no more runs, and cancel open questions. Thread-safe; does not wait."""
        if self._running is not None:
            self._running.cancel()

    async def _run_on_schedule(self) -> None:
        wait_s = self.uniform(*_FIRST_S)
        try:
            while True:
                self._due_s = self.clock() + wait_s
                await self.sleep(wait_s)
                self._stands_by = not self.lock.take()
                wait_s = _STAND_BY_S if self._stands_by else await self._run_once()
        finally:
            self.lock.release()
            self._due_s, self._runs = None, False

    async def _run_once(self) -> float:
        """Do a run, and return the seconds until the next run. An error of the run is logged."""
        began_s, self._due_s, self._runs = self.clock(), None, True
        try:
            await self.run()
        except Exception as error:  # noqa: BLE001  (the next run may succeed)
            log_internal_error("score labelled samples", error)
        self._ended_s, self._runs = self.clock(), False
        return max(0.0, began_s + self.every_s - self._ended_s)

    async def run(self) -> None:
        """Score all samples once, and compare the answers with the first ones. Call on the loop."""
        answers: dict[str, dict[str, float]] = {name: {} for name in self.metrics}
        self._reasons = {}
        cases = iter(self.cases)
        with answers_kept(None):
            await asyncio.gather(*(self._ask_each(cases, answers) for _ in range(_CONCURRENT)))

        def keep_first_answers() -> None:
            for name, of_metric in answers.items():
                self.first.keep(name, self.metrics[name].evaluator_version, of_metric)

        await asyncio.get_running_loop().run_in_executor(None, keep_first_answers)  # writes a file
        self._last = {name: self._compare(metric, answers[name]) for name, metric in self.metrics.items()}

    async def _ask_each(self, cases: Iterator[JudgeCheckCase], answers: Mapping[str, dict[str, float]]) -> None:
        for case in cases:
            names = {build_check_name(name): name for name in self.metrics}
            unit = Unit(UnitKey(int(case.key, 16), 1), ())  # no real unit: its key is the hash of the sample
            job = Job(unit, await self.prepare(case.sample), dict.fromkeys(names, _ALWAYS))
            async with aclosing(self.evaluation.each(job)) as scores:
                async for score in scores:
                    name = names[score.metric]
                    self._take(replace(score, metric=name), case, answers[name])

    def _take(self, score: Score, case: JudgeCheckCase, answers: dict[str, float]) -> None:
        """Record an answer of the judge; of a missing score, or the score of a fallback, only the reason is recorded."""
        if score.quality is not None and score.source is None:
            answers[case.key] = score.quality
        else:
            self._reasons[score.metric] = f"{score.outcome}: {score.reason or score.source}"
        self.record(replace(score, source=semconv.SOURCE_JUDGE_CHECK))

    def _compare(self, metric: Metric, answers: Mapping[str, float]) -> PairedRuns:
        first = self.first.of(metric.name, metric.evaluator_version)
        human = {case.key: passes(case.human, metric.scale) for case in self.cases}
        right = {key: _is_pass(metric, now) == human[key] for key, now in answers.items()}
        pairs = [
            PairedAnswer(first[key], now, _is_pass(metric, first[key]) == human[key], right[key])
            for key, now in answers.items()
        ]
        return compare_runs(len(self.cases), pairs)

    def states(self) -> list[JudgeCheckStatus]:
        """Return the state of each metric's judge check. Thread-safe."""
        now_s, due_s, ended_s = self.clock(), self._due_s, self._ended_s
        return [
            JudgeCheckStatus(
                metric=name,
                evaluator_version=metric.evaluator_version,
                last=self._last.get(name),
                ran_s=None if ended_s is None else now_s - ended_s,
                next_s=None if due_s is None else max(0.0, due_s - now_s),
                reason=self._reasons.get(name, ""),
                stands_by=self._stands_by,
                runs=self._runs,
            )
            for name, metric in self.metrics.items()
        ]

    def points(self) -> dict[Hashable, GaugeReading]:
        """Return the gauges of each metric's last run, unless it has too few answers. Thread-safe."""
        return {(id(self), name): _point(self.metrics[name], run) for name, run in self._last.items() if run.is_enough}


def build_check_name(metric: str) -> str:
    """Return the name under which a judge check scores a metric.

    If the metric's own name were used, live units would wait behind the run, and the run's cost would lower sampling rates.
    """
    return f"{metric} {semconv.SOURCE_JUDGE_CHECK}"


def _is_pass(metric: Metric, quality: float) -> bool:
    return metric.scale.label(quality) == "pass"


def _point(metric: Metric, run: PairedRuns) -> GaugeReading:
    named = ((semconv.EVALUATION_NAME, metric.name), (semconv.EVALUATOR_VERSION, metric.evaluator_version))
    return GaugeReading(
        (*named, *labels_of_source(semconv.SOURCE_JUDGE_CHECK)),
        {
            semconv.JUDGE_CHECK_AGREEMENT: run.agreement,
            semconv.JUDGE_CHECK_FIRST_AGREEMENT: run.first_agreement,
            semconv.JUDGE_CHECK_P: run.p,
        },
    )


def judge_check_runs(
    judge_check: JudgeCheck | None,
    metrics: Mapping[str, Metric],
    *,
    evaluation: Callable[[Mapping[str, Metric]], Evaluation],
    prepare: Prepare,
    telemetry: Telemetry | None,
) -> JudgeCheckRuns | None:
    """Return the runs of a scorer's judge check; None if no judge check is configured. Reads its file.

    Raises:
        ConfigurationError: no metric can be watched, or a file cannot be used.
    """
    if judge_check is None:
        return None
    watched = select_watched(judge_check, metrics)
    return JudgeCheckRuns(
        watched,
        cases_of(judge_check, watched),
        every_s=judge_check.every,
        first=FirstAnswers(judge_check.baseline_path),
        lock=ProcessLock(judge_check.lock_path(metric.evaluator_version for metric in watched.values())),
        evaluation=evaluation({build_check_name(name): metric for name, metric in watched.items()}),
        prepare=prepare,
        record=(lambda _: None) if telemetry is None else partial(telemetry.record, None),
    )


def redact_for_judges(hooks: Hooks, box: Timebox) -> Prepare:
    """Return a function that redacts samples for judges. The user's filter is not applied, because it is for live units."""
    redacting = Hooks(hooks.redactor)

    async def prepare(sample: Sample) -> Samples:
        samples = Samples.of(sample)
        if redacting.redactor is None:
            return samples
        try:
            return await box.run_async(lambda: redacting.apply(samples))
        except HookTimeout as hung:
            return Samples(outcome=hung.outcome, reason=hung.reason)

    return prepare

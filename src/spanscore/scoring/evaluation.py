"""Job → Scores: every metric of a job at once, each with its deadline, failure as a value."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

from spanscore.judges.record import recorded_calls
from spanscore.judges.suppress import suppressed_context
from spanscore.model.foreign import type_name
from spanscore.model.job import Decision, Job
from spanscore.model.sample import Sample, Samples, missing_fields
from spanscore.model.score import JudgeCall, Outcome, Score, Usage, score_id
from spanscore.model.span import UnitKey
from spanscore.protocols import Metric
from spanscore.runtime.pool import DaemonPool, run_without_loop

__all__ = ["Evaluation"]


class Evaluation:
    """Scores jobs. Loop thread.

    Args:
        metrics: by name.
        timeout_s: deadline of one metric on one sample; a metric's own ``timeout_s`` wins.
    """

    def __init__(self, metrics: Mapping[str, Metric], *, timeout_s: float = 60.0) -> None:
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._pool: DaemonPool | None = None

    def reset(self) -> None:
        """Forget the pool: in a forked child its threads do not exist."""
        self._pool = None

    async def scores(self, job: Job) -> list[Score]:
        """Return one score per metric chosen for the job, in that order.

        Raises:
            Exception: a metric whose own name, version or ``requires`` raises.
        """
        begun: list[Score | _Running] = []
        try:
            for name in job.decisions:
                begun.append(self._begin(self._metrics[name], job.samples))  # noqa: PERF401  (what was begun is cancelled)
            late = await _until_deadlines([one for one in begun if isinstance(one, _Running)])
            found = [one if isinstance(one, Score) else _ended(one, job.samples, late) for one in begun]
        except BaseException:  # shut down: an answer that no score will use is not paid for
            for one in begun:
                if isinstance(one, _Running):
                    one.task.cancel()
            raise
        pairs = zip(found, job.decisions.values(), strict=True)
        return [_signed(score, decision, job.unit.key) for score, decision in pairs]

    def _begin(self, metric: Metric, samples: Samples) -> Score | _Running:
        sample = _sample_for(metric, samples)
        if sample is None:
            return _without_sample(metric, samples)
        timeout_s = getattr(metric, "timeout_s", None) or self._timeout_s
        with recorded_calls() as calls:
            # Whatever a metric asks, and however: it is no run of the application.
            task = asyncio.get_running_loop().create_task(self._guarded(metric, sample), context=suppressed_context())
        return _Running(metric, sample, timeout_s, calls, task)

    async def _guarded(self, metric: Metric, sample: Sample) -> Score:
        try:
            score = await self._computed(metric, sample) if metric.cpu_bound else await metric.score(sample)
            return score if isinstance(score, Score) else _no_score(metric, score)
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task would end the loop of the whole process)
            name = type_name(error)
            return _unscored(metric, Outcome.METRIC_ERROR, f"the metric raised {name}", error_type=name)

    async def _computed(self, metric: Metric, sample: Sample) -> Score:
        if self._pool is None:
            self._pool = DaemonPool(2, "spanscore-metric")
        # Called on the thread: what is given up before its turn would leave a coroutine, and Python says so on stderr.
        context = copy_context()  # a thread of the pool has none of it
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: context.run(lambda: run_without_loop(metric.score(sample)))
        )


@dataclass(frozen=True, slots=True)
class _Running:
    """A metric that is at work on a sample, and the calls that it has paid for so far."""

    metric: Metric
    sample: Sample
    timeout_s: float
    calls: list[JudgeCall]
    task: asyncio.Task[Score]


async def _until_deadlines(running: Sequence[_Running]) -> set[asyncio.Task[Score]]:
    """Wait for metrics that were begun together; cancel those that are not done in their time, and return them."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    late: set[asyncio.Task[Score]] = set()
    for timeout_s in sorted({one.timeout_s for one in running}):
        tasks = [one.task for one in running if one.timeout_s == timeout_s]
        _, unfinished = await asyncio.wait(tasks, timeout=max(0.0, began + timeout_s - loop.time()))
        for task in unfinished:
            task.cancel()  # and abandoned: wait_for would wait for a judge that swallows its cancellation
        late |= unfinished
    return late


def _ended(one: _Running, samples: Samples, late: Container[asyncio.Task[Score]]) -> Score:
    if one.task in late:
        reason = f"no score within {one.timeout_s:g} s"
        return _unscored(one.metric, Outcome.TIMEOUT, reason, error_type="timeout", calls=tuple(one.calls))
    if one.task.cancelled():  # by the metric itself, or by a client of its judge
        return _unscored(one.metric, Outcome.METRIC_ERROR, "the metric was cancelled", error_type="CancelledError")
    score = one.task.result()
    return _with_places(score, one.metric, one.sample, samples) if score.outcome is Outcome.MISSING_FIELD else score


def _sample_for(metric: Metric, samples: Samples) -> Sample | None:
    if samples.multi is not None and "multi_turn" in metric.requires:
        return samples.multi
    return samples.single if "single_turn" in metric.requires else None


def _without_sample(metric: Metric, samples: Samples) -> Score:
    if samples.outcome is not None:
        return _unscored(metric, samples.outcome, samples.reason or samples.outcome.value)
    kinds = " or ".join(kind.replace("_", "-") for kind in metric.requires)
    score = _unscored(metric, Outcome.MISSING_FIELD, f"{metric.name} needs a {kinds} sample; the unit gives none")
    return replace(score, missing=tuple(metric.requires))


def _with_places(score: Score, metric: Metric, sample: Sample, samples: Samples) -> Score:
    kind = "multi_turn" if sample is samples.multi else "single_turn"
    missing = tuple(missing_fields(sample, metric.requires[kind]))
    places = [f"{name} was looked for in {where}" for name, where in samples.looked_in if name in missing]
    return replace(score, missing=missing, reason="; ".join([score.reason or score.outcome.value, *places]))


def _no_score(metric: Metric, value: Any) -> Score:
    """Return the failure of a user's metric that breaks the protocol: its answer cannot be published."""
    kind = type_name(value)
    return _unscored(metric, Outcome.METRIC_ERROR, f"the metric answered {kind}, not a Score", error_type="no_score")


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
        series=metric.series,
        scale=metric.scale,
        outcome=outcome,
        reason=reason,
        error_type=error_type,
        usage=Usage(calls),
    )


def _signed(score: Score, decision: Decision, key: UnitKey) -> Score:
    return replace(
        score,
        probability=decision.probability,
        threshold=decision.threshold,
        rule=decision.rule,
        id=score_id(key, score.metric, score.version, score.revision),
    )

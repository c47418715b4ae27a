"""Job → Scores: every metric of a job at once, each with its deadline, failure as a value."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spanscore.judges.record import recorded_calls
from spanscore.model.job import Decision, Job
from spanscore.model.sample import Sample, Samples, missing_fields
from spanscore.model.score import JudgeCall, Outcome, Score, Usage, score_id
from spanscore.model.span import UnitKey
from spanscore.pool import DaemonPool, driven
from spanscore.protocols import Metric

__all__ = ["Evaluation"]


class Evaluation:
    """Scores jobs. Loop thread.

    Args:
        metrics: by name.
        timeout_s: deadline of one metric on one sample; a metric's own ``timeout_s`` wins.
        threads: of the pool for CPU-bound metrics.
    """

    def __init__(self, metrics: Mapping[str, Metric], *, timeout_s: float = 60.0, threads: int = 2) -> None:
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._threads = threads
        self._pool: DaemonPool | None = None

    def reset(self) -> None:
        """Forget the pool: in a forked child its threads do not exist."""
        self._pool = None

    async def scores(self, job: Job) -> list[Score]:
        """Return one score per metric chosen for the job, in that order. Never raises."""
        chosen = list(job.decisions.items())
        found = await asyncio.gather(*(self._score(self._metrics[name], job.samples) for name, _ in chosen))
        return [_signed(score, decision, job.unit.key) for score, (_, decision) in zip(found, chosen, strict=True)]

    async def _score(self, metric: Metric, samples: Samples) -> Score:
        sample = _sample_for(metric, samples)
        if sample is None:
            return _unscored(metric, *_why_not(metric, samples))
        with recorded_calls() as calls:
            score = await self._within_deadline(metric, sample, calls)
        return _told_where(score, metric, sample, samples) if score.outcome is Outcome.MISSING_FIELD else score

    async def _within_deadline(self, metric: Metric, sample: Sample, calls: list[JudgeCall]) -> Score:
        timeout_s = getattr(metric, "timeout_s", None) or self._timeout_s
        task = asyncio.ensure_future(self._guarded(metric, sample))
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            task.cancel()  # shut down: nobody pays for answers that nobody waits for
            raise
        if done:
            return task.result()
        task.cancel()  # and abandoned: wait_for would wait for a judge that swallows its cancellation
        reason = f"no score within {timeout_s:g} s"
        return _unscored(metric, Outcome.TIMEOUT, reason, error_type="timeout", calls=tuple(calls))

    async def _guarded(self, metric: Metric, sample: Sample) -> Score:
        try:
            score = await self._computed(metric, sample) if metric.cpu_bound else await metric.score(sample)
            return score if isinstance(score, Score) else _no_score(metric, score)
        except BaseException as error:  # noqa: BLE001  (SystemExit out of a task would end the loop of the whole process)
            name = type(error).__name__
            return _unscored(metric, Outcome.METRIC_ERROR, f"the metric raised {name}", error_type=name)

    async def _computed(self, metric: Metric, sample: Sample) -> Score:
        if self._pool is None:
            self._pool = DaemonPool(self._threads, "spanscore-metric")
        # Called on the thread: what is given up before its turn would leave a coroutine, and Python says so on stderr.
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: driven(metric.score(sample)))


def _sample_for(metric: Metric, samples: Samples) -> Sample | None:
    if samples.multi is not None and "multi_turn" in metric.requires:
        return samples.multi
    return samples.single if "single_turn" in metric.requires else None


def _why_not(metric: Metric, samples: Samples) -> tuple[Outcome, str]:
    if samples.outcome is not None:
        return samples.outcome, samples.reason or samples.outcome.value
    kinds = " or ".join(kind.replace("_", "-") for kind in metric.requires)
    return Outcome.MISSING_FIELD, f"{metric.name} needs a {kinds} sample; the unit gives none"


def _told_where(score: Score, metric: Metric, sample: Sample, samples: Samples) -> Score:
    """Add to a missing field's reason where it was looked for."""
    kind = "multi_turn" if sample is samples.multi else "single_turn"
    missing = missing_fields(sample, metric.requires[kind])
    places = [f"{name} was looked for in {where}" for name, where in samples.looked_in if name in missing]
    return replace(score, reason="; ".join([score.reason or score.outcome.value, *places]))


def _no_score(metric: Metric, value: Any) -> Score:
    """A metric of a user that does not keep the protocol: its answer cannot be published."""
    kind = type(value).__name__
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

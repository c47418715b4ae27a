"""What a unit is on its way to its scores: decided on, sampled, a job, done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from spanscore.model.sample import Samples
from spanscore.model.score import Outcome, Score
from spanscore.model.span import SamplingContext, Unit

__all__ = ["BASE", "CONFIGURED", "STATED", "UNKNOWN", "Decision", "Job", "JobResult", "SampledUnit"]

BASE = "base"
"""The name of a metric's own rate, where no rule raises it."""
STATED, CONFIGURED, UNKNOWN = "th", "configured", "unknown"
"""Sources of the share that a head sampler keeps: ``ot=th`` of the trace; ``sampling.head_sampling_rate``; neither."""


@dataclass(slots=True)
class Decision:
    """Take a (unit × metric) or not.

    Attributes:
        take: whether it is scored.
        probability: with which it was chosen of all traffic, upstream's share times ours, derived from ``threshold``; (0, 1]
            where it is scored.
        threshold: T of the OpenTelemetry rule for that probability; 56 bit.
        rule: the name of the rule with the largest matching rate, ``base`` where none matched.
        randomness: R, 56 bit; None where no dice were thrown.
        met: the T that R met: taken when R ≥ T. It is ``threshold``, but where upstream did not decide by this R: there it is
            that of our share alone.
        upstream: upstream's share, (0, 1]: with which probability the unit came here at all.
        rates: (name, rate) of the metric's own rate, ``base``, and of each rule that matched.
        upstream_by: source of ``upstream``: ``th``, ``configured`` or ``unknown``; empty if another process decided.
    """

    take: bool
    probability: float
    threshold: int
    rule: str = BASE
    randomness: int | None = None
    met: int | None = None
    upstream: float = 1.0
    rates: tuple[tuple[str, float], ...] = ()
    upstream_by: str = ""


@dataclass(slots=True)
class SampledUnit:
    """A unit that some metric takes, or of which somebody wants the samples.

    Attributes:
        decisions: of the metrics that take it.
        samples: those that were submitted by hand; None = a dialect makes them.
        size_bytes: bytes of its content, roughly, as they are reserved in the queue.
        taken_s: when this process took it; seconds of the monotonic clock, which is the loop's.
        held_until_s: until when its spans wait for its scores, likewise; -inf where none do.
        undecided: what is known of it, where metrics are to be decided on when the scores of these are in; else None.
        wanted: whether somebody wants its samples, too; then there may be no metric that takes it.
        redacted: whether its samples have been redacted.
    """

    unit: Unit
    decisions: Mapping[str, Decision]
    samples: Samples | None = None
    size_bytes: int = 0
    taken_s: float | None = None
    held_until_s: float = -inf
    undecided: SamplingContext | None = None
    wanted: bool = False
    redacted: bool = False


@dataclass(slots=True)
class Job:
    """A unit's samples with the metrics chosen for them.

    Attributes:
        unit: without content: what the sinks need.
        decisions: metric name → why and with which probability it was chosen.
        size_bytes: bytes of its content, roughly, as they were reserved in the queue.
        taken_s: as of the sampled unit; likewise ``held_until_s`` and ``undecided``.
        delegated: another process has counted it as that, or a life of this one before: here it is eligible when it comes.
        scored: of one that was handed over, scores that were in; their metrics are not asked again.
    """

    unit: Unit
    samples: Samples
    decisions: Mapping[str, Decision]
    size_bytes: int = 0
    taken_s: float | None = None
    held_until_s: float = -inf
    undecided: SamplingContext | None = None
    delegated: bool = False
    scored: tuple[Score, ...] = ()

    def unscored(self) -> Job:
        """Return it without the metrics of which there is a score."""
        names = {score.metric for score in self.scored}
        return replace(self, decisions={name: one for name, one in self.decisions.items() if name not in names})


@dataclass(slots=True)
class JobResult:
    """What the loop posts of a job: scores that are in, each once.

    Attributes:
        sample_attributes: they say how its sample was made.
        over: whether these are the last: the metrics that were chosen and gave no score will give none.
        rest: how these end: by a fault of ours, where nothing else is said.
        reason: why, without content; None where there is nothing to add.
    """

    unit: Unit
    scores: Sequence[Score]
    sample_attributes: Mapping[str, Any] = field(default_factory=dict)
    over: bool = True
    rest: Outcome = Outcome.METRIC_ERROR
    reason: str | None = None

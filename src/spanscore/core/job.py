"""Job: a unit on its way to its scores; and the counts of units, received spans and replays for ``status()``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple

from spanscore.core.printable import format_count, format_usd
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score
from spanscore.core.span import SamplingContext, Unit

# --- job ------------------------------------------------------------------------------------------------------------

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


# --- counted --------------------------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """For how many units some units stand: Σw and Σw², w = 1/probability."""

    w: float = 0.0
    w2: float = 0.0


class UnitCounts(NamedTuple):
    """How units stand at one moment: per metric, eligible = Σ outcomes + pending.

    Attributes:
        eligible: metric → units that entered.
        outcomes: (metric, outcome, source of the score) → units that ended so; None = the population.
        pending: metric → units between.
        excluded: likewise by outcome and source, the weights of the units that the mean of the population lacks.
        compared: (metric, compared value) → what ``excluded`` holds; empty where nothing is compared.
        sources: those that stand beside, by their source: second judges', for one. Nothing of them is among the others.
    """

    eligible: Mapping[str, int]
    outcomes: Mapping[tuple[str, Outcome, str | None], int]
    pending: Mapping[str, int]
    excluded: Mapping[tuple[str, Outcome, str | None], Weights]
    sources: Mapping[str, UnitCounts] = MappingProxyType({})
    compared: Mapping[tuple[str, str], Weights] = MappingProxyType({})

    @property
    def parts(self) -> Iterator[tuple[str | None, UnitCounts]]:
        """These, and those beside, each with its source; each adds up for itself."""
        yield None, self
        yield from self.sources.items()

    def joined(self, other: UnitCounts) -> UnitCounts:
        """Return these with another population, of other metrics."""
        return UnitCounts(
            {**self.eligible, **other.eligible},
            {**self.outcomes, **other.outcomes},
            {**self.pending, **other.pending},
            {**self.excluded, **other.excluded},
            {**self.sources, **other.sources},
            {**self.compared, **other.compared},
        )

    def beside(self, source: str, other: UnitCounts) -> UnitCounts:
        """Return these with others, which are of that source from now on."""
        within: str | None = source
        outcomes = {(metric, outcome, within): units for (metric, outcome, _), units in other.outcomes.items()}
        excluded = {(metric, outcome, within): of for (metric, outcome, _), of in other.excluded.items()}
        of_source = other._replace(outcomes=outcomes, excluded=excluded)
        return self._replace(sources={**self.sources, source: of_source})


# --- received -------------------------------------------------------------------------------------------------------


class ExternalCount(NamedTuple):
    """What others say under one name.

    Attributes:
        scores: those with a value or a label.
        mean: of their values, weighted; None without one, or where one was not from 0 to 1.
        off_scale: whether one was not: then no further value is added up, as nobody knows the scale.
        labels: label → scores.
    """

    scores: int
    mean: float | None
    off_scale: bool
    labels: Mapping[str, int]


class ExternalCounts(NamedTuple):
    """The scores of others that came over the wire.

    Attributes:
        names: name → what was counted.
        undefined: results without a value or label that can be read.
        again: spans and log records that had come before, and results that had come in another way.
    """

    names: Mapping[str, ExternalCount]
    undefined: int
    again: int


class TopicState(NamedTuple):
    """What a worker reads of a topic, and how far it is.

    Attributes:
        name: of the topic.
        partitions: those that it reads, ascending.
        all: how many there are.
        lag: messages of its partitions that are not settled.
        oldest_s: seconds since the oldest of those that were read was written, by the broker's clock and ours; None = all are
            settled.
        rebalanced_s: seconds since its partitions last changed; None = it never had any.
        dropped: open traces that another worker reads again.
        skipped: messages that were gone before they were read.
        wrong: what keeps it from reading; empty = nothing.
        held: partitions of which messages wait for log records that are not read yet.
    """

    name: str
    partitions: Sequence[int]
    all: int
    lag: int
    oldest_s: float | None
    rebalanced_s: float | None
    dropped: int
    skipped: int
    wrong: str
    held: int = 0


class LogRecords(NamedTuple):
    """Log records that hold content.

    Attributes:
        joined: to their span.
        waiting: for their span.
        unjoined: whose span did not come in time, or came before them and was read.
        dropped: for which there was no room.
    """

    joined: int
    waiting: int
    unjoined: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeState:
    """What came to the door of ``spanscore serve``, what waits behind it, and what left by it.

    Attributes:
        requests: with spans, refused ones included.
        spans: valid ones of requests that were taken.
        bytes: of the requests, without compression.
        refused: reason → requests.
        rejected: reason → spans that are not valid.
        ours: of the spans, evaluations.
        unclaimed: of the spans, those that no translation claims.
        unread: scope → traces without any span that is read, as another scope traces the same library in their process.
        open: traces with spans that wait for their unit to be whole.
        waiting_for_root: of these, those with spans whose parent has not come.
        orphans: spans that were given up, as their root never came.
        late: spans that came when their unit had closed.
        duplicates: spans that had come before.
        revisions: units that were opened once more.
        dialects: translation → spans that it read, and on how many of these it found no content.
        forward: of a proxy, requests that it sent on, those that failed, and what is wrong; None where nothing is sent on.
        topic: of a worker; None where none is read.
        external: scores that others made; None where none came.
        logs: log records that hold content; None if none came.
    """

    requests: int
    spans: int
    bytes: int
    refused: Mapping[str, int]
    rejected: Mapping[str, int]
    ours: int
    unclaimed: int
    unread: Mapping[str, int]
    open: int
    waiting_for_root: int
    orphans: int
    late: int
    duplicates: int
    revisions: int
    dialects: Mapping[str, tuple[int, int]]
    forward: tuple[int, int, str] | None = None
    topic: TopicState | None = None
    external: ExternalCounts | None = None
    logs: LogRecords | None = None


# --- replayed -------------------------------------------------------------------------------------------------------


class ReplayState(NamedTuple):
    """What a replay has read, left out and scored so far.

    Attributes:
        traces: that were read.
        read: units in them, within the time that was asked for.
        skipped: scores that were not made, as the store has them; one of each metric and unit.
        scored: scores that were made.
        usd: what their judges cost; None while no price is known.
    """

    traces: int
    read: int
    skipped: int
    scored: int
    usd: float | None

    def __str__(self) -> str:
        line = f"replay: {format_count(self.read, 'unit')} of {self.traces:,} read"
        line += f"; {self.skipped:,} scores there already, {self.scored:,} made"
        return line if self.usd is None else f"{line}; {format_usd(self.usd)} USD so far"

"""``Job``, a unit on its way to its scores; and the counts of units, received spans and replays for ``status()``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from spanscore.core.printable import format_count, format_usd
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score
from spanscore.core.span import InnerGroup, SamplingContext, Unit

# --- job ------------------------------------------------------------------------------------------------------------

# Sampling compares two numbers of 56 bits, by OpenTelemetry's rule for consistent probability sampling: the randomness R of
# the unit and the threshold T of a probability p, T = (1 - p) × 2^56. The unit is sampled if R ≥ T.

BASE = "base"
"""Name of a metric's own rate among the rates of rules."""
STATED, CONFIGURED, UNKNOWN = "th", "configured", "unknown"
"""Sources of the share that a head sampler keeps: ``ot=th`` of the trace; ``sampling.head_sampling_rate``; neither."""


@dataclass(slots=True)
class Decision:
    """Sampling decision on one (unit × metric).

    Attributes:
        take: whether the metric scores the unit.
        probability: probability in all traffic: ``upstream`` times spanscore's own share; [0, 1], and above 0 if the unit is
            sampled.
        threshold: T of ``probability``.
        rule: name of the matching rule with the largest rate, ``base`` if no rule matched.
        randomness: R; None if the decision used no random number.
        met: the T that R was compared with: ``threshold`` if the head sampler also decided by this R, otherwise the T of
            spanscore's own share.
        upstream: probability with which the unit arrived here, (0, 1]: the share of traces that a head sampler keeps.
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
    """A closed unit before its samples are made: a metric samples it, or a ``SampleObserver`` needs its samples.

    Attributes:
        decisions: metric that samples the unit → its sampling decision.
        samples: submitted samples; None = an extractor makes them.
        size_bytes: approximate bytes of the unit's content, as reserved in the queue.
        taken_s: time when this process accepted the unit, seconds of the monotonic clock; None if unknown.
        held_until_s: time until which the unit's spans wait for scores, seconds of the monotonic clock; -inf if no span waits.
        undecided: facts by which rules decide on further metrics once the metrics in ``decisions`` have scored the unit; None =
            all metrics are decided.
        wanted: whether a ``SampleObserver`` needs the samples; then ``decisions`` may be empty.
        redacted: whether ``samples`` are redacted already.
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
    """A unit's samples, with the metrics that sampled the unit. ``size_bytes`` to ``undecided`` are those of ``SampledUnit``.

    Attributes:
        unit: the unit without content, as the sinks need it.
        decisions: metric that samples the unit → its sampling decision.
        delegated: whether another process, or this process before a restart, has counted the unit as ``delegated``. The unit
            then becomes eligible here when the job arrives.
        scored: scores that a delegated job already has; their metrics do not score it again.
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

    def without_scored(self) -> Job:
        """Return the job without the metrics that have a score already."""
        scored = {score.metric for score in self.scored}
        remaining = {name: decision for name, decision in self.decisions.items() if name not in scored}
        return replace(self, decisions=remaining)


@dataclass(slots=True)
class JobResult:
    """Scores of a job, which the loop posts to the span thread: each score once.

    Attributes:
        sample_attributes: attributes about the source of the sample.
        over: whether these are the last scores of the job.
        rest: outcome of the sampled metrics that have no score when the job is over; by default an internal error.
        reason: reason of ``rest``, without content; None = no reason is known.
    """

    unit: Unit
    scores: Sequence[Score]
    sample_attributes: Mapping[str, Any] = field(default_factory=dict)
    over: bool = True
    rest: Outcome = Outcome.METRIC_ERROR
    reason: str | None = None


# --- counted --------------------------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """Sampling weights of a number of units: Σw and Σw², w = 1/probability."""

    w: float = 0.0
    w2: float = 0.0


Source: TypeAlias = str | InnerGroup | None
"""Population of counts and sums: the source of their scores, the entry of inner units, or None for sampled traffic."""


class UnitCounts(NamedTuple):
    """Counts of units at one moment: per metric, eligible = Σ outcomes + pending.

    Attributes:
        eligible: metric → number of eligible units.
        outcomes: (metric, outcome, source) → number of units with this outcome; source None = sampled traffic.
        pending: metric → number of eligible units without an outcome yet.
        excluded: (metric, outcome, source) → weights of the sampled units that the mean of sampled traffic leaves out.
        compared: (metric, value of the attribute in ``compare``) → weights of the excluded units with this value; empty without
            ``compare``.
        sources: source → its separate counts, such as those of second judges or of inner units. The other fields do not include
            them.
    """

    eligible: Mapping[str, int]
    outcomes: Mapping[tuple[str, Outcome, Source], int]
    pending: Mapping[str, int]
    excluded: Mapping[tuple[str, Outcome, Source], Weights]
    sources: Mapping[str | InnerGroup, UnitCounts] = MappingProxyType({})
    compared: Mapping[tuple[str, str], Weights] = MappingProxyType({})

    @property
    def parts(self) -> Iterator[tuple[Source, UnitCounts]]:
        """(None, these counts), and (name, counts) of each source. Each part adds up by itself."""
        yield None, self
        yield from self.sources.items()

    def with_metrics(self, other: UnitCounts) -> UnitCounts:
        """Return these counts with those of other metrics."""
        pairs: Any = zip(self, other, strict=True)  # of equal fields
        return UnitCounts(*({**mine, **theirs} for mine, theirs in pairs))

    def with_source(self, source: str | InnerGroup, counts: UnitCounts) -> UnitCounts:
        """Return these counts with the separate counts of a source."""
        key: Source = source
        outcomes = {(metric, outcome, key): units for (metric, outcome, _), units in counts.outcomes.items()}
        excluded = {(metric, outcome, key): weights for (metric, outcome, _), weights in counts.excluded.items()}
        of_source = counts._replace(outcomes=outcomes, excluded=excluded)
        return self._replace(sources={**self.sources, source: of_source})


# --- received -------------------------------------------------------------------------------------------------------


class ExternalCount(NamedTuple):
    """Counts of other evaluators' scores that have one name.

    Attributes:
        scores: number of scores with a value or a label.
        mean: weighted mean of the values; None without a value, or if a value was outside [0, 1].
        off_scale: whether a value was outside [0, 1]. Then the scale is unknown, and no further value is added.
        labels: label → number of scores.
    """

    scores: int
    mean: float | None
    off_scale: bool
    labels: Mapping[str, int]


class ExternalCounts(NamedTuple):
    """Counts of the scores of other evaluators that arrived over OTLP.

    Attributes:
        names: name of a score → its counts.
        undefined: number of results without a readable value or label.
        again: number of repeated spans and log records, and of results that had already arrived in another form.
    """

    names: Mapping[str, ExternalCount]
    undefined: int
    again: int


class TopicState(NamedTuple):
    """A worker's position in a topic.

    Attributes:
        partitions: the partitions that this worker reads, ascending.
        all: number of partitions of the topic.
        lag: number of messages of these partitions after the committed offsets.
        oldest_s: age in seconds of the oldest unsettled message, of which a trace is still open, by the clocks of broker and
            worker; None = all read messages are settled.
        rebalanced_s: seconds since the partitions last changed; None if the worker never had any.
        dropped: number of open traces that another worker reads again.
        skipped: number of messages that the broker deleted before they were read, or whose reading raised twice.
        wrong: error that prevents reading; empty without an error.
        held: number of partitions with messages that wait for log records that are not read yet.
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
    """Counts of log records with content.

    Attributes:
        joined: number of records that were joined to their span.
        waiting: number of records that wait for their span.
        unjoined: number of records whose span did not arrive in time, or was already scored.
        dropped: number of records beyond the bound of their memory.
    """

    joined: int
    waiting: int
    unjoined: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeState:
    """Counts of ``spanscore serve``: received, waiting and forwarded spans.

    Attributes:
        requests: number of requests with spans, including rejected requests.
        spans: number of valid spans of accepted requests.
        bytes: bytes of the requests, uncompressed.
        refused: reason → number of rejected requests.
        rejected: reason → number of invalid spans.
        ours: number of evaluation spans among ``spans``.
        unclaimed: number of ``spans`` that no normalizer claims.
        unread: scope → number of traces in which its spans were not read, because another scope traces the same library there.
        open: number of traces with spans that wait for their unit to be whole.
        waiting_for_root: number of ``open`` traces with spans whose parent has not arrived.
        orphans: number of spans that were dropped because their parent never arrived.
        late: number of spans that arrived when their unit had closed.
        duplicates: number of spans that had arrived before.
        revisions: number of units that were opened again for late spans.
        dialects: normalizer → (number of spans that it read, number of these without content).
        forward: for a proxy, (number of forwarded requests, number of failed requests, the error); None without forwarding.
        topic: a worker's position in its topic; None without a topic.
        external: scores of other evaluators; None if none arrived.
        logs: log records with content; None if none arrived.
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
    """Counts of a replay so far.

    Attributes:
        traces: number of traces that were read.
        read: number of units in these traces, within the requested time.
        skipped: number of scores that were not made because the store has them; one per metric and unit.
        scored: number of scores that were made.
        usd: cost of their judges in US dollars; None while no price is known.
    """

    traces: int
    read: int
    skipped: int
    scored: int
    usd: float | None

    def __str__(self) -> str:
        line = f"replay: {format_count(self.read, 'unit')} of {self.traces:,} read"
        line += f"; {self.skipped:,} scores exist already, {self.scored:,} made"
        return line if self.usd is None else f"{line}; {format_usd(self.usd)} USD so far"

"""``Job``, a unit on its way to its scores; and the counts of units, received spans and replays for ``status()``."""

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
"""Name of a metric's own rate, if no rule raises it."""
STATED, CONFIGURED, UNKNOWN = "th", "configured", "unknown"
"""Sources of the share that a head sampler keeps: ``ot=th`` of the trace; ``sampling.head_sampling_rate``; neither."""


@dataclass(slots=True)
class Decision:
    """Sampling decision on one (unit × metric).

    Attributes:
        take: whether the metric scores the unit.
        probability: probability among all traffic, upstream's share times ours, derived from ``threshold``; (0, 1] if the unit
            is sampled.
        threshold: T of the OpenTelemetry rule for that probability; 56 bit.
        rule: name of the matching rule with the largest rate, ``base`` if no rule matched.
        randomness: R, 56 bit; None if the decision used no random number.
        met: the T that R was compared with: sampled if R ≥ T. It equals ``threshold``, unless upstream did not decide by this
            R; then it is the T of our share alone.
        upstream: upstream's share, (0, 1]: the probability with which the unit arrived here.
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
    """A unit that a metric samples, or whose samples have an observer.

    Attributes:
        decisions: decisions of the metrics that sample it.
        samples: submitted samples; None: an extractor makes them.
        size_bytes: approximate bytes of its content, as reserved in the queue.
        taken_s: time when this process took the unit; seconds of the monotonic clock, which is the loop's.
        held_until_s: time until which its spans wait for its scores, seconds of the monotonic clock; -inf if no span waits.
        undecided: its facts, if some metrics are decided on when the scores of these are in; otherwise None.
        wanted: whether a ``SampleObserver`` needs its samples; then ``decisions`` may be empty.
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
    """A unit's samples with the metrics that sampled it.

    Attributes:
        unit: the unit without content, as the sinks need it.
        decisions: metric name → its sampling decision.
        size_bytes: approximate bytes of its content, as reserved in the queue.
        taken_s: time when this process took the unit; seconds of the monotonic clock. None: unknown.
        held_until_s: time until which its spans wait for its scores, seconds of the monotonic clock; -inf if no span waits.
        undecided: its facts, if some metrics are decided on when the scores of these are in; otherwise None.
        delegated: whether another process, or an earlier life of this one, has counted it as ``delegated``. It becomes eligible
            here on arrival.
        scored: scores of a delegated job that were in already; their metrics are not asked again.
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
        """Return the job without the metrics that have a score already."""
        names = {score.metric for score in self.scored}
        return replace(self, decisions={name: one for name, one in self.decisions.items() if name not in names})


@dataclass(slots=True)
class JobResult:
    """Scores of a job that the loop posts to the span thread, each once.

    Attributes:
        sample_attributes: attributes about the source of the sample.
        over: whether these are the last scores: the remaining sampled metrics give none.
        rest: outcome of the remaining metrics; by default an internal error.
        reason: reason of ``rest``, without content; None if there is nothing to add.
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


class UnitCounts(NamedTuple):
    """Counts of units at one moment: per metric, eligible = Σ outcomes + pending.

    Attributes:
        eligible: metric → units that entered.
        outcomes: (metric, outcome, source of the score) → units with this outcome; source None: sampled traffic.
        pending: metric → units without an outcome yet.
        excluded: (metric, outcome, source) → weights of the units that the mean of sampled traffic lacks.
        compared: (metric, compared value) → weights of the units that the mean lacks; empty without ``compare``.
        sources: source → its separate counts, such as those of second judges. The other fields do not include them.
    """

    eligible: Mapping[str, int]
    outcomes: Mapping[tuple[str, Outcome, str | None], int]
    pending: Mapping[str, int]
    excluded: Mapping[tuple[str, Outcome, str | None], Weights]
    sources: Mapping[str, UnitCounts] = MappingProxyType({})
    compared: Mapping[tuple[str, str], Weights] = MappingProxyType({})

    @property
    def parts(self) -> Iterator[tuple[str | None, UnitCounts]]:
        """These counts with None, and the counts of each source with its name; each part adds up by itself."""
        yield None, self
        yield from self.sources.items()

    def joined(self, other: UnitCounts) -> UnitCounts:
        """Return these counts with those of other metrics."""
        return UnitCounts(
            {**self.eligible, **other.eligible},
            {**self.outcomes, **other.outcomes},
            {**self.pending, **other.pending},
            {**self.excluded, **other.excluded},
            {**self.sources, **other.sources},
            {**self.compared, **other.compared},
        )

    def beside(self, source: str, other: UnitCounts) -> UnitCounts:
        """Return these counts with separate counts of a source."""
        within: str | None = source
        outcomes = {(metric, outcome, within): units for (metric, outcome, _), units in other.outcomes.items()}
        excluded = {(metric, outcome, within): of for (metric, outcome, _), of in other.excluded.items()}
        of_source = other._replace(outcomes=outcomes, excluded=excluded)
        return self._replace(sources={**self.sources, source: of_source})


# --- received -------------------------------------------------------------------------------------------------------


class ExternalCount(NamedTuple):
    """Counts of other evaluators' scores under one name.

    Attributes:
        scores: number of scores with a value or a label.
        mean: weighted mean of the values; None without a value, or if one was outside [0, 1].
        off_scale: whether a value was outside [0, 1]: then the scale is unknown, and no further value is added.
        labels: label → scores.
    """

    scores: int
    mean: float | None
    off_scale: bool
    labels: Mapping[str, int]


class ExternalCounts(NamedTuple):
    """Counts of the scores of other evaluators that arrived over OTLP.

    Attributes:
        names: name → its counts.
        undefined: results without a readable value or label.
        again: repeated spans and log records, and results that had already arrived in another form.
    """

    names: Mapping[str, ExternalCount]
    undefined: int
    again: int


class TopicState(NamedTuple):
    """A worker's position in a topic.

    Attributes:
        name: the topic's name.
        partitions: the partitions that this worker reads, ascending.
        all: number of partitions of the topic.
        lag: unsettled messages of its partitions.
        oldest_s: age in seconds of the oldest unsettled message that was read, by the broker's clock and ours; None: all are
            settled.
        rebalanced_s: seconds since its partitions last changed; None: it never had any.
        dropped: open traces that another worker reads again.
        skipped: messages that the broker had deleted before they were read.
        wrong: error that keeps it from reading; empty without one.
        held: partitions with messages that wait for log records that are not read yet.
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
        joined: records that were joined to their span.
        waiting: records that wait for their span.
        unjoined: records without their span in time, or later than it.
        dropped: records without room.
    """

    joined: int
    waiting: int
    unjoined: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeState:
    """Counts of ``spanscore serve``: received, waiting and forwarded spans.

    Attributes:
        requests: requests with spans, rejected ones included.
        spans: valid spans of accepted requests.
        bytes: bytes of the requests, uncompressed.
        refused: reason → rejected requests.
        rejected: reason → invalid spans.
        ours: number of evaluation spans among ``spans``.
        unclaimed: number of ``spans`` that no normalizer claims.
        unread: scope → traces without any read span, because another scope traces the same library in their process.
        open: traces with spans that wait for their unit to be whole.
        waiting_for_root: number of ``open`` traces with spans whose parent has not arrived.
        orphans: spans that were dropped because their root never arrived.
        late: spans that arrived when their unit had closed.
        duplicates: spans that had arrived before.
        revisions: units that were opened once more.
        dialects: normalizer → spans that it read, and how many of them had no content.
        forward: for a proxy, requests that it forwarded, failed ones, and the error; None without forwarding.
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
        traces: traces that were read.
        read: units in them, within the requested time.
        skipped: scores that were not made because the store has them; one per metric and unit.
        scored: scores that were made.
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

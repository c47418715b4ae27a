"""``UnitDecider`` has the sampler decide on each unit, and records decisions and outcomes; recent units are kept for
``feedback``, ``explain`` and ``preview``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from time import time_ns
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from spanscore import semconv
from spanscore.core.job import Decision
from spanscore.core.log import is_a, plain_text
from spanscore.core.score import Outcome, Score, change_score
from spanscore.core.span import SamplingContext, Unit, UnitKey
from spanscore.errors import ConfigurationError
from spanscore.pipeline.ledger import Ledger, Notes
from spanscore.pipeline.sampling import RateSampler

_MAX_UNITS: Final = 1_000
"""Maximum number of units with kept facts: 0.3 kB each, 0.5 kB with listed metadata and a model (measured)."""
_MAX_INDEXED: Final = 10_000
"""Maximum number of indexed units: 0.2 kB each, and 0.2 kB for a key."""
_MAX_TEXT: Final = 200
"""Maximum number of characters of a kept metadata text."""
_MAX_WITH_SPANS: Final = 100
"""Maximum number of units with kept spans."""
_MAX_SPAN_BYTES: Final = 4_000_000
"""Maximum bytes of all kept spans."""
_SPAN_BYTES: Final = 2_000
"""Approximate bytes of a span without its content."""
_EMPTY: Mapping[str, str] = MappingProxyType({})
_METADATA: Final = SamplingContext._fields.index("metadata")


class RecentUnit(NamedTuple):
    """The facts of a closed unit that a sampling rule reads.

    Attributes:
        facts: facts of the unit. ``metadata`` has the listed keys, or None if one of their values is too large. Facts about the
            unit's children have the value None if the children were not recorded.
        closed_ns: time of the close, nanoseconds since the epoch; None if sampling excluded the unit when it began.
    """

    facts: SamplingContext
    closed_ns: int | None


@dataclass(eq=False, repr=False)
class RecentUnits:
    """Keeps the ids of the last units for ``feedback``, and their facts, without content, for ``scorer.preview()``.

    There are three kinds of units: recorded (root and children are known), unrecorded (the root is known to its end, and no
    child) and excluded (only the facts at the beginning are known).

    Thread-safe: each step is one operation of a dict or a deque.

    Attributes:
        metadata: metadata keys to keep. If one of their values is no text, number or boolean, or is a text of more than 200
            characters, the unit's metadata are unknown (None).
        kept: maximum number of units with kept facts.
        indexed: maximum number of units that are found by their trace and by the application's key.
        clock: returns nanoseconds since the epoch.
    """

    metadata: Sequence[str] = ()
    _: KW_ONLY
    kept: int = _MAX_UNITS
    indexed: int = _MAX_INDEXED
    clock: Callable[[], int] = time_ns

    def __post_init__(self) -> None:
        self._units: deque[tuple[SamplingContext, int | None, bool]] = deque(maxlen=self.kept)
        self._index: OrderedDict[UnitKey, None] = OrderedDict()
        self._keys: OrderedDict[str, UnitKey] = OrderedDict()

    def use_metadata(self, metadata: Sequence[str]) -> None:
        """Keep these keys of later units, and forget the facts of earlier ones."""
        self.metadata = metadata
        self._units.clear()

    def add_recorded(self, facts: SamplingContext) -> None:
        """Keep the facts of a closed unit with recorded children."""
        self._units.append((self._listed(facts), self.clock(), True))

    def add_unrecorded(self, facts: SamplingContext) -> SamplingContext:
        """Keep the facts of a unit without recorded children, because no rate could sample it; return the kept facts."""
        kept = self._listed(facts)
        self._units.append((kept, self.clock(), False))
        return kept if kept.metadata is not None else kept._replace(metadata=_EMPTY)

    def add_excluded(self, facts: SamplingContext) -> None:
        """Keep the facts that a unit had when it began, because sampling excluded it then."""
        self._units.append((facts, None, True))

    def units(self) -> list[RecentUnit]:
        """Return the kept units, the oldest first."""
        return [
            RecentUnit(facts if recorded else facts._replace(tool_calls=None, models=None, scores=None), closed_ns)
            for facts, closed_ns, recorded in self._units.copy()
        ]

    def index(self, facts: SamplingContext) -> None:
        """Make a unit findable by its trace, and by its key if its metadata have one. O(1)."""
        keep_latest(self._index, facts.key, None, self.indexed)
        if key := feedback_key_of(facts.metadata):
            keep_latest(self._keys, key, facts.key, self.indexed)

    def of_trace(self, trace_id: int) -> list[UnitKey]:
        """Return the units of a trace, in the order in which they closed."""
        return [key for key in list(self._index) if key.trace_id == trace_id]

    def of_key(self, key: str) -> UnitKey | None:
        """Return the latest indexed unit with this key; None if no unit has it."""
        return self._keys.get(key)

    def _listed(self, facts: SamplingContext) -> SamplingContext:
        """Return facts with only the listed metadata. ``_replace`` would take three times as long."""
        metadata: Mapping[str, Any] | None = facts.metadata
        if metadata is not None:
            metadata = {key: metadata[key] for key in self.metadata if key in metadata} if self.metadata else _EMPTY
            metadata = metadata if all(map(_is_small, metadata.values())) else None
        return SamplingContext._make((*facts[:_METADATA], metadata, *facts[_METADATA + 1 :]))


class RecentUnitSpans:
    """Keeps the last units with their spans, 100 with 4 MB at most, for ``scorer.explain()``. Any thread may call ``units``."""

    def __init__(self) -> None:
        self._units: deque[tuple[Unit, int]] = deque()
        self._bytes = 0

    def keep(self, unit: Unit, size_bytes: int) -> None:
        """Keep a unit with content of about ``size_bytes``, unless it alone exceeds the bound."""
        size = size_bytes + _SPAN_BYTES * len(unit.spans)
        if size <= _MAX_SPAN_BYTES:
            self._units.append((unit, size))
            self._bytes += size
        while self._bytes > _MAX_SPAN_BYTES or len(self._units) > _MAX_WITH_SPANS:
            self._bytes -= self._units.popleft()[1]

    def units(self) -> list[Unit]:
        """Return the kept units, the oldest first."""
        return [unit for unit, _ in self._units.copy()]


def _is_small(value: Any) -> bool:
    if is_a(value, str):
        return str.__len__(value) <= _MAX_TEXT
    return value is None or is_a(value, int, float)


K = TypeVar("K")
V = TypeVar("V")


def feedback_key_of(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the application's own key of a unit; None if its metadata have none."""
    return plain_text(metadata.get(semconv.FEEDBACK_METADATA)) or None if metadata else None


def keep_latest(entries: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Set an entry; beyond ``most`` entries, remove the oldest. Thread-safe."""
    entries[key] = value
    if len(entries) > most:
        try:
            entries.popitem(last=False)
        except KeyError:  # another thread removed it
            return


def drop_oldest(entries: dict[Any, Any], most: int) -> None:
    """Reduce a dict to its latest ``most`` entries when it has an eighth more.

    Finding the first item of a dict walks over all removed items, so removing one entry at a time would be slow.
    """
    if len(entries) > most + most // 8:
        for key in [*islice(entries, len(entries) - most)]:
            del entries[key]


_HEX_DIGITS: Final = 32


@dataclass(slots=True)
class _Closed:
    """A closed unit.

    Attributes:
        decider: decider with the metrics and the sampler that were in force at the unit's start.
        decisions: metric → decision; empty if ``facts`` is set, because ``explain`` then decides again.
        outcomes: metric → outcome; metrics without an outcome yet are absent.
        reasons: metric → reason for a missing score; absent if unknown.
        facts: facts of a unit that no rule matched and no rate sampled; None for other units.
    """

    decider: UnitDecider
    decisions: dict[str, Decision] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    facts: SamplingContext | None = None


@dataclass(eq=False, repr=False)
class UnitDecider:
    """Decides which metrics score a unit, settles outcomes in the ledger, and remembers both for ``explain``.

    One decider is for the units of roots, and one for the inner units of each entry of ``units.also``. If rules read scores,
    the *condition metrics*, which give these scores, are decided on first, and the other metrics when the scores are in. Call
    on the span thread, except for ``explain``.

    Attributes:
        metrics: names of the metrics that score these units.
        on_unit: called once with the facts of each unit that has closed or that sampling excluded. Called on any thread.
        kept: maximum number of remembered closed units, and of units that sampling excluded when they began.
        condition_metrics: metrics with scores that rules read; empty if no rule reads a score.
    """

    metrics: Sequence[str]
    sampler: RateSampler
    ledger: Ledger
    _: KW_ONLY
    recent_units: RecentUnits = field(default_factory=RecentUnits)
    on_unit: Callable[[SamplingContext], None] = lambda facts: None
    kept: int = _MAX_UNITS
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        self.condition_metrics = self.sampler.condition_metrics
        first = self.condition_metrics or self.metrics
        self._first = tuple(name for name in self.metrics if name in first)
        self._rest = tuple(name for name in self.metrics if name not in first)
        self._unsampled = dict.fromkeys(self.metrics, Outcome.NOT_SAMPLED.value)
        self._lock = threading.RLock()
        self._closed: OrderedDict[UnitKey, _Closed] = OrderedDict()
        self._excluded: deque[tuple[SamplingContext, UnitDecider]] = deque(maxlen=self.kept)

    @classmethod
    def of_inner(cls, metrics: Sequence[str], sampler: RateSampler) -> UnitDecider:
        """Return a decider for the inner units of one entry. They are not indexed, because ``feedback`` finds roots only."""
        return cls(metrics, sampler, Ledger(metrics, source=semconv.SOURCE_INNER), recent_units=RecentUnits(indexed=0))

    def by_sampler(self, metrics: Sequence[str], sampler: RateSampler) -> UnitDecider:
        """Return a decider with other metrics and rates, for later units; both have the same counts, remarks and memory."""
        self.ledger.change(metrics)
        after = replace(self, metrics=metrics, sampler=sampler)
        after._lock, after._closed, after._excluded = self._lock, self._closed, self._excluded
        return after

    def decide_first(self, facts: SamplingContext, eligible: Collection[str] | None = None) -> dict[str, Decision]:
        """Decide on a closed unit for the condition metrics; for all metrics if no rule reads a score.

        If ``eligible`` is given, it has the names of the metrics to decide on instead.
        """
        self.on_unit(facts)
        self.recent_units.add_recorded(facts)
        names = self._first if eligible is None else tuple(eligible)
        return self._decide(facts._replace(scores={}), names, self.sampler.decide)

    def decide_rest(self, facts: SamplingContext, scores: Mapping[str, float | None]) -> dict[str, Decision]:
        """Decide for the other metrics by the qualities of the condition metrics. Argument and result may be empty."""
        return self._decide(facts._replace(scores=scores), self._rest, self.sampler.decide)

    def decide_submitted(self, facts: SamplingContext) -> dict[str, Decision]:
        """Decide on a submitted unit, which every metric samples."""
        self.on_unit(facts)
        return self._decide(facts, self.metrics, self.sampler.decide_submitted)

    def accept_decisions(self, key: UnitKey, decisions: Mapping[str, Decision], *, undecided: bool) -> bool:
        """Make a unit eligible for the metrics that sampled it in another process. Returns False if it is already open here.

        ``undecided``: only the condition metrics were decided on there, and this process decides on the other metrics.
        """
        if not self.ledger.enter(key, [*decisions, *(self._rest if undecided else ())]):
            return False
        self.ledger.record_probabilities(key, decisions)
        with self._lock:
            self._of(key).decisions |= decisions
        return True

    def settle_unsampled(self, facts: SamplingContext) -> dict[str, Decision]:
        """Settle a unit that no rate could sample when it began; return its decisions if a rule matched, otherwise {}.

        A rule that matches at the unit's end is too late: all outcomes are ``not_sampled``; the decisions only show it.
        """
        self.on_unit(facts)
        self.recent_units.index(facts)
        kept = self.recent_units.add_unrecorded(facts)
        decisions: dict[str, Decision] = {}
        if self.sampler.matches(facts):
            decisions = {name: self.sampler.decide(facts, name) for name in self.metrics}
        closed = _Closed(self, decisions, self._unsampled, facts=None if decisions else kept)
        with self._lock:
            self._remember(facts.key, closed)
        self.ledger.settle_all(facts.key, Outcome.NOT_SAMPLED)
        return decisions

    def record_excluded(self, facts: SamplingContext) -> None:
        """Count a unit without recorded spans, which sampling excluded when it began. Thread-safe; O(1)."""
        self.ledger.record_rejected(Outcome.NOT_SAMPLED)
        self.on_unit(facts)
        self.recent_units.index(facts)
        self.recent_units.add_excluded(facts)
        self._excluded.append((facts, self))

    def _decide(
        self, facts: SamplingContext, names: Sequence[str], decide: Callable[[SamplingContext, str], Decision]
    ) -> dict[str, Decision]:
        self.recent_units.index(facts)
        decisions = {name: decide(facts, name) for name in names}
        sampled = {name: decision for name, decision in decisions.items() if decision.take}
        if sampled:
            self.ledger.record_probabilities(facts.key, sampled)
        with self._lock:
            self._of(facts.key).decisions |= decisions
        return decisions

    def settle_lost(self, facts: SamplingContext, outcome: Outcome, reason: str | None = None) -> dict[str, Outcome]:
        """End a unit that closed before it was complete, and return the outcomes of its metrics.

        The sampler decides on such a unit, too, so that its weight is 1/probability, as for every sampled unit. Without a
        status the root is missing: the probability is unknown, and the weight is 1.
        """
        unsampled: dict[str, Outcome] = {}
        if facts.status is not None:
            decisions = self.decide_first(facts) | self.decide_rest(facts, {})
            unsampled = {name: Outcome.NOT_SAMPLED for name, decision in decisions.items() if not decision.take}
            self.settle(facts.key, unsampled)
        return unsampled | self.settle_rest(facts.key, outcome, reason)

    def settle(self, key: UnitKey, outcomes: Mapping[str, Outcome]) -> None:
        """Give these metrics of a unit their outcomes."""
        settle = self.ledger.settle
        self._note(key, {name: outcome for name, outcome in outcomes.items() if settle(key, name, outcome)})

    def settle_rest(self, key: UnitKey, outcome: Outcome, reason: str | None = None) -> dict[str, Outcome]:
        """Give this outcome to each metric of a unit that has none yet; return these metrics with the outcome."""
        outcomes = dict.fromkeys(self.ledger.settle_all(key, outcome), outcome)
        self._note(key, outcomes, {} if reason is None else dict.fromkeys(outcomes, reason))
        self.notes.record_unscored(key, outcomes, reason)
        return outcomes

    def settle_scores(self, unit: Unit, scores: Sequence[Score]) -> list[Score]:
        """Settle the metrics of these scores; return the scores of metrics that had no outcome before."""
        key, settle = unit.key, self.ledger.settle
        if unit.inner is not None:
            scores = [change_score(score, unit, source=semconv.SOURCE_INNER) for score in scores]
        counted = [score for score in scores if settle(key, score.metric, score.counted_as, score.source)]
        reasons = {score.metric: score.reason for score in counted if score.reason}
        self._note(key, {score.metric: score.counted_as for score in counted}, reasons)
        self.notes.record_scores(key, counted)
        return counted

    def _note(self, key: UnitKey, outcomes: Mapping[str, Outcome], reasons: Mapping[str, str] = _EMPTY) -> None:
        if outcomes:
            with self._lock:
                closed = self._of(key)
                closed.outcomes |= {name: outcome.value for name, outcome in outcomes.items()}
                closed.reasons |= reasons

    def _of(self, key: UnitKey) -> _Closed:
        return self._closed.get(key) or self._remember(key, _Closed(self))

    def _remember(self, key: UnitKey, closed: _Closed) -> _Closed:
        keep_latest(self._closed, key, closed, self.kept)
        return closed

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return the decisions on the remembered units of a trace, oldest first, excluded units last. Thread-safe.

        Raises:
            ConfigurationError: ``trace_id`` is not a trace id.
        """
        number = _trace_id(trace_id)
        with self._lock:
            units = [self._describe(key, closed) for key, closed in self._closed.items() if key.trace_id == number]
        for facts, decider in self._excluded.copy():
            if facts.key.trace_id == number:
                closed = _Closed(decider, outcomes=decider._unsampled, facts=facts)
                units.append(self._describe(facts.key, closed))
        return units

    def _describe(self, key: UnitKey, closed: _Closed) -> dict[str, Any]:
        decider, facts = closed.decider, closed.facts
        decisions = closed.decisions  # lacks metrics if events were lost, or if the unit ended before the decision
        if facts is not None:
            decisions = {name: decider.sampler.decide(facts, name) for name in decider.metrics}
        return {
            "trace_id": f"{key.trace_id:032x}",
            "span_id": f"{key.span_id:016x}",
            "metrics": {
                name: {
                    **{key: read(decisions[name]) if name in decisions else None for key, read in _FIELDS.items()},
                    "outcome": closed.outcomes.get(name),
                    "reason": closed.reasons.get(name),
                }
                for name in decider.metrics
            },
        }


_FIELDS: Mapping[str, Callable[[Decision], Any]] = {
    "rates": lambda decision: dict(decision.rates),
    "rule": lambda decision: decision.rule,
    "randomness": lambda decision: _hex(decision.randomness),
    "threshold_met": lambda decision: _hex(decision.met),
    "threshold": lambda decision: _hex(decision.threshold),
    "probability": lambda decision: decision.probability,
    "head_sampling_rate": lambda decision: decision.upstream,
}


def _hex(number: int | None) -> str | None:
    return None if number is None else f"{number:014x}"


def _trace_id(trace_id: str | int) -> int:
    try:
        number = trace_id if isinstance(trace_id, int) else int(trace_id, 16) if len(trace_id) == _HEX_DIGITS else -1
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < 1 << 128:
        raise ConfigurationError(f"{trace_id!r} is not a trace id; allowed are 32 hex digits, or the number")
    return number

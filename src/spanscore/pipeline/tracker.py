"""``UnitTracker`` follows each unit on the span thread from its start until its spans and scores are exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from spanscore import semconv
from spanscore.core.event_queue import yield_gil
from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score, unit_attributes
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import Assembler
from spanscore.pipeline.decisions import ClosedUnitIndex, Decisions, RecentUnitSpans, matched_rules
from spanscore.pipeline.ledger import Ledger, Notes, ScoreBatch, has_span, log_failures
from spanscore.pipeline.population import Revisions, ScoreSource
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.sizes import SampleObservers, size_bytes_of
from spanscore.pipeline.span_buffer import HeldRoots
from spanscore.protocols import PendingSpan, Queue, Sink

_ALPHA: Final = 3
"""With 3, a quarter of 1,000 places stays free of a judge that hangs: enough for 250 units a second, each scored within a
second.
"""
_BYTES_COUNT: Final = 4
"""Weight of bytes in `AccountQuotas.fill`, because a unit's content is the application's memory."""
_AT_ONCE: Final = 16
"""Divisor of the capacity: the share of places that units of unknown size may take at once."""


@dataclass(slots=True)
class _Held:
    units: int = 0
    size_bytes: int = 0

    def add(self, units: int, size_bytes: int) -> None:
        self.units += units
        self.size_bytes += size_bytes


@dataclass(eq=False, repr=False)
class AccountQuotas:
    """Keeps a judge that hangs from filling the queue for metrics that ask other judges. Owned by the span thread.

    Metrics share a lane if their judges are one account. A lane accepts no further unit once it holds three times as many
    places as are free: one lane alone fills at most three quarters of the queue, two that share no unit three sevenths each. A
    single lane has the whole queue. This is the dynamic threshold of switches that share memory between ports (Choudhury and
    Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998), with α = 3.

    Attributes:
        of: metric → its lane.
        capacity: returns the number of places in the queue.
        max_bytes: maximum bytes of content in the queue.
        under_way: metric → units in the queue without a score of that metric yet.
    """

    of: Mapping[str, Hashable]
    _: KW_ONLY
    capacity: Callable[[], int]
    max_bytes: float = inf

    def __post_init__(self) -> None:
        self._all = _Held()
        self._lanes: dict[Hashable, _Held] = {lane: _Held() for lane in self.of.values()}
        self._open: dict[UnitKey, tuple[int, dict[str, None]]] = {}
        self.under_way: Counter[str] = Counter()

    def with_room(self, metrics: Collection[str]) -> list[str]:
        """Return the metrics that have room for one more unit in their lane."""
        if len(self._lanes) == 1:
            return list(metrics)
        full = {lane for lane, held in self._lanes.items() if self._is_full(held)}
        return [name for name in metrics if self.of[name] not in full]

    def room(self) -> int:
        """Return the number of units that may arrive now without a full lane. Any thread; true for a moment."""
        if self._all.size_bytes > self.max_bytes / 2:  # the size of the next units is unknown
            return 0
        capacity = self.capacity()
        most = capacity if len(self._lanes) == 1 else capacity * _ALPHA // (_ALPHA + 1)
        return int(max(0, min(most - self._all.units, max(1, capacity // _AT_ONCE))))

    def fill(self) -> float:
        """Return the fill of the fullest lane, [0, 1] or more; bytes count fourfold. Any thread; true for a moment."""
        capacity, queue = self.capacity(), self._all
        parts = [queue.units / capacity, _BYTES_COUNT * queue.size_bytes / self.max_bytes]
        if len(self._lanes) > 1:
            free = max(1, capacity - queue.units)
            parts += (held.units / (_ALPHA * free) for held in self._lanes.values())
        return max(parts)

    def enter(self, key: UnitKey, metrics: Collection[str], size_bytes: int) -> None:
        """Add a unit with a place in the queue, and its metrics without a score."""
        self._open[key] = size_bytes, {}
        self._all.add(1, size_bytes)
        self.join(key, metrics)

    def join(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Add further metrics to a unit in the queue."""
        size_bytes, open_ones = self._open[key]
        metrics = [name for name in metrics if name in self.of]  # another process may have sampled for its own metric
        new = self._lanes_of(metrics) - self._lanes_of(open_ones)
        for name in metrics:
            open_ones[name] = None
            self.under_way[name] += 1
        for lane in new:
            self._lanes[lane].add(1, size_bytes)

    def settle(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Remove metrics of a unit, because their scores are in."""
        size_bytes, left = self._open[key]
        before = self._lanes_of(left)
        done = left.keys() & metrics
        for name in done:
            del left[name]
            self.under_way[name] -= 1
        for lane in before - self._lanes_of(left):
            self._lanes[lane].add(-1, -size_bytes)

    def leave(self, key: UnitKey) -> None:
        """Remove a unit, because its place is released."""
        if key in self._open:
            if left := self._open[key][1]:
                self.settle(key, [*left])
            size_bytes, _ = self._open.pop(key)
            self._all.add(-1, -size_bytes)

    def _is_full(self, held: _Held) -> bool:
        free, free_bytes = self.capacity() - self._all.units, self.max_bytes - self._all.size_bytes
        return held.units > 0 and (held.units >= _ALPHA * free or held.size_bytes >= _ALPHA * free_bytes)

    def _lanes_of(self, metrics: Collection[str]) -> set[Hashable]:
        return {self.of[name] for name in metrics}


_NO_RULE: Mapping[str, str] = MappingProxyType({})
_NOT_BEGUN: Final = frozenset({Outcome.DELEGATED, Outcome.QUEUE_FULL})


@dataclass(eq=False, repr=False)
class UnitTracker:
    """Follows each unit from its start until its spans and scores are out: a ``UnitListener`` of the span thread.

        opened → (started, ended)* → closed → decided ─▶ parked, handed over ─▶ (settled, emitted)* ─▶ released ─▶ out
                                                │                         └─▶ released as pending ─▶ (settled, emitted)*
                                                └─▶ not sampled, incomplete, queue full ─▶ released ─▶ out

    Scores are settled and emitted on arrival. The unit's spans wait for the last score, or until the end of the hold. Then they
    are exported with the scores that are in.

    Attributes:
        metrics: names of all metrics.
        sink: a sink that never raises.
        handover: passes sampled units to the loop, one call per tick.
        hand_rest: passes further decisions, on units with their first scores, to the loop, one call per tick.
        lanes: lanes of the queue.
        revisions: decides on units that have been scored before.
        keeping: passes samples to their observers.
        sources: scores outside sampled traffic; a flush waits for them, too.
        parking: holds spans until they are exported.
        known: remembers every closed unit.
        rejection_reason: returns why the queue accepts no further unit; None if it has no reason to add.
        clock: seconds, the loop's.
        notes: remarks on scores for ``status()``.
    """

    metrics: Sequence[str]
    _: KW_ONLY
    ledger: Ledger
    assembler: Assembler
    sampler: RateSampler
    queue: Queue
    lanes: AccountQuotas
    parking: HeldRoots
    sink: Sink
    handover: Callable[[Sequence[SampledUnit]], None]
    hand_rest: Callable[[Mapping[UnitKey, Mapping[str, Decision]]], None]
    revisions: Revisions
    keeping: SampleObservers
    sources: Sequence[ScoreSource] = ()
    known: ClosedUnitIndex = field(default_factory=ClosedUnitIndex)
    rejection_reason: Callable[[], str | None] = lambda: None
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self._decisions = Decisions(
            self.metrics, self.sampler, self.ledger, known=self.known, noticed=self.keeping.closed
        )
        self._skipped = self._on_span([], dict.fromkeys(self.metrics, Outcome.NOT_SAMPLED))
        self._recent = RecentUnitSpans()
        self._chosen: list[SampledUnit] = []
        self._rest: dict[UnitKey, Mapping[str, Decision]] = {}
        self._at_work: dict[UnitKey, PendingUnit] = {}
        self._shared: dict[UnitKey, frozenset[str]] = {}
        self.notes = Notes()

    @property
    def in_flight(self) -> dict[UnitKey, None]:
        """Ended units that are not out yet, oldest first."""
        return self.parking.in_flight

    def take_parts(self) -> Mapping[UnitKey, Collection[UnitKey]]:
        """Return topmost span → the units below it, for those found since the last call."""
        parts, self.parking.parts = self.parking.parts, {}
        return parts

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        """Record metrics that do not score a unit here, before it is opened."""
        self._shared[key] = frozenset(metrics)

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        """Make the unit eligible."""
        shared = self._shared.get(key)
        self.ledger.enter(key, None if shared is None else frozenset(self.metrics) - shared)

    def span_started(self, key: UnitKey, span_id: int, now_ns: int) -> None:
        """Keep the unit open until that span has ended."""
        self.assembler.started(key, span_id, now_ns)

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        """Hold an ended span of a unit that may be scored; a late span of a closed unit is exported unchanged."""
        is_root = span.span_id == key.span_id
        if is_root:
            self.parking.ended(key)
        if not self.assembler.ended(key, span, now_ns, size_bytes=size_bytes):
            self.parking.let_late_go(key, pending, is_root=is_root)
        elif pending is not None:
            self.parking.keep(key, pending, now_ns, is_root=is_root)

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        """End the root of a unit that no metric can sample, immediately."""
        decisions = self._decisions.skipped(facts)  # there are some if a rule matched
        pending.end({**self._skipped, **self._rules(decisions)} if decisions else self._skipped)

    def unit_excluded(self, facts: SamplingContext) -> None:
        """Count the unit, and remember it for ``explain``. Any thread."""
        self._decisions.excluded(facts)

    def events_lost(self, key: UnitKey, now_ns: int) -> None:
        """Record that events of the unit were lost."""
        self.assembler.broken(key, now_ns)

    def unit_complete(
        self,
        unit: Unit,
        pending: Mapping[int, PendingSpan],
        now_ns: int,
        *,
        lost: Outcome = Outcome.INCOMPLETE,
        reason: str | None = None,
    ) -> None:
        """Take a unit with all its spans; if it was scored before, or is being scored, its spans are exported immediately."""
        key = unit.key
        if unit.revision or key in self._at_work:  # repeated, while it is scored from a spool
            for span in pending.values():
                span.end()
            if unit.revision:
                self.revisions.take(unit)
            return
        self.ledger.enter(key, unit.eligible_metrics)
        self.parking.ended(key)
        for span_id, span in pending.items():
            self.parking.keep(key, span, now_ns, is_root=span_id == key.span_id)
        self._close(unit, now_ns, lost, reason)

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        """Take a unit with its samples."""
        self.ledger.enter(unit.key, unit.eligible_metrics)
        self.parking.ended(unit.key)
        if pending is not None:
            self.parking.keep(unit.key, pending, now_ns, is_root=True)
        self.ledger.belongs(unit)
        facts, decisions = unit.facts(), self._decisions
        decided = decisions.first(facts, unit.eligible_metrics) if sampled else decisions.submitted(facts)
        self._choose(unit, facts, decided, samples, now_ns)

    def waited_for(self, but: Callable[[UnitKey], bool] = lambda _: False) -> set[UnitKey]:
        """Return the ended units that are not out. Units that only wait for their scores and match ``but`` are left out."""
        own = [key for key in self.in_flight if not but(key)]
        beside = (source.ledger.open_units() for source in self.sources)
        return {*own, *self.keeping.making(), *self.revisions.open_units()}.union(*beside)

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return the decisions on the units of a trace and their outcomes; see ``Decisions.explain``. Any thread."""
        return self._decisions.explain(trace_id)

    def recent_units(self) -> list[Unit]:
        """Return the last units that were handed over, with their spans. Any thread."""
        return self._recent.units()

    def next_due_ns(self) -> int | None:
        """Return the time at which ``tick`` has work without a further event; None if no work waits for a time."""
        times = (self.assembler.next_due_ns(), self.parking.hold.next_due_ns())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now_ns: int) -> None:
        """Close due units, hand over sampled units, and release units that have waited too long, at the pace."""
        for unit in self.assembler.due(now_ns):
            for part in self.parking.split(self._without_shared(unit), now_ns):
                self.ledger.enter(part.key, part.eligible_metrics)
                self._close(part, now_ns)
            yield_gil()
        if self._chosen:
            chosen, self._chosen = self._chosen, []
            self.handover(chosen)
        if self._rest:
            rest, self._rest = self._rest, {}
            self.hand_rest(rest)
        for key in self.parking.hold.overdue(now_ns):
            self._let_go(key, "deadline")
        self.parking.hold.release_early(now_ns)
        self.flush_ready(now_ns)

    def flush_ready(self, now_ns: int, *, unpaced: bool = False) -> None:
        """End queued spans as the pace allows, all of them if ``unpaced``."""
        self.parking.flush_ready(now_ns, unpaced=unpaced)

    def take_over(self, job: Job) -> None:
        """Accept a unit from another process: its scores are treated like those of a unit of this one."""
        key = job.unit.key
        if self._decisions.made_elsewhere(key, job.decisions, others=job.undecided is not None):
            self.ledger.belongs(job.unit)
            self.parking.ended(key)
            self._at_work[key] = PendingUnit({}, job.undecided)
            self.lanes.enter(key, job.decisions, job.size_bytes)
        elif key in self._at_work:  # repeated, and on its way to the disk
            self._at_work[key].twice = True

    def settle(self, result: JobResult) -> None:
        """Count and emit the scores of a job; export the unit's spans with the last of them."""
        key = result.unit.key
        scores = self._decisions.settle_scores(key, result.scores)
        self.notes.scored(key, scores)
        log_failures(scores)
        at_work = self._at_work.get(key)
        if at_work is None or at_work.goes_on_after(result.rest):  # None: it was given up
            return
        self.lanes.settle(key, [score.metric for score in scores])
        at_work.scores += scores
        at_work.made = result.sample_attributes
        if at_work.undecided is not None:
            self._decide_rest(key, at_work, at_work.undecided)
        if result.over:
            self._finish(key, at_work, result)
        emitted = [score for score in scores if has_span(score) or at_work.has_left]
        if emitted:
            batch = ScoreBatch(self.sink, result.unit, emitted)
            self.parking.hold.enqueue(batch, batch.spans)
        if result.over:
            self.parking.leaves(key)

    def export_held_spans(self) -> None:
        """Export all held spans now, as a shutdown does."""
        for key in self.parking.hold.parked():
            self._let_go(key, "shutdown")
        self.parking.hold.release_running()

    def give_up(self, keys: Sequence[UnitKey], now_ns: int, outcome: Outcome = Outcome.SHUTDOWN) -> None:
        """Settle the open metrics of these units, and export their spans."""
        for key in keys:
            unit = self.assembler.forget(key)
            if self.parking.hold.holds(key):
                self._let_go(key, "shutdown")
            self._at_work.pop(key, None)
            self._shared.pop(key, None)
            self.lanes.leave(key)
            facts = SamplingContext(key) if unit is None else unit.facts()
            if unit is not None:
                self.ledger.belongs(unit)
                self.keeping.missed(facts, unit, outcome)
            self._turn_back(key, self._decisions.lost(facts, outcome), now_ns)

    def _finish(self, key: UnitKey, at_work: PendingUnit, result: JobResult) -> None:
        """Export a unit's spans, if they are here, because all its scores are in."""
        del self._at_work[key]
        self.lanes.leave(key)
        at_work.others |= self._settle_rest(key, result.rest, result.reason)
        self.notes.sampled(at_work.made)
        if self.parking.hold.holds(key):
            made = at_work.made if self.parking.attach else {}
            self.parking.hold.release(key, {**self._on_span(at_work.scores, at_work.others), **made})

    def _settle_rest(self, key: UnitKey, outcome: Outcome, reason: str | None) -> dict[str, Outcome]:
        outcomes = self._decisions.settle_rest(key, outcome, reason)
        self.notes.unscored(key, outcomes, reason)
        return outcomes

    def _let_go(self, key: UnitKey, reason: str) -> None:
        """Export a unit's spans with the scores that are in; later scores are emitted without them."""
        at_work = self._at_work[key]
        at_work.has_left = True
        attributes = {**unit_attributes(at_work.scores, pending=True), **at_work.made, semconv.PENDING_REASON: reason}
        self.parking.hold.release(key, attributes, reason)

    def _without_shared(self, unit: Unit) -> Unit:
        """Return a unit without the metrics that another scorer of the process scores on it."""
        shared = self._shared.pop(unit.key, None)
        return (
            unit if shared is None else replace(unit, shared=shared, eligible_metrics=frozenset(self.metrics) - shared)
        )

    def _close(self, unit: Unit, now_ns: int, lost: Outcome = Outcome.INCOMPLETE, reason: str | None = None) -> None:
        try:
            self.ledger.belongs(unit)
            facts = unit.facts()
            if unit.complete:
                self._choose(unit, facts, self._decisions.first(facts, unit.eligible_metrics), None, now_ns)
            else:
                self.keeping.missed(facts, unit, lost)
                outcomes = self._decisions.lost(facts, lost, reason)
                self.notes.unscored(unit.key, {name: end for name, end in outcomes.items() if end is lost}, reason)
                self._turn_back(unit.key, outcomes, now_ns)
        except Exception as error:  # noqa: BLE001  (the other units of this tick go on, and this one ends)
            log_internal_error("decide on a unit", error)
            self._turn_back(unit.key, self._decisions.settle_rest(unit.key, Outcome.INCOMPLETE), now_ns)

    def _choose(
        self,
        unit: Unit,
        facts: SamplingContext,
        decisions: Mapping[str, Decision],
        samples: Samples | None,
        now_ns: int,
    ) -> None:
        key, eligible = unit.key, self.metrics if unit.eligible_metrics is None else unit.eligible_metrics
        all_decided = len(decisions) == len(eligible)
        if all_decided and not any(decision.take for decision in decisions.values()):
            self._chosen += self.keeping.to_make(unit, facts, samples, self.clock())
            self._turn_back(key, self._decisions.settle_rest(key, Outcome.NOT_SAMPLED), now_ns, self._rules(decisions))
            return
        chosen, others = self._sorted_out(key, decisions)
        held = size_bytes_of(unit, samples)
        if not chosen or not self.queue.reserve(held):
            if not all_decided:  # the scores that rules read will not arrive
                others |= self._sorted_out(key, self._decisions.rest(facts, {}))[1]
            self.keeping.missed(facts, unit, Outcome.QUEUE_FULL)
            self._turn_back(key, others | self._settle_rest(key, Outcome.QUEUE_FULL, self.rejection_reason()), now_ns)
            return
        self.notes.chosen(unit.kind, chosen)
        if samples is None:
            self._recent.keep(unit, held)
        undecided = None if all_decided else facts
        self._at_work[key] = PendingUnit(others, undecided)
        self.lanes.enter(key, chosen, held)
        now_s = self.clock()
        held_s = self.parking.park(unit, now_ns)
        while (oldest := self.parking.hold.superfluous()) is not None:
            self._let_go(oldest, "overflow")
        wanted = self.keeping.delegated(facts)
        self._chosen.append(SampledUnit(unit, chosen, samples, held, now_s, now_s + held_s, undecided, wanted))

    def _decide_rest(self, key: UnitKey, at_work: PendingUnit, facts: SamplingContext) -> None:
        """Decide on the metrics that wait for the gate metrics' scores, when all of these are in."""
        scores = {score.metric: score.quality for score in at_work.scores}
        if not self._decisions.gate_metrics <= scores.keys() | at_work.others.keys():
            return
        at_work.undecided, chosen = None, dict[str, Decision]()
        try:
            chosen, others = self._sorted_out(key, self._decisions.rest(facts, scores))
        except Exception as error:  # noqa: BLE001  (otherwise its job would wait forever)
            log_internal_error("decide on a unit", error)
            others = self._decisions.settle_rest(key, Outcome.INCOMPLETE)
        at_work.others |= others
        self.lanes.join(key, chosen)
        self._rest[key] = chosen

    def _sorted_out(
        self, key: UnitKey, decisions: Mapping[str, Decision]
    ) -> tuple[dict[str, Decision], dict[str, Outcome]]:
        """Settle metrics that do not sample the unit or have no room; return the other decisions, and these outcomes."""
        taken = {name: decision for name, decision in decisions.items() if decision.take}
        others = dict.fromkeys((name for name in decisions if name not in taken), Outcome.NOT_SAMPLED)
        others |= dict.fromkeys(taken.keys() - self.lanes.with_room(taken), Outcome.QUEUE_FULL)
        self._decisions.settle(key, others)
        return {name: decision for name, decision in taken.items() if name not in others}, others

    def _turn_back(
        self, key: UnitKey, outcomes: Mapping[str, Outcome], now_ns: int, rules: Mapping[str, str] = _NO_RULE
    ) -> None:
        self.parking.turn_back(key, {**self._on_span([], outcomes), **rules}, now_ns)

    def _on_span(self, scores: Sequence[Score], others: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return unit_attributes(scores, others) if self.parking.attach else {}

    def _rules(self, decisions: Mapping[str, Decision]) -> Mapping[str, str]:
        """Return the attribute with the rules that matched a unit that no metric took."""
        return matched_rules(decisions) if self.parking.attach else _NO_RULE


@dataclass(slots=True)
class PendingUnit:
    """A unit that was handed over and lacks scores.

    Attributes:
        others: metric → outcome of the metrics that did not sample it, or had no room.
        scores: scores that are in.
        made: attributes about the source of its sample, from the first score on.
        undecided: its facts, while other metrics wait for these scores; otherwise None.
        has_left: whether its root was exported, as ``pending``, before all scores were in.
        twice: whether it arrived once more while it is scored from a spool.
    """

    others: dict[str, Outcome]
    undecided: SamplingContext | None = None
    scores: list[Score] = field(default_factory=list)
    made: Mapping[str, Any] = field(default_factory=dict)
    has_left: bool = False
    twice: bool = False

    def goes_on_after(self, rest: Outcome) -> bool:
        """Whether the unit goes on after a job's end, because the spool has it twice and one of the two is being scored. True
        once.
        """
        goes_on = self.twice and rest in _NOT_BEGUN
        self.twice = self.twice and not goes_on
        return goes_on

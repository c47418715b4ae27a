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
from spanscore.core.span import InnerGroup, SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import Assembler
from spanscore.pipeline.decisions import RecentUnits, RecentUnitSpans, UnitBooks, matched_rules
from spanscore.pipeline.in_force import ValueInForce
from spanscore.pipeline.inner import Books, find_inner_units, inner_facts
from spanscore.pipeline.ledger import Ledger, ScoreBatch, has_span, log_failures
from spanscore.pipeline.population import Revisions, ScoreSource
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.sizes import SampleObservers, size_bytes_of
from spanscore.pipeline.span_buffer import SpanBuffer
from spanscore.protocols import PendingSpan, Queue, Sink

_ALPHA: Final = 3
"""With 3, a judge that hangs leaves a quarter of 1,000 places free: enough for 250 units per second of 1 s each."""
_BYTES_WEIGHT: Final = 4
"""Bytes count fourfold in `AccountQuotas.fill`: the queue counts as full at a quarter of ``max_bytes``, because the content
takes memory of the application.
"""
_AT_ONCE: Final = 16
"""Divisor of the capacity: units of unknown size may take at most 1/16 of the places at once."""
_KEPT_PLACES: Final = 0.95
"""Share of ``AccountQuotas.places`` that remains after each unit with fewer inner units."""


@dataclass(slots=True)
class _Held:
    units: int = 0
    size_bytes: int = 0

    def add(self, units: int, size_bytes: int) -> None:
        self.units += units
        self.size_bytes += size_bytes


@dataclass(eq=False, repr=False)
class AccountQuotas:
    """Keeps places in the queue for metrics of other judges while one judge hangs. Owned by the span thread.

    Metrics share a quota if their judges are one account. A quota accepts no further unit once it holds three times as many
    places as are free: one quota alone fills at most three quarters of the queue, two that share no unit three sevenths each. A
    single quota has the whole queue. This is the dynamic threshold of switches that share memory between ports (Choudhury and
    Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998), with α = 3.

    Attributes:
        of: metric → key of its quota.
        capacity: returns the number of places in the queue.
        max_bytes: maximum bytes of content in the queue.
        under_way: metric → number of units in the queue without a score of that metric yet.
        places: places that one unit takes with its inner units: the largest recent number, at least 1.
    """

    of: Mapping[str, Hashable]
    _: KW_ONLY
    capacity: Callable[[], int]
    max_bytes: float = inf

    def __post_init__(self) -> None:
        self._all = _Held()
        self._quotas: dict[Hashable, _Held] = {quota: _Held() for quota in self.of.values()}
        self._open: dict[UnitKey, tuple[int, dict[str, Hashable]]] = {}
        self.under_way: Counter[str] = Counter()
        self.places = 1.0

    def note_inner(self, inner: int) -> None:
        """Note the number of inner units of a closed unit. A large number is forgotten after some dozen units."""
        self.places = max(1.0 + inner, _KEPT_PLACES * self.places)

    def change(self, of: Mapping[str, Hashable]) -> None:
        """Use other quotas for units that enter from now on. Units in the queue keep theirs."""
        self.of = {**self.of, **of}  # a metric that is left out now may sample units that are still open
        kept = {quota for _, metrics in self._open.values() for quota in metrics.values()}.union(of.values())
        self._quotas = {quota: self._quotas.get(quota) or _Held() for quota in kept}

    def with_room(self, metrics: Collection[str]) -> list[str]:
        """Return the metrics that have room for one more unit in their quota."""
        if len(self._quotas) == 1:
            return list(metrics)
        full = {quota for quota, held in self._quotas.items() if self._is_full(held)}
        return [name for name in metrics if self.of[name] not in full]

    def room(self) -> int:
        """Return the number of units that may arrive now without filling a quota. Thread-safe."""
        if self._all.size_bytes > self.max_bytes / 2:  # the size of the next units is unknown
            return 0
        capacity = self.capacity()
        most = capacity if len(self._quotas) == 1 else capacity * _ALPHA // (_ALPHA + 1)
        free = most - self._all.units
        if free < min(self.places, most):
            return 0
        return int(max(1, min(free, max(1, capacity // _AT_ONCE)) // self.places))

    def fill(self) -> float:
        """Return the present fill of the fullest quota, [0, 1] or more; bytes count fourfold. Thread-safe."""
        capacity, queue = self.capacity(), self._all
        parts = [queue.units / capacity, _BYTES_WEIGHT * queue.size_bytes / self.max_bytes]
        if len(self._quotas) > 1:
            free = max(1, capacity - queue.units)
            parts += (held.units / (_ALPHA * free) for held in self._quotas.values())
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
        before = {*open_ones.values()}
        for name in metrics:
            open_ones[name] = self.of[name]
            self.under_way[name] += 1
        for quota in {*open_ones.values()} - before:
            self._quotas.setdefault(quota, _Held()).add(1, size_bytes)

    def settle(self, key: UnitKey, metrics: Collection[str]) -> None:
        """Remove metrics of a unit, because their scores are in."""
        size_bytes, left = self._open[key]
        before = {*left.values()}
        done = left.keys() & metrics
        for name in done:
            del left[name]
            self.under_way[name] -= 1
        for quota in before.difference(left.values()):
            self._quotas[quota].add(-1, -size_bytes)

    def leave(self, key: UnitKey) -> None:
        """Remove a unit. The unit's place is released."""
        if key in self._open:
            if left := self._open[key][1]:
                self.settle(key, [*left])
            size_bytes, _ = self._open.pop(key)
            self._all.add(-1, -size_bytes)

    def _is_full(self, held: _Held) -> bool:
        free, free_bytes = self.capacity() - self._all.units, self.max_bytes - self._all.size_bytes
        return held.units > 0 and (held.units >= _ALPHA * free or held.size_bytes >= _ALPHA * free_bytes)


_NO_RULE: Mapping[str, str] = MappingProxyType({})
_NOT_BEGUN: Final = frozenset({Outcome.DELEGATED, Outcome.QUEUE_FULL})


@dataclass(eq=False, repr=False)
class UnitTracker:
    """The ``UnitListener`` of the span thread: follows each unit from its start until its spans and scores are exported.

    Scores are settled and emitted on arrival. The unit's spans wait for the last score, or until the end of the hold. Then the
    spans are exported with the scores that have arrived. The *books* of a unit (`UnitBooks`) decide on it and settle its
    outcomes in the ledger.

    Attributes:
        hold: span buffer that holds the spans of units until their scores are there.
        sink: a sink that never raises.
        handover: passes sampled units to the loop, one call per tick.
        hand_rest: passes the decisions on the remaining metrics to the loop, for units whose rules waited for the first scores;
            one call per tick.
        revisions: decides on units that have been scored before.
        keeping: passes the samples of units to observers, or reports why a unit has no samples.
        sources: score sources outside sampled traffic; a flush waits for their scores, too.
        known: index of the units with a decision, for ``feedback`` and ``preview``.
        rejection_reason: returns why the queue accepts no further unit; None if it has no reason to add.
        inner: entry of ``units.also`` → names of the metrics that score its inner units.
        join_inner: gives an inner unit the judges of the unit around it; called with both keys, before the decision on the
            inner unit.
        notes: remarks on scores of the roots' units, for ``status()``.
        recent: the last units that were handed over, with their spans.
    """

    metrics: Sequence[str]
    _: KW_ONLY
    ledger: Ledger
    assembler: Assembler
    sampler: RateSampler
    queue: Queue
    account_quotas: AccountQuotas
    hold: SpanBuffer
    sink: Sink
    handover: Callable[[Sequence[SampledUnit]], None]
    hand_rest: Callable[[Mapping[UnitKey, Mapping[str, Decision]]], None]
    revisions: Revisions
    keeping: SampleObservers
    sources: Sequence[ScoreSource] = ()
    known: RecentUnits = field(default_factory=RecentUnits)
    rejection_reason: Callable[[], str | None] = lambda: None
    inner: Mapping[InnerGroup, Sequence[str]] = field(default_factory=dict)
    join_inner: Callable[[UnitKey, UnitKey], None] = lambda inner, around: None

    def __post_init__(self) -> None:
        root = UnitBooks(self.metrics, self.sampler, self.ledger, known=self.known, noticed=self.keeping.notify_closed)
        inner = {group: UnitBooks.of_inner(names, self.sampler) for group, names in self.inner.items()}
        self._books = ValueInForce(Books(root, self.inner, inner))
        self.notes = root.notes
        self._skipped = self._on_span([], dict.fromkeys(self.metrics, Outcome.NOT_SAMPLED))
        self.recent = RecentUnitSpans()
        self._chosen: list[SampledUnit] = []
        self._rest: dict[UnitKey, Mapping[str, Decision]] = {}
        self._at_work: dict[UnitKey, PendingUnit] = {}
        self._shared: dict[UnitKey, frozenset[str]] = {}

    def change(
        self,
        metrics: Sequence[str],
        sampler: RateSampler,
        inner: Mapping[InnerGroup, Sequence[str]],
        *,
        open_units: Collection[UnitKey],
    ) -> None:
        """Decide on units that begin from now on by other metrics, rates and inner units; ``open_units`` keep theirs."""
        self.metrics, self.sampler, self.inner = metrics, sampler, inner
        self._books.change(self._books.now.by_sampler(metrics, inner, sampler), open_units)
        self._skipped = self._on_span([], dict.fromkeys(metrics, Outcome.NOT_SAMPLED))

    def earlier_samplers(self) -> set[RateSampler]:
        """Return the samplers that only decide on open units."""
        return {books.root.sampler for books in self._books.earlier}

    def forget_closed(self, open_units: Collection[UnitKey]) -> None:
        """Forget the earlier metrics and rates of units that are not open any more."""
        self._books.change(self._books.now, open_units)

    @property
    def inner_books(self) -> Mapping[InnerGroup, UnitBooks]:
        """Entry of ``units.also`` → the books of its units. Thread-safe."""
        return self._books.now.inner

    def take_parts(self) -> Mapping[UnitKey, Collection[UnitKey]]:
        """Return a mapping for everything that ended since the last call.

        A key is a topmost span or a unit with inner units; its value is the set of units in it.
        """
        parts, self.hold.parts = self.hold.parts, {}
        return parts

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        """Record metrics that do not score a unit here, because another scorer does; called before the unit is opened."""
        self._shared[key] = frozenset(metrics)

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        """Make the unit eligible."""
        shared = self._shared.get(key)
        self._enter(key, None if shared is None else frozenset(self._books.of(key).root.metrics) - shared)

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        """Hold an ended span of a unit that may be scored; a late span of a closed unit is exported unchanged."""
        is_root = span.span_id == key.span_id
        if is_root:
            self.hold.root_ended(key)
        if self.assembler.ended(key, span, now_ns, size_bytes=size_bytes):
            if pending is not None:
                self.hold.keep(key, span.span_id, pending, now_ns)
            return
        if pending is not None:
            self.hold.enqueue(pending)
        if is_root:
            self.hold.leaves(key)

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        """End the root of a unit that no metric can sample, immediately."""
        books = self._books.of(facts.key)
        own, is_earlier = books.root, books is not self._books.now
        skipped = self._on_span([], dict.fromkeys(own.metrics, Outcome.NOT_SAMPLED)) if is_earlier else self._skipped
        decisions = own.skipped(facts)  # empty unless a rule matched
        pending.end({**skipped, **self._rules(decisions)} if decisions else skipped)

    def unit_excluded(self, facts: SamplingContext) -> None:
        """Count a unit that sampling excluded when it began, and remember it for ``explain``. Thread-safe."""
        books = self._books.of(facts.key)
        if books is self._books.now:
            books.root.excluded(facts)
        else:
            self._enter(facts.key, None)
            books.root.skipped(facts)

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
        self._enter(key, unit.eligible_metrics)
        self.hold.root_ended(key)
        for span_id, span in pending.items():
            self.hold.keep(key, span_id, span, now_ns)
        self._close(unit, now_ns, lost, reason)

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        """Take a unit with its samples."""
        self._enter(unit.key, unit.eligible_metrics)
        self.hold.root_ended(unit.key)
        if pending is not None:
            self.hold.keep(unit.key, unit.key.span_id, pending, now_ns)
        self.ledger.belongs(unit)
        facts, decisions = unit.facts(), self._books.of(unit.key).root
        decided = decisions.first(facts, unit.eligible_metrics) if sampled else decisions.submitted(facts)
        self._choose(unit, facts, decided, samples, now_ns)

    def waited_for(self, but: Callable[[UnitKey], bool] = lambda _: False) -> set[UnitKey]:
        """Return the ended units that are not completely exported.

        Units in the span buffer for which ``but`` is true are left out.
        """
        own = [key for key in self.hold.in_flight if not but(key)]
        beside = (source.ledger.open_units() for source in self.sources)
        return {*own, *self.keeping.making(), *self.revisions.open_units()}.union(*beside)

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return the decisions on the units of a trace and their outcomes; see ``UnitBooks.explain``. Thread-safe."""
        explained = self._books.now.root.explain(trace_id)
        for group, books in self.inner_books.items():
            explained += [{**entry, "kind": str(group)} for entry in books.explain(trace_id)]
        return explained

    def next_due_ns(self) -> int | None:
        """Return the time at which ``tick`` has work without a further event; None if no work waits for a time."""
        times = (self.assembler.next_due_ns(), self.hold.next_due_ns())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now_ns: int) -> None:
        """Close due units, hand over sampled units, and release units that have waited too long.

        Spans are exported no faster than the export pace.
        """
        for unit in self.assembler.due(now_ns):
            for part in self.hold.split(self._without_shared(unit), now_ns):
                self._enter(part.key, part.eligible_metrics)
                self._close(part, now_ns)
            yield_gil()
        if self._chosen:
            chosen, self._chosen = self._chosen, []
            self.handover(chosen)
        if self._rest:
            rest, self._rest = self._rest, {}
            self.hand_rest(rest)
        for key in self.hold.overdue(now_ns):
            self._export_pending(key, "deadline")
        self.hold.release_early(now_ns)
        self.hold.flush_ready(now_ns)

    def take_over(self, job: Job) -> None:
        """Accept a unit from another process. The scores are treated like those of a unit of this process."""
        key, books = job.unit.key, self._books_of(job.unit)
        if books.made_elsewhere(key, job.decisions, others=job.undecided is not None):
            books.ledger.belongs(job.unit)
            self.hold.root_ended(key)
            self._at_work[key] = PendingUnit(books, {}, job.undecided)
            self.account_quotas.enter(key, job.decisions, job.size_bytes)
        elif key in self._at_work:  # repeated, and on its way to the disk
            self._at_work[key].twice = True

    def settle(self, result: JobResult) -> None:
        """Count and emit the scores of a job. With the unit's last score its spans are exported."""
        key = result.unit.key
        scores = self._books_of(result.unit).settle_scores(result.unit, result.scores)
        log_failures(scores)
        at_work = self._at_work.get(key)
        if at_work is None or at_work.use_second_job(result.rest):  # None: the unit was given up
            return
        self.account_quotas.settle(key, [score.metric for score in scores])
        at_work.scores += scores
        at_work.made = result.sample_attributes
        if at_work.undecided is not None:
            self._decide_rest(key, at_work, at_work.undecided)
        if result.over:
            self._finish(key, at_work, result)
        emitted = [score for score in scores if has_span(score) or at_work.has_left]
        if emitted:
            batch = ScoreBatch(self.sink, result.unit, emitted)
            self.hold.enqueue(batch, batch.spans)
        if result.over:
            self.hold.leaves(key)

    def export_held_spans(self) -> None:
        """Export all held spans now, as a shutdown does."""
        for key in self.hold.parked():
            self._export_pending(key, "shutdown")
        self.hold.release_running()

    def give_up(self, keys: Sequence[UnitKey], now_ns: int, outcome: Outcome = Outcome.SHUTDOWN) -> None:
        """Settle the open metrics of these units, and export their spans."""
        for key in keys:
            unit = self.assembler.forget(key)
            if self.hold.holds(key):
                self._export_pending(key, "shutdown")
            at_work = self._at_work.pop(key, None)
            self._shared.pop(key, None)
            self.account_quotas.leave(key)
            books = self._books.of(key).root if at_work is None else at_work.books
            facts = SamplingContext(key) if unit is None else unit.facts()
            if unit is not None:
                self.ledger.belongs(unit)
                self.keeping.report_missing(facts, unit, outcome)
            self._turn_back(key, books.lost(facts, outcome), now_ns)

    def _finish(self, key: UnitKey, at_work: PendingUnit, result: JobResult) -> None:
        """Export a unit's spans, if this process holds them, because all its scores have arrived."""
        del self._at_work[key]
        self.account_quotas.leave(key)
        at_work.others |= at_work.books.settle_rest(key, result.rest, result.reason)
        at_work.books.notes.sampled(at_work.made)
        if self.hold.holds(key):
            made = at_work.made if self.hold.attach else {}
            self.hold.release(key, {**self._on_span(at_work.scores, at_work.others), **made})

    def _books_of(self, unit: Unit) -> UnitBooks:
        """Return the books of a unit; another process may have inner units that this process's configuration lacks."""
        if unit.inner is None:
            return self._books.of(unit.key).root
        own, now = self._books.of(unit.key).inner, self.inner_books
        return own.get(unit.inner) or now.get(unit.inner) or self._open_books(unit.inner)

    def _open_books(self, group: InnerGroup) -> UnitBooks:
        books, now = UnitBooks.of_inner((), self.sampler), self._books.now
        self._books.now = now._replace(inner={**now.inner, group: books})  # another thread may be reading the books
        return books

    def _export_pending(self, key: UnitKey, reason: str) -> None:
        """Export a unit's spans with the scores that have arrived; later scores are only emitted."""
        at_work = self._at_work[key]
        at_work.has_left = True
        attributes = {**unit_attributes(at_work.scores, pending=True), **at_work.made, semconv.PENDING_REASON: reason}
        self.hold.release(key, attributes, reason)

    def _without_shared(self, unit: Unit) -> Unit:
        """Return a unit without the metrics that another scorer of the process scores on it."""
        shared = self._shared.pop(unit.key, None)
        if shared is None:
            return unit
        metrics = self._books.of(unit.key).root.metrics
        return replace(unit, shared=shared, eligible_metrics=frozenset(metrics) - shared)

    def _enter(self, key: UnitKey, metrics: Collection[str] | None) -> None:
        """Make a unit eligible for these metrics; None = every metric in force at its start."""
        books = self._books.of(key)
        if metrics is None and books is not self._books.now:
            metrics = books.root.metrics
        self.ledger.enter(key, metrics)

    def _close(self, unit: Unit, now_ns: int, lost: Outcome = Outcome.INCOMPLETE, reason: str | None = None) -> None:
        """Decide on an ended unit, and then on its inner units."""
        inside = self._open_inner(unit) if self.inner else ()
        for each, facts in ((unit, None), *inside):
            books = self._books_of(each)
            try:
                self._decide_on(each, each.facts() if facts is None else facts, books, now_ns, lost, reason)
            except Exception as error:  # noqa: BLE001  (the other units of this tick go on, and this one ends)
                log_internal_error("decide on a unit", error)
                self._turn_back(each.key, books.settle_rest(each.key, Outcome.INCOMPLETE), now_ns)

    def _open_inner(self, unit: Unit) -> Sequence[tuple[Unit, SamplingContext]]:
        """Make the inner units of a recorded unit eligible, each with the facts that decide on it.

        The metrics, judges and rates of an inner unit are those of the unit around it.
        """
        if unit.eligible_metrics is not None and not unit.shared:  # another process decides on its inner units, too
            return ()
        own = self._books.of(unit.key)
        parts = [part for part in find_inner_units(unit, own.entries) if part.key not in self._at_work]
        self.account_quotas.note_inner(len(parts))
        facts = unit.facts() if parts else None
        if facts is None or not own.root.sampler.records_root(facts):
            return ()
        self.hold.separate(unit.key, {part.key: part.inner.attributes for part in parts if part.inner is not None})
        for part in parts:
            self._books.join(part.key, unit.key)
            self.join_inner(part.key, unit.key)
            self._books_of(part).ledger.enter(part.key, part.eligible_metrics)
        return [(part, inner_facts(part, facts)) for part in parts]

    def _decide_on(
        self,
        unit: Unit,
        facts: SamplingContext,
        books: UnitBooks,
        now_ns: int,
        lost: Outcome,
        reason: str | None,
    ) -> None:
        books.ledger.belongs(unit)
        if unit.complete:
            self._choose(unit, facts, books.first(facts, unit.eligible_metrics), None, now_ns)
            return
        self.keeping.report_missing(facts, unit, lost)
        self._turn_back(unit.key, books.lost(facts, lost, reason), now_ns)

    def _choose(
        self,
        unit: Unit,
        facts: SamplingContext,
        decisions: Mapping[str, Decision],
        samples: Samples | None,
        now_ns: int,
    ) -> None:
        key, books = unit.key, self._books_of(unit)
        eligible = books.metrics if unit.eligible_metrics is None else unit.eligible_metrics
        all_decided = len(decisions) == len(eligible)
        if all_decided and not any(decision.take for decision in decisions.values()):
            self._chosen += self.keeping.to_make(unit, facts, samples, monotonic())
            self._turn_back(key, books.settle_rest(key, Outcome.NOT_SAMPLED), now_ns, self._rules(decisions))
            return
        chosen, others = self._sorted_out(key, decisions, books)
        held = size_bytes_of(unit, samples)
        if not chosen or not self.queue.reserve(held):
            if not all_decided:  # the scores that rules read will not arrive
                others |= self._sorted_out(key, books.rest(facts, {}), books)[1]
            self.keeping.report_missing(facts, unit, Outcome.QUEUE_FULL)
            self._turn_back(key, others | books.settle_rest(key, Outcome.QUEUE_FULL, self.rejection_reason()), now_ns)
            return
        books.notes.chosen(unit.kind, chosen)
        if samples is None and unit.inner is None:
            self.recent.keep(unit, held)
        undecided = None if all_decided else facts
        self._at_work[key] = PendingUnit(books, others, undecided)
        self.account_quotas.enter(key, chosen, held)
        now_s = monotonic()
        held_s = self.hold.park(unit, now_ns)
        while (oldest := self.hold.superfluous()) is not None:
            self._export_pending(oldest, "overflow")
        wanted = self.keeping.begin_making(facts)
        self._chosen.append(SampledUnit(unit, chosen, samples, held, now_s, now_s + held_s, undecided, wanted))

    def _decide_rest(self, key: UnitKey, at_work: PendingUnit, facts: SamplingContext) -> None:
        """Decide on the other metrics when each condition metric has a score or another outcome."""
        own, scores = at_work.books, {score.metric: score.quality for score in at_work.scores}
        if not own.condition_metrics <= scores.keys() | at_work.others.keys():
            return
        at_work.undecided, chosen = None, dict[str, Decision]()
        try:
            chosen, others = self._sorted_out(key, own.rest(facts, scores), at_work.books)
        except Exception as error:  # noqa: BLE001  (otherwise its job would wait forever)
            log_internal_error("decide on a unit", error)
            others = own.settle_rest(key, Outcome.INCOMPLETE)
        at_work.others |= others
        self.account_quotas.join(key, chosen)
        self._rest[key] = chosen

    def _sorted_out(
        self, key: UnitKey, decisions: Mapping[str, Decision], books: UnitBooks
    ) -> tuple[dict[str, Decision], dict[str, Outcome]]:
        """Settle metrics that do not sample the unit or whose quota is used up.

        Return the remaining decisions, and the outcomes of the settled metrics.
        """
        taken = {name: decision for name, decision in decisions.items() if decision.take}
        others = dict.fromkeys((name for name in decisions if name not in taken), Outcome.NOT_SAMPLED)
        others |= dict.fromkeys(taken.keys() - self.account_quotas.with_room(taken), Outcome.QUEUE_FULL)
        books.settle(key, others)
        return {name: decision for name, decision in taken.items() if name not in others}, others

    def _turn_back(
        self, key: UnitKey, outcomes: Mapping[str, Outcome], now_ns: int, rules: Mapping[str, str] = _NO_RULE
    ) -> None:
        """Export the spans of a unit that is not scored, with the outcomes of its metrics."""
        self.hold.turn_back(key, {**self._on_span([], outcomes), **rules}, now_ns)

    def _on_span(self, scores: Sequence[Score], others: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return unit_attributes(scores, others) if self.hold.attach else {}

    def _rules(self, decisions: Mapping[str, Decision]) -> Mapping[str, str]:
        """Return the attribute with the rules that matched a unit that no metric sampled."""
        return matched_rules(decisions) if self.hold.attach else _NO_RULE


@dataclass(slots=True)
class PendingUnit:
    """A unit that was handed over to the loop and lacks scores.

    Attributes:
        others: metric → outcome of the metrics that did not sample it, or whose account quota was used up.
        made: attributes about the source of the sample, from the first score on.
        undecided: facts of the unit, while other metrics wait for these scores; otherwise None.
        has_left: whether the root was exported, as ``pending``, before all scores were in.
        twice: whether the unit arrived again while a job of it is scored from a spool.
    """

    books: UnitBooks
    others: dict[str, Outcome]
    undecided: SamplingContext | None = None
    scores: list[Score] = field(default_factory=list)
    made: Mapping[str, Any] = field(default_factory=dict)
    has_left: bool = False
    twice: bool = False

    def use_second_job(self, rest: Outcome) -> bool:
        """Return whether the unit continues after a job's end, because the spool has a second job of it. True once."""
        continues = self.twice and rest in _NOT_BEGUN
        self.twice = self.twice and not continues
        return continues

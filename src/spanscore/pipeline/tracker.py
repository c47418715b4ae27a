"""``UnitTracker`` follows each unit on the span thread from its start until its spans and scores are exported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spanscore import semconv
from spanscore.core.event_queue import yield_gil
from spanscore.core.job import BASE, Decision, Job, JobResult, SampledUnit
from spanscore.core.log import log_internal_error
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Score, unit_attributes
from spanscore.core.span import InnerGroup, InnerKind, SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import Assembler
from spanscore.pipeline.decisions import RecentUnits, RecentUnitSpans, UnitDecider
from spanscore.pipeline.in_force import ValueInForce
from spanscore.pipeline.ledger import Ledger, ScoreBatch, has_span, log_failures
from spanscore.pipeline.population import Revisions, ScoreSource
from spanscore.pipeline.queues import AccountQuotas
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.sizes import SampleObservers, size_bytes_of
from spanscore.pipeline.span_buffer import SpanBuffer
from spanscore.protocols import PendingSpan, Queue, Sink

_NO_RULE: Mapping[str, str] = MappingProxyType({})
_NOT_BEGUN: Final = frozenset({Outcome.DELEGATED, Outcome.QUEUE_FULL})
"""Outcomes of a job that was not scored in this process."""
_OPERATIONS: Final[Mapping[InnerKind, Set[str]]] = {
    "retriever": {semconv.RETRIEVAL},
    "tool": {semconv.EXECUTE_TOOL},
    "agent": {semconv.INVOKE_AGENT},
    "chat": semconv.MODEL_OPERATIONS,
}
_NAMES: Final[Mapping[InnerKind, str]] = {
    "tool": semconv.TOOL_NAME,
    "agent": semconv.AGENT_NAME,
    "chat": semconv.REQUEST_MODEL,
}
"""Kind → attribute with the name of such a span. A span without it is named after its operation: ``retrieval docs``."""


@dataclass(eq=False, repr=False)
class UnitTracker:
    """The ``UnitListener`` of the span thread: follows each unit from its start until its spans and scores are exported.

    Scores are settled and emitted on arrival. The unit's spans wait for the last score, or until the end of the hold. Then the
    spans are exported with the scores that have arrived. The decider of a unit (`UnitDecider`) decides which metrics score it,
    and settles its outcomes in the ledger.

    Attributes:
        metrics: names of the metrics that score units.
        ledger: ledger of the units of roots.
        sampler: sampler for units that begin now.
        sink: a sink that never raises.
        dispatch: passes sampled units to the loop, one call per tick.
        dispatch_rest: passes later decisions to the loop, one call per tick: those of the metrics that waited for the scores
            of condition metrics.
        sources: score sources outside sampled traffic; a flush waits for their scores, too.
        rejection_reason: returns why the queue accepts no further unit; None if it has no reason to add.
        inner: entry of ``units.also`` → names of the metrics that score its inner units.
        join_inner: gives an inner unit the judges of the unit around it; called with both keys, before the decision on the
            inner unit.
        notes: remarks on scores of the units of roots, for ``status()``.
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
    dispatch: Callable[[Sequence[SampledUnit]], None]
    dispatch_rest: Callable[[Mapping[UnitKey, Mapping[str, Decision]]], None]
    revisions: Revisions
    sample_observers: SampleObservers
    sources: Sequence[ScoreSource] = ()
    recent_units: RecentUnits = field(default_factory=RecentUnits)
    rejection_reason: Callable[[], str | None] = lambda: None
    inner: Mapping[InnerGroup, Sequence[str]] = field(default_factory=dict)
    join_inner: Callable[[UnitKey, UnitKey], None] = lambda inner, around: None

    def __post_init__(self) -> None:
        on_unit = self.sample_observers.notify_closed
        root = UnitDecider(self.metrics, self.sampler, self.ledger, recent_units=self.recent_units, on_unit=on_unit)
        inner = {group: UnitDecider.of_inner(names, self.sampler) for group, names in self.inner.items()}
        self._deciders = ValueInForce(_Deciders(root, self.inner, inner))
        self.notes = root.notes
        self._unsampled = self._unsampled_attributes(self.metrics)
        self.recent_spans = RecentUnitSpans()
        self._to_dispatch: list[SampledUnit] = []
        self._rest_to_dispatch: dict[UnitKey, Mapping[str, Decision]] = {}
        self._active: dict[UnitKey, ActiveUnit] = {}
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
        self.metrics, self.sampler, self.inner, now = metrics, sampler, inner, self._deciders.now
        of_inner = {group: decider.by_sampler(inner.get(group, ()), sampler) for group, decider in now.inner.items()}
        self._deciders.change(_Deciders(now.root.by_sampler(metrics, sampler), inner, of_inner), open_units)
        self._unsampled = self._unsampled_attributes(metrics)

    def earlier_samplers(self) -> set[RateSampler]:
        """Return the samplers that were replaced, and still decide on open units."""
        return {deciders.root.sampler for deciders in self._deciders.earlier}

    def forget_closed(self, open_units: Collection[UnitKey]) -> None:
        """Forget the earlier metrics and rates of units that are not open any more."""
        self._deciders.change(self._deciders.now, open_units)

    @property
    def inner_deciders(self) -> Mapping[InnerGroup, UnitDecider]:
        """Entry of ``units.also`` → the decider of its units. Thread-safe."""
        return self._deciders.now.inner

    def take_parts(self) -> Mapping[UnitKey, Collection[UnitKey]]:
        """Return the units in each topmost span, and the inner units of each unit, that ended since the last call.

        A key is that of a topmost span, or of a unit with inner units; its value is the set of units in it.
        """
        parts, self.hold.parts = self.hold.parts, {}
        return parts

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        """Record metrics that do not score a unit here, because another scorer does; called before the unit is opened."""
        self._shared[key] = frozenset(metrics)

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        """Make a unit eligible."""
        shared = self._shared.get(key)
        self._enter(key, None if shared is None else frozenset(self._deciders.of(key).root.metrics) - shared)

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        """Hold an ended span of a unit that may be scored. A late span of a closed unit is exported unchanged."""
        is_root = span.span_id == key.span_id
        if is_root:
            self.hold.record_root_end(key)
        if self.assembler.add(key, span, now_ns, size_bytes=size_bytes):
            if pending is not None:
                self.hold.hold_span(key, span.span_id, pending, now_ns)
            return
        if pending is not None:
            self.hold.enqueue(pending)
        if is_root:
            self.hold.end_unit(key)

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        """End the root of a unit that no metric can sample, immediately."""
        deciders = self._deciders.of(facts.key)
        decider, is_earlier = deciders.root, deciders is not self._deciders.now
        attributes = self._unsampled_attributes(decider.metrics) if is_earlier else self._unsampled
        decisions = decider.settle_unsampled(facts)  # empty unless a rule matched
        pending.end({**attributes, **self._rules(decisions)} if decisions else attributes)

    def unit_excluded(self, facts: SamplingContext) -> None:
        """Count a unit that sampling excluded when it began, and remember it for ``explain``. Thread-safe."""
        deciders = self._deciders.of(facts.key)
        if deciders is self._deciders.now:
            deciders.root.record_excluded(facts)
        else:
            self._enter(facts.key, None)
            deciders.root.settle_unsampled(facts)

    def events_lost(self, key: UnitKey, now_ns: int) -> None:
        """Record that events of the unit were lost."""
        self.assembler.mark_broken(key, now_ns)

    def unit_complete(
        self,
        unit: Unit,
        pending: Mapping[int, PendingSpan],
        now_ns: int,
        *,
        lost: Outcome = Outcome.INCOMPLETE,
        reason: str | None = None,
    ) -> None:
        """Accept a unit with all its spans. If it was scored before, or is being scored, its spans are exported immediately."""
        key = unit.key
        if unit.revision or key in self._active:  # active: the unit arrived again while a job of a spool is scored
            for span in pending.values():
                span.end()
            if unit.revision:
                self.revisions.take(unit)
            return
        self._enter(key, unit.eligible_metrics)
        self.hold.record_root_end(key)
        for span_id, span in pending.items():
            self.hold.hold_span(key, span_id, span, now_ns)
        self._close(unit, now_ns, lost, reason)

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        """Accept a unit with its samples. ``sampled``: whether the sampling rates apply; otherwise every metric scores it."""
        self._enter(unit.key, unit.eligible_metrics)
        self.hold.record_root_end(unit.key)
        if pending is not None:
            self.hold.hold_span(unit.key, unit.key.span_id, pending, now_ns)
        self.ledger.record_compared_value(unit)
        facts, decider = unit.facts(), self._deciders.of(unit.key).root
        decisions = decider.decide_first(facts, unit.eligible_metrics) if sampled else decider.decide_submitted(facts)
        self._apply_decisions(unit, facts, decisions, samples, now_ns)

    def unexported_units(self, except_for: Callable[[UnitKey], bool] = lambda _: False) -> set[UnitKey]:
        """Return the ended units whose spans and scores are not all exported.

        Units of the span buffer for which ``except_for`` is true are left out.
        """
        own = [key for key in self.hold.in_flight if not except_for(key)]
        of_sources = (source.ledger.open_units() for source in self.sources)
        return {*own, *self.sample_observers.making(), *self.revisions.open_units()}.union(*of_sources)

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return the decisions on the units of a trace and their outcomes; see ``UnitDecider.explain``. Thread-safe."""
        explained = self._deciders.now.root.explain(trace_id)
        for group, decider in self.inner_deciders.items():
            explained += [{**entry, "kind": str(group)} for entry in decider.explain(trace_id)]
        return explained

    def next_due_ns(self) -> int | None:
        """Return the time at which ``tick`` has work without a further event; None if no work waits for a time."""
        times = (self.assembler.next_due_ns(), self.hold.next_due_ns())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now_ns: int) -> None:
        """Close due units, dispatch sampled units, and export held spans that are due, at the export pace."""
        for unit in self.assembler.due(now_ns):
            for part in self.hold.split(self._without_shared(unit), now_ns):
                self._enter(part.key, part.eligible_metrics)
                self._close(part, now_ns)
            yield_gil()
        if self._to_dispatch:
            sampled, self._to_dispatch = self._to_dispatch, []
            self.dispatch(sampled)
        if self._rest_to_dispatch:
            rest, self._rest_to_dispatch = self._rest_to_dispatch, {}
            self.dispatch_rest(rest)
        for key in self.hold.overdue(now_ns):
            self._export_pending(key, "deadline")
        self.hold.release_early(now_ns)
        self.hold.flush_ready(now_ns)

    def accept_job(self, job: Job) -> None:
        """Accept a unit from another process. Its scores are treated like those of a unit of this process."""
        key, decider = job.unit.key, self._decider_of(job.unit)
        if decider.accept_decisions(key, job.decisions, undecided=job.undecided is not None):
            decider.ledger.record_compared_value(job.unit)
            self.hold.record_root_end(key)
            self._active[key] = ActiveUnit(decider, {}, job.undecided)
            self.account_quotas.enter(key, job.decisions, job.size_bytes)
        elif key in self._active:  # this process's own job of the unit is on its way to the disk
            self._active[key].arrived_again = True

    def settle(self, result: JobResult) -> None:
        """Count and emit the scores of a job. With the unit's last score its spans are exported."""
        key = result.unit.key
        scores = self._decider_of(result.unit).settle_scores(result.unit, result.scores)
        log_failures(scores)
        active = self._active.get(key)
        if active is None or active.use_second_job(result.rest):  # None: `give_up` has settled the unit
            return
        self.account_quotas.settle(key, [score.metric for score in scores])
        active.scores += scores
        active.sample_attributes = result.sample_attributes
        if active.undecided is not None:
            self._decide_rest(key, active, active.undecided)
        if result.over:
            self._finish(key, active, result)
        emitted = [score for score in scores if has_span(score) or active.is_exported]
        if emitted:
            batch = ScoreBatch(self.sink, result.unit, emitted)
            self.hold.enqueue(batch, batch.spans)
        if result.over:
            self.hold.end_unit(key)

    def export_held_spans(self) -> None:
        """Export all held spans now, as a shutdown does."""
        for key in self.hold.parked():
            self._export_pending(key, "shutdown")
        self.hold.release_running()

    def give_up(self, keys: Sequence[UnitKey], now_ns: int, outcome: Outcome = Outcome.SHUTDOWN) -> None:
        """Give ``outcome`` to the metrics of these units that have none yet, and export the units' spans."""
        for key in keys:
            unit = self.assembler.close_early(key)
            if self.hold.holds(key):
                self._export_pending(key, "shutdown")
            active = self._active.pop(key, None)
            self._shared.pop(key, None)
            self.account_quotas.leave(key)
            decider = self._deciders.of(key).root if active is None else active.decider
            facts = SamplingContext(key) if unit is None else unit.facts()
            if unit is not None:
                self.ledger.record_compared_value(unit)
                self.sample_observers.report_missing(facts, unit, outcome)
            self._export_unscored(key, decider.settle_lost(facts, outcome), now_ns)

    def _finish(self, key: UnitKey, active: ActiveUnit, result: JobResult) -> None:
        """Export a unit's spans, if this process holds them, because all its scores have arrived."""
        del self._active[key]
        self.account_quotas.leave(key)
        active.unscored |= active.decider.settle_rest(key, result.rest, result.reason)
        active.decider.notes.record_sample(active.sample_attributes)
        if self.hold.holds(key):
            sample_attributes = active.sample_attributes if self.hold.attach else {}
            self.hold.release(key, {**self._on_span(active.scores, active.unscored), **sample_attributes})

    def _decider_of(self, unit: Unit) -> UnitDecider:
        """Return the decider of a unit. Another process may send inner units of an entry that this configuration lacks."""
        if unit.inner is None:
            return self._deciders.of(unit.key).root
        at_start, now = self._deciders.of(unit.key).inner, self._deciders.now
        decider = at_start.get(unit.inner) or now.inner.get(unit.inner)
        if decider is None:
            decider = UnitDecider.of_inner((), self.sampler)
            # a new mapping, because another thread may be reading the present one
            self._deciders.now = now._replace(inner={**now.inner, unit.inner: decider})
        return decider

    def _export_pending(self, key: UnitKey, reason: str) -> None:
        """Export a unit's spans with the scores that have arrived. Later scores are not on its span."""
        active = self._active[key]
        active.is_exported = True
        attributes = {**unit_attributes(active.scores, pending=True), **active.sample_attributes}
        self.hold.release(key, {**attributes, semconv.PENDING_REASON: reason}, reason)

    def _without_shared(self, unit: Unit) -> Unit:
        """Return a unit without the metrics that another scorer of the process scores on it."""
        shared = self._shared.pop(unit.key, None)
        if shared is None:
            return unit
        metrics = self._deciders.of(unit.key).root.metrics
        return replace(unit, shared=shared, eligible_metrics=frozenset(metrics) - shared)

    def _enter(self, key: UnitKey, metrics: Collection[str] | None) -> None:
        """Make a unit eligible for these metrics; None = every metric that was in force when it began."""
        deciders = self._deciders.of(key)
        if metrics is None and deciders is not self._deciders.now:
            metrics = deciders.root.metrics
        self.ledger.enter(key, metrics)

    def _close(self, unit: Unit, now_ns: int, lost: Outcome = Outcome.INCOMPLETE, reason: str | None = None) -> None:
        """Decide on an ended unit, and then on its inner units."""
        inside = self._open_inner(unit) if self.inner else ()
        for each, facts_around in ((unit, None), *inside):
            decider = self._decider_of(each)
            try:
                facts = each.facts() if facts_around is None else facts_around
                decider.ledger.record_compared_value(each)
                if each.complete:
                    first = decider.decide_first(facts, each.eligible_metrics)
                    self._apply_decisions(each, facts, first, None, now_ns)
                else:
                    self.sample_observers.report_missing(facts, each, lost)
                    self._export_unscored(each.key, decider.settle_lost(facts, lost, reason), now_ns)
            except Exception as error:  # noqa: BLE001  (the other units of this tick go on, and this one ends)
                log_internal_error("decide on a unit", error)
                self._export_unscored(each.key, decider.settle_rest(each.key, Outcome.INCOMPLETE), now_ns)

    def _open_inner(self, unit: Unit) -> Sequence[tuple[Unit, SamplingContext]]:
        """Make the inner units of a recorded unit eligible, each with the facts that decide on it.

        The metrics, judges and rates of an inner unit are those of the unit around it.
        """
        if unit.eligible_metrics is not None and not unit.shared:  # another process decides on its inner units, too
            return ()
        deciders = self._deciders.of(unit.key)
        parts = [part for part in find_inner_units(unit, deciders.entries) if part.key not in self._active]
        self.account_quotas.record_inner(len(parts))
        facts = unit.facts() if parts else None
        if facts is None or not deciders.root.sampler.records_root(facts):
            return ()
        inside = {part.key: part.inner.attributes for part in parts if part.inner is not None}
        self.hold.separate_inner(unit.key, inside)
        for part in parts:
            self._deciders.join(part.key, unit.key)
            self.join_inner(part.key, unit.key)
            self._decider_of(part).ledger.enter(part.key, part.eligible_metrics)
        return [(part, inner_facts(part, facts)) for part in parts]

    def _apply_decisions(
        self,
        unit: Unit,
        facts: SamplingContext,
        decisions: Mapping[str, Decision],
        samples: Samples | None,
        now_ns: int,
    ) -> None:
        """Reserve a place in the queue and hold the spans of a unit that some metric samples; end the other units."""
        key, decider = unit.key, self._decider_of(unit)
        eligible = decider.metrics if unit.eligible_metrics is None else unit.eligible_metrics
        all_decided = len(decisions) == len(eligible)
        if all_decided and not any(decision.take for decision in decisions.values()):
            self._to_dispatch += self.sample_observers.request(unit, facts, samples, monotonic())
            self._export_unscored(key, decider.settle_rest(key, Outcome.NOT_SAMPLED), now_ns, self._rules(decisions))
            return
        chosen, unscored = self._settle_unsampled(key, decisions, decider)
        size_bytes = size_bytes_of(unit, samples)
        if not chosen or not self.queue.reserve(size_bytes):
            if not all_decided:  # the scores that rules read will not arrive
                unscored |= self._settle_unsampled(key, decider.decide_rest(facts, {}), decider)[1]
            self.sample_observers.report_missing(facts, unit, Outcome.QUEUE_FULL)
            unscored |= decider.settle_rest(key, Outcome.QUEUE_FULL, self.rejection_reason())
            self._export_unscored(key, unscored, now_ns)
            return
        decider.notes.record_sampled_unit(unit.kind, chosen)
        if samples is None and unit.inner is None:
            self.recent_spans.keep(unit, size_bytes)
        undecided = None if all_decided else facts
        self._active[key] = ActiveUnit(decider, unscored, undecided)
        self.account_quotas.enter(key, chosen, size_bytes)
        now_s = monotonic()
        held_s = self.hold.park(unit, now_ns)
        while (oldest := self.hold.oldest_over_bound()) is not None:
            self._export_pending(oldest, "overflow")
        wanted = self.sample_observers.begin_making(facts)
        self._to_dispatch.append(
            SampledUnit(unit, chosen, samples, size_bytes, now_s, now_s + held_s, undecided, wanted)
        )

    def _decide_rest(self, key: UnitKey, active: ActiveUnit, facts: SamplingContext) -> None:
        """Decide on the other metrics when each condition metric has a score or another outcome."""
        decider, scores = active.decider, {score.metric: score.quality for score in active.scores}
        if not decider.condition_metrics <= scores.keys() | active.unscored.keys():
            return
        active.undecided, chosen = None, dict[str, Decision]()
        try:
            chosen, unscored = self._settle_unsampled(key, decider.decide_rest(facts, scores), decider)
        except Exception as error:  # noqa: BLE001  (otherwise its job would wait forever)
            log_internal_error("decide on a unit", error)
            unscored = decider.settle_rest(key, Outcome.INCOMPLETE)
        active.unscored |= unscored
        self.account_quotas.join(key, chosen)
        self._rest_to_dispatch[key] = chosen

    def _settle_unsampled(
        self, key: UnitKey, decisions: Mapping[str, Decision], decider: UnitDecider
    ) -> tuple[dict[str, Decision], dict[str, Outcome]]:
        """Settle the metrics that do not sample a unit, or have no room in their quota.

        Return the decisions of the other metrics, and the outcomes of the settled metrics.
        """
        sampled = {name: decision for name, decision in decisions.items() if decision.take}
        unscored = dict.fromkeys((name for name in decisions if name not in sampled), Outcome.NOT_SAMPLED)
        unscored |= dict.fromkeys(sampled.keys() - self.account_quotas.with_room(sampled), Outcome.QUEUE_FULL)
        decider.settle(key, unscored)
        return {name: decision for name, decision in sampled.items() if name not in unscored}, unscored

    def _export_unscored(
        self, key: UnitKey, outcomes: Mapping[str, Outcome], now_ns: int, rules: Mapping[str, str] = _NO_RULE
    ) -> None:
        self.hold.export_unscored(key, {**self._on_span([], outcomes), **rules}, now_ns)

    def _on_span(self, scores: Sequence[Score], unscored: Mapping[str, Outcome]) -> Mapping[str, Any]:
        """Return the attributes of a unit's span; empty if scores are not added to it."""
        return unit_attributes(scores, unscored) if self.hold.attach else {}

    def _unsampled_attributes(self, metrics: Sequence[str]) -> Mapping[str, Any]:
        return self._on_span([], dict.fromkeys(metrics, Outcome.NOT_SAMPLED))

    def _rules(self, decisions: Mapping[str, Decision]) -> Mapping[str, str]:
        """Return the attribute with the rules that matched a unit that no metric sampled; empty if no rule matched."""
        names = {decision.rule for decision in decisions.values() if not decision.take} - {BASE}
        return {semconv.SAMPLING_RULE: ",".join(sorted(names))} if names and self.hold.attach else _NO_RULE


@dataclass(slots=True)
class ActiveUnit:
    """A dispatched unit that lacks scores.

    Attributes:
        decider: decider of the unit.
        unscored: metric → outcome, for metrics that did not sample the unit or had no room in their quota.
        undecided: facts of the unit while other metrics wait for the scores of condition metrics; otherwise None.
        scores: scores that have arrived.
        sample_attributes: attributes about the source of the sample; empty before the first score.
        is_exported: whether the root was exported, as ``pending``, before all scores had arrived.
        arrived_again: whether the spool has a second job of the unit.
    """

    decider: UnitDecider
    unscored: dict[str, Outcome]
    undecided: SamplingContext | None = None
    scores: list[Score] = field(default_factory=list)
    sample_attributes: Mapping[str, Any] = field(default_factory=dict)
    is_exported: bool = False
    arrived_again: bool = False

    def use_second_job(self, rest: Outcome) -> bool:
        """Return whether the spool's second job scores the unit, because the first job ended unscored. True once at most."""
        continues = self.arrived_again and rest in _NOT_BEGUN
        self.arrived_again = self.arrived_again and not continues
        return continues


class _Deciders(NamedTuple):
    """The deciders of one configuration.

    Attributes:
        entries: entry of ``units.also`` → names of the metrics that score its units, in the order of the configuration.
        inner: entry → decider of its units, in the order of the configuration; then entries that only other processes have.
    """

    root: UnitDecider
    entries: Mapping[InnerGroup, Sequence[str]]
    inner: Mapping[InnerGroup, UnitDecider]


def find_inner_units(unit: Unit, entries: Mapping[InnerGroup, Sequence[str]]) -> list[Unit]:
    """Return the inner units of a closed unit, in the order of their starts; empty if its root is unknown.

    ``entries`` maps each entry of ``units.also`` to the metrics that score its units. If several entries match a span, the
    first applies. The spans of an inner unit are its span and all spans below it, so inner units may contain each other.
    """
    root = unit.root
    matches = [] if root is None else [(span, _group_of(span, entries)) for span in unit.spans if span is not root]
    inner_roots = [(span, group) for span, group in matches if group is not None]
    if not inner_roots:
        return []
    position = {id(span): at for at, span in enumerate(unit.spans)}
    below = defaultdict[int | None, list[SpanData]](list)
    for span in unit.spans:
        below[span.parent_id].append(span)
    return [
        Unit(
            UnitKey(span.trace_id, span.span_id),
            tuple(sorted(_subtree(span, below), key=lambda each: position[id(each)])),
            complete=unit.complete,
            # Another scorer of this process scores the shared metrics.
            eligible_metrics=frozenset(entries[group]) - unit.shared,
            inner=group,
        )
        for span, group in inner_roots
    ]


def _group_of(span: SpanData, groups: Iterable[InnerGroup]) -> InnerGroup | None:
    operation = str(span.operation)
    for group in groups:
        if operation in _OPERATIONS[group.kind] and group.name in (None, _name_of(span, group.kind)):
            return group
    return None


def _name_of(span: SpanData, kind: InnerKind) -> str:
    name = span.attributes.get(_NAMES[kind]) if kind in _NAMES else None
    return name if isinstance(name, str) and name else span.name.removeprefix(f"{span.operation} ")


def _subtree(top: SpanData, below: Mapping[int | None, Sequence[SpanData]]) -> Iterator[SpanData]:
    """Yield a span and all spans below it, each once; a loop of parents ends."""
    seen, left = {top.span_id}, [top]
    while left:
        span = left.pop()
        yield span
        for child in below.get(span.span_id, ()):
            if child.span_id not in seen:
                seen.add(child.span_id)
                left.append(child)


def inner_facts(inner: Unit, around: SamplingContext) -> SamplingContext:
    """Return the facts that decide on an inner unit: those of the unit around it, with the inner unit's ids."""
    span = inner.root
    return around._replace(
        key=inner.key,
        sampled_by=around.sampled_by or around.key,
        conversation_id="",  # the turn of a conversation is the unit around it
        decided=None if span is None else span.decided,
        inner=inner.inner,
    )

"""SpanBuffer: the spans of a unit wait here and leave with its scores; late spans make a revision of the unit."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from time import monotonic
from typing import Any

from spanscore.core.event_queue import yield_gil
from spanscore.core.job import Decision, Job, JobResult, SampledUnit
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, Unit, UnitKey
from spanscore.pipeline.assembly import split
from spanscore.pipeline.ledger import Ledger, ScoreBatch, has_span
from spanscore.pipeline.sizes import size_bytes_of
from spanscore.protocols import PendingSpan, Queue, Sampler, Sink

__all__ = ["RELEASE_REASONS", "ExportPace", "HeldRoots", "Revisions", "SpanBuffer"]

# --- span buffer ----------------------------------------------------------------------------------------------------

# The buffer of the hold: spans of a unit that may be scored wait here and leave together with the scores.
#
# Bounded in units, spans, bytes and time; what leaves, leaves at a pace: 5,000 spans ended at once into a default batch
# processor behind a 50 ms exporter lost half of them, and 512 per 100 ms blindly still lost a third behind a slower one. So
# after each 512 spans the next batch goes only when the provider's ``force_flush`` has returned, or after two seconds.

RELEASE_REASONS = ("done", "deadline", "overflow", "shutdown")
"""Why a unit leaves."""

_SECOND_NS = 1_000_000_000


@dataclass(eq=False, repr=False)
class ExportPace:
    """Says how many spans may leave now, so that the batch processor behind never overflows.

    Attributes:
        flush: begins to export what the provider holds, without blocking.
        on_flushed: called from another thread when a flush is done, to wake the span thread.
        batch: spans between two flushes; the batch processor's own export size.
        patience_ns: how long a flush is waited for; also the time after which a slowly filled batch needs none.
    """

    flush: Callable[[], Future[bool]]
    _: KW_ONLY
    on_flushed: Callable[[], None] = lambda: None
    batch: int = 512
    patience_ns: int = 2 * _SECOND_NS

    def __post_init__(self) -> None:
        self._left = self.batch
        self._began_ns = 0
        self._flushing: Future[bool] | None = None
        self._flushing_until_ns = 0

    def allows(self, now_ns: int) -> int:
        """Return how many spans may leave now."""
        if self._flushing is not None:
            if not self._flushing.done() and now_ns < self._flushing_until_ns:
                return 0
            self._flushing, self._left, self._began_ns = None, self.batch, now_ns
        if now_ns - self._began_ns >= self.patience_ns:
            self._left, self._began_ns = self.batch, now_ns
        return self._left

    def spend(self, spans: int, now_ns: int) -> None:
        """Say that spans have left; begins a flush when the batch is used up."""
        self._left -= spans
        if self._left > 0 or self._flushing is not None:
            return
        self._flushing = self.flush()
        self._flushing_until_ns = now_ns + self.patience_ns
        self._flushing.add_done_callback(lambda _: self.on_flushed())

    def wait_until_ns(self) -> int | None:
        """Return when waiting for the running flush ends, None when none runs."""
        return None if self._flushing is None else self._flushing_until_ns


@dataclass(slots=True)
class _Room:
    since_ns: int
    children: list[PendingSpan] = field(default_factory=list)
    root: PendingSpan | None = None
    deadline_ns: int = 0


@dataclass(eq=False, repr=False)
class SpanBuffer:
    """Keeps the endings of units that may be scored. Owned by the span thread.

    Attributes:
        pace: of what leaves.
        max_units: parked units; past it the oldest is to be released, likewise past the others.
        max_spans: spans kept, of parked and running units; and as many that wait for the pace, then they leave without.
        max_bytes: bytes kept, likewise.
        early_ns: a unit that runs longer lets its finished children go.
        released: reason → units that left (``RELEASE_REASONS``).
        lost: spans that left after the application had shut its provider down.
        provider_closed: set when that happens.
    """

    pace: ExportPace
    _: KW_ONLY
    max_units: int = 2_000
    max_spans: int = 20_000
    max_bytes: int = 64_000_000
    early_ns: int = 5 * _SECOND_NS

    def __post_init__(self) -> None:
        self.provider_closed = False
        self.reset()

    def reset(self) -> None:
        """Forget everything without pending it: in a forked child, where the spans are the parent's."""
        self._running: OrderedDict[UnitKey, _Room] = OrderedDict()
        self._parked: OrderedDict[UnitKey, _Room] = OrderedDict()
        self._leaving: deque[tuple[PendingSpan, Mapping[str, Any] | None, int]] = deque()
        self._spans = 0
        self._bytes = 0
        self._leaving_spans = 0
        self._leaving_bytes = 0
        self.released: Counter[str] = Counter()
        self.queued = 0
        self.ended = 0
        self.lost = 0

    def __len__(self) -> int:
        """Units parked."""
        return len(self._parked)

    def hold_child(self, key: UnitKey, child: PendingSpan, now_ns: int) -> None:
        """Keep a finished child; where there is no room for it, or its unit runs too long, it leaves at once."""
        room = self._running.get(key)
        if room is None:
            room = self._running[key] = _Room(since_ns=now_ns)
        if now_ns - room.since_ns >= self.early_ns or not self._has_space(child):
            self.enqueue(child)
            return
        room.children.append(child)
        self._spans += 1
        self._bytes += child.size

    def hold_root(self, key: UnitKey, root: PendingSpan, deadline_ns: int) -> None:
        """Keep an ended root with its children until ``release``; its deadline, and the bounds, only tell when that is due."""
        room = self._running.pop(key, None) or _Room(since_ns=0)
        room.root, room.deadline_ns = root, deadline_ns
        self._spans += 1
        self._bytes += root.size
        self._parked[key] = room

    def holds(self, key: UnitKey) -> bool:
        """Whether a unit is parked."""
        return key in self._parked

    def release(self, key: UnitKey, attributes: Mapping[str, Any], reason: str = "done") -> bool:
        """Let a unit leave with these attributes on its root. False: it has left already."""
        room = self._parked.pop(key, None)
        if room is None:
            return False
        self.released[reason] += 1
        self._empty(room)
        if room.root is not None:
            self._spans -= 1
            self._bytes -= room.root.size
            self.enqueue(room.root, attributes=attributes)
        return True

    def enqueue(self, pending: PendingSpan, spans: int = 1, *, attributes: Mapping[str, Any] | None = None) -> None:
        """Queue a span, or something else that makes spans (evaluation spans), behind the same pace."""
        self._leaving.append((pending, attributes, spans))
        self._leaving_spans += spans
        self._leaving_bytes += pending.size
        self.queued += 1

    def parked(self) -> list[UnitKey]:
        """Return the parked units, oldest first."""
        return list(self._parked)

    def overdue(self, now_ns: int) -> list[UnitKey]:
        """Return the parked units whose deadline has passed: they are to be released."""
        return [key for key, room in self._parked.items() if room.deadline_ns <= now_ns]

    def superfluous(self) -> UnitKey | None:
        """Return the unit that is to be released as there is no room for it, the oldest; None where all have room."""
        is_full = len(self._parked) > self.max_units or self._spans > self.max_spans or self._bytes > self.max_bytes
        return next(iter(self._parked), None) if is_full else None

    def release_early(self, now_ns: int) -> None:
        """Let the finished children of units that run long leave."""
        for room in self._running.values():
            if now_ns - room.since_ns < self.early_ns:
                break
            self._empty(room)

    def release_running(self) -> None:
        """Let the children of running units leave, as they are."""
        for room in self._running.values():
            self._empty(room)
        self._running.clear()

    def flush_ready(self, now_ns: int, *, unpaced: bool = False) -> int:
        """End leaving spans as the pace allows (all of them when ``unpaced``); return how many left."""
        left = 0
        while self._leaving and (unpaced or self._is_crowded() or self.pace.allows(now_ns) > 0):
            pending, attributes, spans = self._leaving.popleft()
            self._leaving_spans -= spans
            self._leaving_bytes -= pending.size
            pending.end(attributes)
            self.ended += 1
            self.lost += spans if self.provider_closed else 0
            left += spans
            self.pace.spend(spans, now_ns)
            yield_gil()
        return left

    def next_due_ns(self) -> int | None:
        """Return when something has to be done here without a further event."""
        times = [room.deadline_ns for room in self._parked.values()]
        oldest = next(iter(self._running.values()), None)
        if oldest is not None and oldest.children:
            times.append(oldest.since_ns + self.early_ns)
        if self._leaving:
            times.append(self.pace.wait_until_ns() or 0)
        return min(times, default=None)

    def drop(self, key: UnitKey) -> None:
        """Forget a unit that ended without being parked; its children leave as they are."""
        room = self._running.pop(key, None)
        if room is not None:
            self._empty(room)

    def _has_space(self, pending: PendingSpan) -> bool:
        return self._spans < self.max_spans and self._bytes + pending.size <= self.max_bytes

    def _is_crowded(self) -> bool:
        """Whether more is leaving than may be kept: with the backend down, pacing must not gather what the SDK would drop."""
        return self._leaving_spans > self.max_spans or self._leaving_bytes > self.max_bytes

    def _empty(self, room: _Room) -> None:
        for child in room.children:
            self._spans -= 1
            self._bytes -= child.size
            self.enqueue(child)
        room.children.clear()


# --- parking --------------------------------------------------------------------------------------------------------

# HeldRoots: the spans of units between their end and the moment in which all of a unit is out.
#
# root's end ─▶ kept ─▶ parked ─▶ released, with scores ─▶ out
#                 └─▶ turned back ─▶ out


@dataclass(eq=False, repr=False)
class HeldRoots:
    """Keeps roots until their unit is decided on, and knows which units are out. Owned by the span thread.

    Attributes:
        hold_root_ns: how long a unit that is its trace's root waits after its end; any other waits for ``hold_ns``.
        hold: where what waits for scores waits.
        attach: whether scores go onto the unit's own span, and so whether spans wait at all.
        in_flight: units whose root has ended and that are not out yet, oldest first.
        parts: topmost span → the units that its spans were found to make, until somebody takes note.
    """

    hold: SpanBuffer
    _: KW_ONLY
    attach: bool = True
    hold_root_ns: int = 10_000_000_000
    hold_ns: int = 4_000_000_000

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._roots: dict[UnitKey, PendingSpan] = {}
        self._leaving: deque[tuple[int, UnitKey]] = deque()
        self.in_flight: dict[UnitKey, None] = {}
        self.parts: dict[UnitKey, set[UnitKey]] = {}

    def ended(self, key: UnitKey) -> None:
        """Note that a unit's root has ended."""
        self.in_flight[key] = None

    def keep(self, key: UnitKey, pending: PendingSpan, now_ns: int, *, is_root: bool) -> None:
        """Keep an ended span of a unit on which is yet to be decided."""
        if is_root:
            self._roots[key] = pending
        elif self.attach:
            self.hold.hold_child(key, pending, now_ns)
        else:
            pending.end()

    def let_late_go(self, key: UnitKey, pending: PendingSpan | None, *, is_root: bool) -> None:
        """Let a span leave whose unit has closed already."""
        if pending is not None:
            self.hold.enqueue(pending)
        if is_root:
            self.leaves(key)

    def split(self, unit: Unit, now_ns: int) -> Sequence[Unit]:
        """Return the units that the spans below a topmost span make; if the topmost one is no root, its spans leave."""
        units = split(unit)
        keys = {part.key for part in units}
        if keys != {unit.key}:
            if unit.key not in keys:
                self.turn_back(unit.key, {}, now_ns)
            for key in keys:
                self.ended(key)
            self.parts[unit.key] = keys
        return units

    def park(self, unit: Unit, now_ns: int) -> float:
        """Hold the spans of a unit that was chosen; return for how many seconds, -inf where none wait."""
        pending = self._roots.pop(unit.key, None)
        if pending is None:
            return -inf
        if not self.attach:
            pending.end()
            return -inf
        is_trace_root = unit.root is not None and unit.root.parent_id is None
        hold_ns = self.hold_root_ns if is_trace_root else self.hold_ns
        self.hold.hold_root(unit.key, pending, now_ns + hold_ns)
        return hold_ns / 1e9

    def turn_back(self, key: UnitKey, attributes: Mapping[str, Any], now_ns: int) -> None:
        """Let the spans of a unit leave that nobody scores."""
        pending = self._roots.pop(key, None)
        if pending is not None:
            self.hold.hold_root(key, pending, now_ns)
            self.hold.release(key, attributes)
        else:
            self.hold.drop(key)
        self.leaves(key)

    def leaves(self, key: UnitKey) -> None:
        """Note that nothing more comes of a unit: it is out when all that is queued now has left."""
        self._leaving.append((self.hold.queued, key))

    def flush_ready(self, now_ns: int, *, unpaced: bool = False) -> None:
        """End what may leave now."""
        self.hold.flush_ready(now_ns, unpaced=unpaced)
        while self._leaving and self._leaving[0][0] <= self.hold.ended:
            self.in_flight.pop(self._leaving.popleft()[1], None)


# --- revisions ------------------------------------------------------------------------------------------------------

# Revisions: units that have been scored, and are once more, as further spans of them came.
#
# What comes of one stands beside the first scores and not among them: on evaluation spans of its own, in no sum, and in a
# ledger of its own, where each revision ends in exactly one outcome per metric.


@dataclass(eq=False, repr=False)
class Revisions:
    """Decides on revisions and settles them. Span thread.

    Metrics that are chosen by what others scored are not asked again: the dice fall as they did, and those scores are gone.

    Attributes:
        metrics: names of all.
        sampler: the same as of first revisions.
        ledger: of revisions alone.
        queue: the scorer's.
        with_room: of some metrics, returns those whose judge may be asked for one more unit.
        handover: gives chosen units to the loop.
        hold: what leaves, leaves at its pace.
        sink: one that never raises.
        clock: seconds, the loop's.
        ledger: as it was given.
    """

    metrics: Sequence[str]
    _: KW_ONLY
    sampler: Sampler
    ledger: Ledger
    queue: Queue
    with_room: Callable[[Collection[str]], Collection[str]]
    handover: Callable[[Sequence[SampledUnit]], None]
    hold: SpanBuffer
    sink: Sink
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._next: dict[UnitKey, deque[Unit]] = {}

    def take(self, unit: Unit) -> None:
        """Take in a unit whose ``revision`` is not the first; it waits while an earlier revision is being scored."""
        if self._waits(unit):
            self._next.setdefault(unit.key, deque()).append(unit)
        else:
            self._begin(unit)

    def taken_over(self, job: Job) -> None:
        """Take in a revision that another process has handed over."""
        if self.ledger.enter(_entry(job.unit), job.decisions):
            self.ledger.choose(_entry(job.unit), job.decisions)

    def settled(self, result: JobResult) -> None:
        """Take in scores of a job: count and emit them."""
        key, settle = _entry(result.unit), self.ledger.settle
        scores = [score for score in result.scores if settle(key, score.metric, score.outcome, score.source)]
        if emitted := [score for score in scores if has_span(score)]:
            batch = ScoreBatch(self.sink, result.unit, emitted)
            self.hold.enqueue(batch, batch.spans)
        if result.over:
            self.ledger.settle_all(key, result.rest)
            waiting = self._next.get(result.unit.key, deque())
            while waiting and not self._waits(waiting[0]):
                self._begin(waiting.popleft())
            if not waiting:
                self._next.pop(result.unit.key, None)

    def open_units(self) -> list[UnitKey]:
        """Return the revisions that are being scored, or wait for an earlier one."""
        return [*self.ledger.open_units(), *(_entry(unit) for waiting in self._next.values() for unit in waiting)]

    def give_up(self) -> None:
        """End all of them as ``shutdown``."""
        waiting, self._next = self._next, {}
        for key in self.ledger.open_units():
            self.ledger.settle_all(key, Outcome.SHUTDOWN)
        for _ in range(sum(map(len, waiting.values()))):
            self.ledger.record_rejected(Outcome.SHUTDOWN)

    def _waits(self, unit: Unit) -> bool:
        return any(self.ledger.is_open(_entry(unit, earlier)) for earlier in range(1, unit.revision + 1))

    def _begin(self, unit: Unit) -> None:
        key = _entry(unit)
        self.ledger.enter(key)
        if not unit.complete:
            self.ledger.settle_all(key, Outcome.INCOMPLETE)
            return
        chosen = self._choose_metrics(key, unit.facts())
        held = size_bytes_of(unit, None)
        if not chosen or not self.queue.reserve(held):
            self.ledger.settle_all(key, Outcome.QUEUE_FULL)  # of those that were chosen, if any were
            return
        now_s = self.clock()
        self.handover([SampledUnit(unit, chosen, None, held, now_s, -inf)])

    def _choose_metrics(self, key: UnitKey, facts: SamplingContext) -> Mapping[str, Decision]:
        """Return the decisions of the metrics that take a unit and have room for it; settle the others."""
        decisions = {name: self.sampler.decide(facts._replace(scores={}), name) for name in self.metrics}
        taken = {name: decision for name, decision in decisions.items() if decision.take}
        roomy = set(self.with_room(taken))
        for name in self.metrics:
            if name not in roomy:
                self.ledger.settle(key, name, Outcome.QUEUE_FULL if name in taken else Outcome.NOT_SAMPLED)
        self.ledger.choose(key, taken)
        return {name: decision for name, decision in taken.items() if name in roomy}


def _entry(unit: Unit, revision: int | None = None) -> UnitKey:
    """Return by what a revision is counted: of those that others have handed over several of a unit are scored at once."""
    return UnitKey(unit.key.trace_id, unit.key.span_id | (revision or unit.revision) << 64)

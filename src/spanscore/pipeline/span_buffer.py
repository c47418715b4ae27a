"""``SpanBuffer`` holds a unit's spans until its scores have arrived, and exports them at a bounded pace.

The *pace* is the number of spans that may be ended between two flushes of the provider. *Children* are the spans below a
unit's root. To *end* a span is to pass it to the provider, which exports it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Any

from spanscore.core.event_queue import yield_gil
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.assembly import split
from spanscore.protocols import PendingSpan

RELEASE_REASONS = ("done", "deadline", "overflow", "shutdown")
"""Reasons for the export of a unit's spans."""
_SECOND_NS = 1_000_000_000
HOLD_ROOT_S, HOLD_S = 10.0, 4.0
"""Default seconds for which a unit waits after its end: a unit with the root of its trace, and any other unit."""
_FLUSH_WAIT_NS = 2 * _SECOND_NS
"""Longest wait for a flush. If a batch takes longer to fill, it needs no flush."""


@dataclass(eq=False, repr=False)
class ExportPace:
    """Bounds the number of spans that are ended at once, so that the provider's batch processor does not drop any.

    A default batch processor with a 50 ms exporter dropped half of 5,000 spans that ended at once. With a slower exporter it
    dropped a third of 512 spans per 100 ms. So the next 512 spans are ended only after the provider's ``force_flush`` has
    returned, or after 2 s.

    Attributes:
        flush: begins to export the provider's spans, without blocking.
        on_flushed: called on another thread when a flush is done, to wake the span thread.
        batch: number of spans between two flushes: the size of the batch processor's exports.
    """

    flush: Callable[[], Future[bool]]
    _: KW_ONLY
    on_flushed: Callable[[], None] = lambda: None
    batch: int = 512

    def __post_init__(self) -> None:
        self._left = self.batch
        self._began_ns = 0
        self._flushing: Future[bool] | None = None
        self._flushing_until_ns = 0

    def allows(self, now_ns: int) -> int:
        """Return the number of spans that may be ended now."""
        if self._flushing is not None:
            if not self._flushing.done() and now_ns < self._flushing_until_ns:
                return 0
            self._flushing, self._left, self._began_ns = None, self.batch, now_ns
        if now_ns - self._began_ns >= _FLUSH_WAIT_NS:
            self._left, self._began_ns = self.batch, now_ns
        return self._left

    def spend(self, spans: int, now_ns: int) -> None:
        """Count ended spans; begin a flush when the batch is used up."""
        self._left -= spans
        if self._left > 0 or self._flushing is not None:
            return
        self._flushing = self.flush()
        self._flushing_until_ns = now_ns + _FLUSH_WAIT_NS
        self._flushing.add_done_callback(lambda _: self.on_flushed())

    def wait_until_ns(self) -> int | None:
        """Return the time at which the wait for the running flush ends; None if no flush runs."""
        return None if self._flushing is None else self._flushing_until_ns


@dataclass(slots=True)
class _HeldSpans:
    """The held spans of a unit.

    Attributes:
        since_ns: time of the first held child; 0 if the root was held first.
        children: span id and span of each held child.
        root: the held root; None while the unit runs.
        deadline_ns: time at which a parked unit must be released.
    """

    since_ns: int
    children: list[tuple[int, PendingSpan]] = field(default_factory=list)
    root: PendingSpan | None = None
    deadline_ns: int = 0


@dataclass(eq=False, repr=False)
class SpanBuffer:
    """Holds ended spans of units that may be scored, and exports them. Owned by the span thread.

        root's end ─▶ held ─┬─ sampled ─▶ parked ─▶ released, with scores ─▶ export queue ─▶ ended at the pace
                            └─ unscored ───────────────────────────────────▶ export queue ─▶ ended at the pace

    If more than ``max_units``, ``max_spans`` or ``max_bytes`` are held, the oldest parked unit must be released. If the export
    queue has more than ``max_spans`` or ``max_bytes``, its spans are ended without regard to the pace.

    Attributes:
        max_units: maximum number of parked units.
        max_spans: maximum number of held spans of parked and running units.
        max_bytes: maximum bytes of these spans.
        early_ns: run time after which a unit's ended children are exported before the unit ends.
        attach: whether scores are added to the unit's own span; if not, no span waits.
        hold_root_ns: time for which a unit waits after its end if its root is its trace's root.
        hold_ns: time for which any other unit waits after its end.
        provider_closed: whether the application has shut its provider down.
        spans: number of held spans of parked and running units.
        released: reason → exported units (``RELEASE_REASONS``).
        queued: number of entries that the export queue has had so far.
        ended: number of these entries that were ended.
        lost: number of spans that were ended after the application had shut its provider down.
        in_flight: units that have ended and are not completely exported, oldest first.
        parts: topmost span, or unit with inner units → the units in it, until ``UnitTracker.take_parts`` returns them.
    """

    pace: ExportPace
    _: KW_ONLY
    max_units: int = 2_000
    max_spans: int = 20_000
    max_bytes: int = 64_000_000
    early_ns: int = 5 * _SECOND_NS
    attach: bool = True
    hold_root_ns: int = int(HOLD_ROOT_S * _SECOND_NS)
    hold_ns: int = int(HOLD_S * _SECOND_NS)
    provider_closed: bool = False

    def __post_init__(self) -> None:
        self._roots: dict[UnitKey, PendingSpan] = {}
        self._inner_attributes: dict[UnitKey, Mapping[str, str]] = {}  # inner unit → further attributes of its span
        self._running: OrderedDict[UnitKey, _HeldSpans] = OrderedDict()
        self._parked: OrderedDict[UnitKey, _HeldSpans] = OrderedDict()
        self._export_queue: deque[tuple[PendingSpan, Mapping[str, Any] | None, int]] = deque()
        self.spans = self._bytes = self._queued_spans = self._queued_bytes = 0
        self.queued = self.ended = self.lost = 0
        self.released: Counter[str] = Counter()
        self._unit_ends: deque[tuple[int, UnitKey]] = deque()
        self.in_flight: dict[UnitKey, None] = {}
        self.parts: dict[UnitKey, set[UnitKey]] = {}

    def __len__(self) -> int:
        """Number of parked units."""
        return len(self._parked)

    def hold_child(self, key: UnitKey, child: PendingSpan, now_ns: int, span_id: int = 0) -> None:
        """Hold an ended child. It is exported immediately at a bound, or if its unit has run longer than ``early_ns``."""
        held = self._running.get(key)
        if held is None:
            held = self._running[key] = _HeldSpans(since_ns=now_ns)
        has_space = self.spans < self.max_spans and self._bytes + child.size <= self.max_bytes
        if now_ns - held.since_ns >= self.early_ns or not has_space:
            self.enqueue(child)
            return
        held.children.append((span_id, child))
        self.spans += 1
        self._bytes += child.size

    def hold_root(self, key: UnitKey, root: PendingSpan, deadline_ns: int) -> None:
        """Park an ended root with its children until ``release``, which is due at the deadline or beyond a bound."""
        held = self._running.pop(key, None) or _HeldSpans(since_ns=0)
        held.root, held.deadline_ns = root, deadline_ns
        self.spans += 1
        self._bytes += root.size
        self._parked[key] = held

    def holds(self, key: UnitKey) -> bool:
        """Whether a unit is parked, so that its spans wait for its scores."""
        return key in self._parked

    def release(self, key: UnitKey, attributes: Mapping[str, Any], reason: str = "done") -> bool:
        """Export a unit's spans, with these attributes on the root. Returns False if they were exported already."""
        held = self._parked.pop(key, None)
        if held is None:
            return False
        self.released[reason] += 1
        self._export_children(held)
        if held.root is not None:
            self.spans -= 1
            self._bytes -= held.root.size
            self.enqueue(held.root, attributes={**attributes, **self._inner_attributes.pop(key, {})})
        return True

    def enqueue(self, pending: PendingSpan, spans: int = 1, *, attributes: Mapping[str, Any] | None = None) -> None:
        """Add to the export queue a span, or an entry that makes ``spans`` spans when it is ended."""
        self._export_queue.append((pending, attributes, spans))
        self._queued_spans += spans
        self._queued_bytes += pending.size
        self.queued += 1

    def parked(self) -> list[UnitKey]:
        """Return the parked units, oldest first."""
        return list(self._parked)

    def overdue(self, now_ns: int) -> list[UnitKey]:
        """Return the parked units after their deadline; each must be released."""
        return [key for key, held in self._parked.items() if held.deadline_ns <= now_ns]

    def oldest_over_bound(self) -> UnitKey | None:
        """Return the oldest parked unit if a bound is exceeded, so that it must be released; otherwise None."""
        is_full = len(self._parked) > self.max_units or self.spans > self.max_spans or self._bytes > self.max_bytes
        return next(iter(self._parked), None) if is_full else None

    def release_early(self, now_ns: int) -> None:
        """Export the ended children of units that have run longer than ``early_ns``."""
        for held in self._running.values():
            if now_ns - held.since_ns < self.early_ns:
                break
            self._export_children(held)

    def release_running(self) -> None:
        """Export the held children of all running units."""
        for held in self._running.values():
            self._export_children(held)
        self._running.clear()

    def flush_ready(self, now_ns: int, *, unpaced: bool = False) -> None:
        """End the spans of the export queue as the pace allows; all of them if ``unpaced``."""
        while self._export_queue and (unpaced or self._is_queue_full() or self.pace.allows(now_ns) > 0):
            pending, attributes, spans = self._export_queue.popleft()
            self._queued_spans -= spans
            self._queued_bytes -= pending.size
            pending.end(attributes)
            self.ended += 1
            self.lost += spans if self.provider_closed else 0
            self.pace.spend(spans, now_ns)
            yield_gil()
        while self._unit_ends and self._unit_ends[0][0] <= self.ended:
            self.in_flight.pop(self._unit_ends.popleft()[1], None)

    def next_due_ns(self) -> int | None:
        """Return the time at which a span is due without a further event; None if no span is due at a time."""
        times = [held.deadline_ns for held in self._parked.values()]
        oldest = next((held for held in self._running.values() if held.children), None)
        if oldest is not None:
            times.append(oldest.since_ns + self.early_ns)
        if self._export_queue:
            times.append(self.pace.wait_until_ns() or 0)
        return min(times, default=None)

    def record_root_end(self, key: UnitKey) -> None:
        """Record that a unit's root has ended."""
        self.in_flight[key] = None

    def hold_span(self, key: UnitKey, span_id: int, pending: PendingSpan, now_ns: int) -> None:
        """Hold an ended span of a unit that has no decision yet."""
        if span_id == key.span_id:
            self._roots[key] = pending
        elif self.attach:
            self.hold_child(key, pending, now_ns, span_id)
        else:
            pending.end()

    def split(self, unit: Unit, now_ns: int) -> Sequence[Unit]:
        """Return the units below a topmost span. If the topmost span is not the root of one, its held spans are exported."""
        units = split(unit)
        keys = {part.key for part in units}
        if keys != {unit.key}:
            if unit.key not in keys:
                self.export_unscored(unit.key, {}, now_ns)
            for key in keys:
                self.record_root_end(key)
            self.parts[unit.key] = keys
        return units

    def separate_inner(self, key: UnitKey, inside: Mapping[UnitKey, Mapping[str, str]]) -> None:
        """Hold the spans of inner units as roots of their own, instead of as children of the unit around them.

        ``inside`` maps each inner unit to attributes that its span gets in addition to those of its scores.
        """
        held, span_ids = self._running.get(key) or _HeldSpans(since_ns=0), {inner.span_id for inner in inside}
        roots = {span_id: child for span_id, child in held.children if span_id in span_ids}  # without exported children
        held.children = [(span_id, child) for span_id, child in held.children if roots.get(span_id) is not child]
        self.spans -= len(roots)
        self._bytes -= sum(child.size for child in roots.values())
        for keys in (self.parts.setdefault(key, {key}), *self.parts.values()):
            if key in keys:
                keys.update(inside)  # a flush that waits for the unit also waits for them
        for inner, attributes in inside.items():
            self.record_root_end(inner)
            if inner.span_id in roots:
                self._roots[inner], self._inner_attributes[inner] = roots[inner.span_id], attributes

    def park(self, unit: Unit, now_ns: int) -> float:
        """Park the spans of a sampled unit; return the seconds for which they wait at most, -inf if no span waits."""
        pending = self._roots.pop(unit.key, None)
        if pending is None:
            return -inf
        if not self.attach:
            pending.end()
            return -inf
        is_trace_root = unit.root is not None and unit.root.parent_id is None
        hold_ns = self.hold_root_ns if is_trace_root else self.hold_ns
        self.hold_root(unit.key, pending, now_ns + hold_ns)
        return hold_ns / 1e9

    def export_unscored(self, key: UnitKey, attributes: Mapping[str, Any], now_ns: int) -> None:
        """Export the spans of an unscored unit."""
        pending = self._roots.pop(key, None)
        if pending is not None:
            self.hold_root(key, pending, now_ns)
            self.release(key, attributes)
        elif (held := self._running.pop(key, None)) is not None:
            self._export_children(held)
        self.end_unit(key)

    def end_unit(self, key: UnitKey) -> None:
        """Remove a unit from ``in_flight`` when all spans that are queued now have been ended."""
        self._unit_ends.append((self.queued, key))

    def _is_queue_full(self) -> bool:
        """Whether the export queue exceeds a bound. While the backend is down, it must not grow without limit."""
        return self._queued_spans > self.max_spans or self._queued_bytes > self.max_bytes

    def _export_children(self, held: _HeldSpans) -> None:
        for _, child in held.children:
            self.spans -= 1
            self._bytes -= child.size
            self.enqueue(child)
        held.children.clear()

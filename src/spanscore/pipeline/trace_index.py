"""The index of a ``TraceTable``: open traces with their units and spans, and closed units. ``traces.py`` defines the terms."""

from __future__ import annotations

from bisect import bisect
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from math import inf
from typing import Any, Final, Literal, NamedTuple

from spanscore import semconv
from spanscore.core.codecs.otlp_request import Origin, WireSpan, times_of
from spanscore.core.codecs.otlp_scan import TIMES_SIZE
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.pipeline.decisions import drop_oldest

_BITS: Final = (1 << 60) - 1
"""Bits of a stored hash. An int of 60 bits takes 32 bytes of memory, an int of 64 bits takes 48."""
_NONE: Final = -1


class ClosedKeys:
    """Remembers closed units by trace and root, 110 to 160 bytes each.

    The first unit of a trace has the entry hash of the trace → hash of the root. Each later root of the trace has an entry of
    its own. Python's hash of bytes is keyed per process: ids cannot be made to collide, and collide by chance once in 10¹²
    look-ups.

    Args:
        most: minimum number of remembered entries; the maximum is an eighth more, and the oldest are forgotten.
    """

    def __init__(self, most: int) -> None:
        self._min_entries = most
        self._roots: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, trace_id: bytes, root_id: bytes) -> None:
        """Remember a unit."""
        self.add_all([(trace_id, root_id)])

    def add_all(self, ids: Iterable[tuple[bytes, bytes]]) -> None:
        """Remember units, each by its trace and its root."""
        roots = self._roots
        for trace_id, root_id in ids:
            trace, root = hash(trace_id) & _BITS, hash(root_id) & _BITS
            before = roots.pop(trace, None)
            if before is not None and before != root:
                roots[hash(trace_id + root_id) & _BITS] = 0
                root = before
            roots[trace] = root
        drop_oldest(roots, self._min_entries)

    def discard(self, trace_id: bytes, root_id: bytes) -> None:
        """Forget a unit; its trace stays remembered."""
        roots, trace = self._roots, hash(trace_id) & _BITS
        if roots.get(trace) == hash(root_id) & _BITS:
            roots[trace] = _NONE
        else:
            roots.pop(hash(trace_id + root_id) & _BITS, None)

    def has_trace(self, trace_id: bytes) -> bool:
        """Whether the trace is remembered."""
        return hash(trace_id) & _BITS in self._roots

    def has(self, trace_id: bytes, root_id: bytes) -> bool:
        """Whether that unit is remembered."""
        roots = self._roots
        root = roots.get(hash(trace_id) & _BITS)
        if root is None:
            return False
        return root == hash(root_id) & _BITS or hash(trace_id + root_id) & _BITS in roots


SPAN_BYTES: Final = 400
"""Bytes of memory that a waiting span takes in addition to its own bytes: 300 to 410 were measured. A trace takes 650 more,
which ``Bounds.traces`` bounds.
"""
_MAX_IDS_WITHOUT_UNIT: Final = 10_000
"""Maximum number of ids of one trace that are remembered only for their children; beyond it the older half is forgotten."""


Links = dict[bytes, bytes]
"""Span id → its parent's id."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of ``config.units.Units``, times in nanoseconds.

    Attributes:
        quiet_ns: time without a span after which a unit with a root is closed.
        orphan_wait_ns: time without a span of a trace after which its spans no longer wait for their parents.
        max_age_ns: age at which a unit is closed as incomplete.
        max_spans: number of claimed spans above which a unit is closed as incomplete.
        max_bytes: bytes above which a unit is closed as incomplete.
        traces: number of open traces above which the receiver refuses requests. ``TraceTable`` keeps at most as many idle
            traces, and ten times as many ids.
        bytes: bytes of open units and of waiting spans above which the receiver refuses requests. ``TraceTable`` keeps at most
            a quarter of it for closed units, and as much, or ``max_bytes`` if that is more, for waiting spans of one trace.
        late: whether late spans are only counted, or open their unit again as the next revision.
    """

    quiet_ns: int = 2_000_000_000
    orphan_wait_ns: int = 60_000_000_000
    max_age_ns: int = 3_600_000_000_000
    max_spans: int = 2_000
    max_bytes: int = 16_000_000
    traces: int = 100_000
    bytes: int = 512_000_000
    late: Literal["count", "rescore"] = "count"


class ClosedUnit(NamedTuple):
    """A unit that has been closed.

    Attributes:
        root: topmost span of the unit.
        spans: claimed spans of the unit, root included, in the order of arrival; empty if it is not followed.
        outcome: None if the unit is whole; INCOMPLETE because of age, spans, bytes, a shutdown or a late root; NOT_SAMPLED if
            it is not followed.
        revision: number of its earlier closes.
        bytes: bytes of its spans, counted as in ``TraceTable.bytes``.
        unread: ids of its unclaimed spans → their parents' ids; empty if it is not followed.
        has_late_root: whether its root arrived after its other spans had been dropped.
    """

    root: WireSpan
    spans: Sequence[WireSpan]
    outcome: Outcome | None
    revision: int
    bytes: int
    unread: Links
    has_late_root: bool = False

    @property
    def reason(self) -> str | None:
        """``late_root`` if the unit is incomplete because its root was late; otherwise None."""
        return "late_root" if self.has_late_root and self.outcome is Outcome.INCOMPLETE else None

    @property
    def key(self) -> UnitKey:
        """Key of the unit in all other modules; computed at each access, because most units need no key."""
        return unit_key(self.root)


def unit_key(root: WireSpan) -> UnitKey:
    """Return the key that all other modules use for the unit of a root."""
    return UnitKey(int.from_bytes(root[0], "big"), int.from_bytes(root[1], "big"))


NO_SPANS: Final[dict[int, WireSpan]] = {}
"""The spans of each unit that is not followed: one dict for all of them."""
NO_LINKS: Final[Links] = {}
"""The unclaimed spans of each unit that is not followed: one dict for all of them."""


class GatheredUnit:
    """A unit from the arrival of its root until it is forgotten.

    Attributes:
        root: topmost span of the unit.
        followed: whether it may be scored; otherwise only its root and the ids of its spans are kept.
        revision: number of its earlier closes.
        spans: arrival → claimed span; empty if the unit is not followed.
        unread: ids of unclaimed spans → their parents' ids; empty if the unit is not followed.
        count: number of claimed spans, kept or not.
        bytes: bytes of the kept spans.
        ids: number of unclaimed spans.
        since_ns: arrival of its first span; for a unit that was opened again, the table's time at that moment.
        last_ns: the table's time at its latest span, claimed or not.
        has_late_root: whether its root arrived after its other spans had been dropped.
        closed: whether it was closed, so that ``TraceTable.due`` returns it or has returned it.
        kept: whether it is closed and its spans are kept for a next revision.
        end_ns: latest end of the root and of claimed spans that arrived after their parent, ns since the epoch; 0 if unknown.
    """

    __slots__ = (
        "bytes", "closed", "count", "end_ns", "followed", "has_late_root", "ids", "kept", "last_ns", "revision", "root",
        "since_ns", "spans", "trace", "unread",
    )  # fmt: skip

    def __init__(self, trace: OpenTrace, root: WireSpan, since_ns: int, last_ns: int, followed: bool) -> None:
        self.trace = trace
        self.root = root
        self.followed = followed
        self.spans: dict[int, WireSpan] = {} if followed else NO_SPANS
        self.unread: Links = {} if followed else NO_LINKS
        self.count = self.bytes = self.ids = self.revision = 0
        self.since_ns = since_ns
        self.last_ns = last_ns
        self.has_late_root = self.closed = self.kept = False
        times = times_of(root)
        self.end_ns = 0 if times is None else times[1]

    def add(self, span: WireSpan, arrival: int) -> int:
        """Add a claimed span; return the number of its kept bytes."""
        self.count += 1
        if not self.followed and self.root is not span:
            return 0
        size = len(span[4]) + SPAN_BYTES
        self.bytes += size
        if self.followed:
            self.spans[arrival] = span
        return size

    def is_too_large(self, bounds: Bounds) -> bool:
        """Whether it has too many spans, or bytes."""
        return self.count > bounds.max_spans or self.bytes > bounds.max_bytes


class OpenTrace:
    """The spans of one trace, by their ids.

    Attributes:
        nodes: span id → unit of the span; None for an unclaimed span without a claimed span above it; the arrival in ns, unique
            in a table, for a span that waits for its parent.
        waiting: parent id → spans that wait for it: claimed spans, and ids of unclaimed spans.
        bytes: bytes of the claimed spans in ``waiting``.
        kept: number of closed units with kept spans.
        ids_without_unit: number of ids of unclaimed and of late spans without a unit.
        closed_ids: approximate number of ids of closed units.
        forgot_ids: whether ids of closed units were forgotten, so that further spans may belong to these units.
        has_missing_parents: whether the wait for a parent ended before the parent arrived, so that it may still arrive.
        first_close_ns: latest arrival in the table when its first unit was closed: later spans without a parent may belong to
            that unit. Infinity if no unit was closed; -1 if one was closed before the trace was opened.
        last_ns: the table's time at its latest span.
        units: number of open units.
        idle: whether it has no open unit, and no claimed span waits.
        check_ns: time of the next search for spans that have waited too long.
    """

    __slots__ = (
        "bytes", "check_ns", "closed_ids", "first_close_ns", "forgot_ids", "has_missing_parents", "id", "idle",
        "ids_without_unit", "kept", "last_ns", "nodes", "units", "waiting",
    )  # fmt: skip

    def __init__(self, trace_id: bytes, now_ns: int, check_ns: int) -> None:
        self.id = trace_id
        self.nodes: dict[bytes, Node] = {}
        self.waiting: dict[bytes, list[WireSpan | bytes]] = {}
        self.first_close_ns: float = inf
        self.last_ns = now_ns
        self.check_ns = check_ns
        self.idle = self.forgot_ids = self.has_missing_parents = False
        self.units = self.bytes = self.kept = self.ids_without_unit = self.closed_ids = 0

    def arrival(self, entry: WireSpan | bytes) -> int:
        """Return the arrival of a waiting span."""
        return self.nodes[entry if entry.__class__ is bytes else entry[1]]  # type: ignore[return-value, index]

    def pop_without_parent(self, until_ns: int | None) -> Iterator[tuple[bytes, list[WireSpan | bytes]]]:
        """Remove and yield, by parent id, the spans whose parent has not arrived: those up to an arrival, or all (None)."""
        for parent_id in [parent_id for parent_id in self.waiting if parent_id not in self.nodes]:
            group = self.waiting.pop(parent_id, [])
            number = len(group) if until_ns is None else bisect([*map(self.arrival, group)], until_ns)
            if number < len(group):
                self.waiting[parent_id] = group[number:]
            if number:
                yield parent_id, group[:number]

    def forget_closed(self) -> None:
        """Forget the ids of closed units."""
        self.forgot_ids = True
        self.nodes = {
            span_id: node
            for span_id, node in self.nodes.items()
            if node.__class__ is not GatheredUnit or not node.closed or node.kept
        }
        self.closed_ids = 0

    def forget_ids_without_unit(self) -> int:
        """Forget the older half of the ids without a unit, if they are too many; return their number."""
        if self.ids_without_unit <= _MAX_IDS_WITHOUT_UNIT:
            return 0
        waiting = {entry for entry in chain.from_iterable(self.waiting.values()) if entry.__class__ is bytes}
        no_unit = (None, ORPHANED, FORGOTTEN)
        ids = [span_id for span_id, node in self.nodes.items() if node in no_unit or span_id in waiting]
        old = set(ids[: len(ids) // 2])
        for parent_id, group in [*self.waiting.items()]:
            self.waiting[parent_id] = [entry for entry in group if entry not in old]
            if not self.waiting[parent_id]:
                del self.waiting[parent_id]
        for span_id in old:
            del self.nodes[span_id]
        self.ids_without_unit -= len(old)
        return len(old)


Node = GatheredUnit | int | None


def _make_tombstone() -> GatheredUnit:
    """Return a closed unit without spans, which represents forgotten units."""
    nothing = WireSpan(b"", b"", b"", False, b"", Origin(b"", b"", ""))
    unit = GatheredUnit(OpenTrace(b"", 0, 0), nothing, 0, 0, False)
    unit.closed = unit.kept = True
    return unit


FORGOTTEN: Final = _make_tombstone()
"""Stands for a closed unit with forgotten ids: further spans of it are late."""
ORPHANED: Final = _make_tombstone()
"""Stands for the unit of orphans: further spans below orphans are orphans."""


KEPT_NS: Final = 300_000_000_000
"""How long the spans of a closed unit are kept for its next revision."""
_MAX_FOLLOWED: Final = 100_000
"""Number of remembered closed units that were followed. A repeated span of such a unit makes no second unit."""
_MAX_UNFOLLOWED: Final = 1_000_000
"""Number of remembered closed units that were not followed."""
_MAX_MISSING_PARENTS: Final = 100_000
"""Number of remembered parents that did not arrive in time."""
_MIN_ENDS: Final = 10_000
"""Minimum number of remembered latest ends of a trace's units, 0.3 kB each; the maximum is twice as many."""
_IDS_PER_TRACE: Final = 10
"""Maximum ids per trace of ``Bounds.traces`` on average, 150 bytes each; beyond it ids of unclaimed spans are forgotten."""


class PastUnits:
    """Remembers closed units, and parents that did not arrive in time."""

    def __init__(self) -> None:
        self._followed, self._unfollowed = ClosedKeys(_MAX_FOLLOWED), ClosedKeys(_MAX_UNFOLLOWED)
        self._missing, self._outer = ClosedKeys(_MAX_MISSING_PARENTS), ClosedKeys(_MAX_MISSING_PARENTS)
        self._ends: dict[bytes, int | WireSpan] = {}  # trace id → latest end of a unit, or the root with that end

    def close(self, unit: GatheredUnit) -> None:
        """Remember a unit."""
        trace_id, root_id, *_ = unit.root
        (self._followed if unit.followed else self._unfollowed).add(trace_id, root_id)
        if unit.end_ns:
            self._ends[trace_id] = max(unit.end_ns, self._ended_ns(trace_id, -1))
            self._forget_ends()

    def _ended_ns(self, trace_id: bytes, unknown: float) -> Any:
        end = self._ends.get(trace_id)
        if not isinstance(end, WireSpan):
            return unknown if end is None else end
        times = times_of(end)
        return unknown if times is None else times[1]

    def _forget_ends(self) -> None:
        if len(self._ends) > 2 * _MIN_ENDS:
            self._ends = dict(islice(self._ends.items(), _MIN_ENDS, None))

    def separate_or_extend(self, span: WireSpan | bytes, unit: GatheredUnit) -> bool:
        """Return True if a span begins a unit of its own, because it began after the unit of its parent had ended.

        Some instrumentations leave an ended span current, and the next calls of the thread become its children. Only a claimed
        span of the root's resource begins a unit; `FORGOTTEN` stands for any closed unit of the trace, whatever its resource.
        Otherwise the result is False, and the unit's end is extended to the end of the claimed span.
        """
        if isinstance(span, bytes) or unit is ORPHANED or (times := times_of(span)) is None:
            return False
        start_ns, end_ns = times
        if unit is FORGOTTEN:
            return bool(start_ns > self._ended_ns(span.trace_id, inf))
        # ``assembly.split`` separates a further run of LlamaIndex from the steps.
        is_step = span.origin.scope_name == unit.root.origin.scope_name == semconv.LLAMA_INDEX_SCOPE
        is_later = bool(unit.end_ns) and start_ns > unit.end_ns and not is_step
        if is_later and span.origin.resource == unit.root.origin.resource:
            return True
        unit.end_ns = max(unit.end_ns, end_ns)
        return False

    def remember_unfollowed(self, roots: Sequence[WireSpan]) -> None:
        """Remember units that were not followed, by their roots."""
        self._unfollowed.add_all([root[:2] for root in roots])
        self._ends.update([(root[0], root) for root in roots if len(root[4]) == TIMES_SIZE])
        self._forget_ends()

    def has_trace(self, trace_id: bytes) -> bool:
        """Whether a unit of the trace has closed, or a parent in it did not arrive in time."""
        return (
            self._unfollowed.has_trace(trace_id)
            or self._followed.has_trace(trace_id)
            or self._missing.has_trace(trace_id)
        )

    def add_missing_parent(self, trace_id: bytes, parent_id: bytes, *, is_outer: bool) -> None:
        """Remember that a parent did not arrive in time; an outer parent is outside all closed units."""
        self._missing.add(trace_id, parent_id)
        if is_outer:
            self._outer.add(trace_id, parent_id)

    def restore(self, trace: OpenTrace) -> None:
        """Set on a trace that is opened again whether units of it have closed, and whether it has missing parents."""
        if self._unfollowed.has_trace(trace.id) or self._followed.has_trace(trace.id):
            trace.forgot_ids, trace.first_close_ns = True, -1
        trace.has_missing_parents = self._missing.has_trace(trace.id)

    def is_over(self, trace: OpenTrace, root_id: bytes) -> bool:
        """Whether the id is the root of a closed unit with forgotten ids."""
        return trace.forgot_ids and (self._unfollowed.has(trace.id, root_id) or self._followed.has(trace.id, root_id))

    def record_arrival(self, trace_id: bytes, span_id: bytes) -> bool:
        """Record the arrival of a claimed span; return whether it was a missing parent."""
        self._outer.discard(trace_id, span_id)
        return self._missing.has(trace_id, span_id)

    def is_outer(self, trace_id: bytes, parent_id: bytes) -> bool:
        """Whether the parent is missing and outside all closed units, so that spans below it may be unit roots."""
        return self._outer.has(trace_id, parent_id)


class OpenTraces:
    """The traces with remembered ids, in the order of their latest span; and closed units that may have a next revision.

    Args:
        max_traces: maximum number of idle traces; beyond it the oldest is dropped.
        max_kept_bytes: maximum bytes of kept spans; beyond it the oldest unit in ``kept`` is dropped.

    Attributes:
        idle: traces without an open unit and without a waiting claimed span.
        kept: closed units with spans that are kept for a next revision, in the order of closing.
    """

    def __init__(self, max_traces: int, max_kept_bytes: int) -> None:
        self._max_traces = max_traces
        self._max_ids = max_traces * _IDS_PER_TRACE
        self._max_kept_bytes = max_kept_bytes
        self._ids = self._kept_bytes = 0
        self.kept: OrderedDict[GatheredUnit, None] = OrderedDict()
        self.by_id: OrderedDict[bytes, OpenTrace] = OrderedDict()
        self.idle: OrderedDict[OpenTrace, None] = OrderedDict()

    def mark_latest(self, trace: OpenTrace, now_ns: int) -> None:
        """Mark a trace as the trace with the latest span."""
        trace.last_ns = now_ns
        self.by_id.move_to_end(trace.id)
        if trace.idle:
            self.idle.move_to_end(trace)

    def has_room(self, trace: OpenTrace) -> bool:
        """Drop other idle traces until one more id is within the limit. Returns False if there is no other idle trace."""
        while self._ids >= self._max_ids:
            oldest = next(iter(self.idle), trace)
            if oldest is trace:
                return False
            self.drop(oldest)
        return True

    def mark_active(self, trace: OpenTrace) -> None:
        """Mark a trace as not idle, because it has an open unit or a waiting claimed span."""
        if trace.idle:
            trace.idle = False
            del self.idle[trace]

    def count_id_without_unit(self, trace: OpenTrace) -> None:
        """Count one more id without a unit in a trace."""
        trace.ids_without_unit += 1
        self._ids += 1 - trace.forget_ids_without_unit()
        self.mark_idle(trace)

    def record_closed(self, trace: OpenTrace, span_id: bytes, owner: GatheredUnit) -> GatheredUnit:
        """Record the id of a span of a closed unit; return ``FORGOTTEN`` or ``ORPHANED``, which represents that unit."""
        stand_in = trace.nodes[span_id] = ORPHANED if owner is ORPHANED else FORGOTTEN
        self.count_id_without_unit(trace)
        return stand_in

    def uncount_id_without_unit(self, trace: OpenTrace) -> None:
        """Count one id less without a unit in a trace, because the id has a unit now."""
        trace.ids_without_unit -= 1
        self._ids -= 1

    def count_id(self, unit: GatheredUnit) -> None:
        """Count the id of one more unclaimed span of a unit."""
        unit.ids += 1
        self._ids += 1

    def drop_unit(self, unit: GatheredUnit) -> None:
        """Drop the spans of a closed unit, and its trace if that is empty.

        If the trace has no open unit and no waiting claimed span, or more than half of its ids are those of closed units, the
        ids of all closed units without kept spans are removed.
        """
        trace = unit.trace
        trace.closed_ids += unit.count + unit.ids
        self._ids -= unit.ids
        unit.spans, unit.unread, unit.ids = NO_SPANS, NO_LINKS, 0
        busy = trace.units or trace.bytes
        if not (busy or trace.ids_without_unit or trace.kept):
            self.drop(trace)
            return
        if not busy or trace.closed_ids * 2 > len(trace.nodes):
            trace.forget_closed()
        self.mark_idle(trace)

    def drop(self, trace: OpenTrace) -> None:
        """Forget a trace, and break its reference cycle with its units, so that both are freed at once."""
        if self.by_id.get(trace.id) is trace:
            del self.by_id[trace.id]
            self._ids -= trace.ids_without_unit
            trace.nodes.clear()
            trace.waiting.clear()
            if trace.idle:
                del self.idle[trace]

    def mark_idle(self, trace: OpenTrace) -> None:
        """Mark a trace as idle, if it has no open unit and no waiting claimed span. Above the limit the oldest is dropped."""
        if trace.idle or trace.units or trace.bytes or self.by_id.get(trace.id) is not trace:
            return
        trace.idle = True
        self.idle[trace] = None
        if len(self.idle) > self._max_traces:
            self.drop(next(iter(self.idle)))

    def keep(self, unit: GatheredUnit) -> None:
        """Keep the spans of a closed unit. Above ``max_kept_bytes`` the oldest units are dropped, perhaps this one."""
        unit.kept = True
        unit.trace.kept += 1
        self.kept[unit] = None
        self._kept_bytes += unit.bytes
        self.mark_idle(unit.trace)
        while self._kept_bytes > self._max_kept_bytes:
            self._drop_kept(next(iter(self.kept)))

    def take_kept(self, unit: GatheredUnit) -> bool:
        """Remove a unit that is open again. Returns False if the unit was not kept."""
        if unit not in self.kept:
            return False
        del self.kept[unit]
        self._kept_bytes -= unit.bytes
        unit.kept = False
        unit.trace.kept -= 1
        return True

    def drop_old_kept(self, last_ns: int) -> None:
        """Drop the spans of kept units whose latest span arrived at ``last_ns`` or earlier."""
        for unit in [*takewhile(lambda unit: unit.last_ns <= last_ns, self.kept)]:
            self._drop_kept(unit)

    def _drop_kept(self, unit: GatheredUnit) -> None:
        self.take_kept(unit)
        self.drop_unit(unit)

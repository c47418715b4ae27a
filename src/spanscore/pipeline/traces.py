"""``TraceTable`` gathers spans that arrive over OTLP, in any order, into units. The spans stay undecoded bytes.

OTLP sends a span only after its end, so the table cannot detect that a span is still open. A unit therefore counts as whole
when its root has arrived and no further span of it has arrived for a while.

    span ─┬─ no parent, or a remote parent, or only unclaimed spans above it ─▶ root of a unit ─(quiet)─▶ closed
          ├─ its parent is in a unit ─▶ in that unit                          └ not followed: its bytes are dropped
          ├─ its parent is in a unit that had ended before the span began ─▶ root of a new unit
          ├─ its parent has not arrived, or waits ─▶ waits ─┬ the parent arrives ─▶ as above
          │                                                 └ its trace is silent for ``orphan_wait`` ─▶ a unit, or orphans
          └─ its parent is in a closed unit ─▶ late

claimed      a span that spanscore reads, by its scope or attributes; of an unclaimed span only the id is kept
followed     a unit that may be scored; of other units only the root and the ids of the spans are kept
quiet        no span of the unit has arrived for ``quiet_ns``
brief        a unit that is not followed; its trace has arrived in one request so far
kept         a closed unit with spans that are kept, because late spans may open it again
missing      a parent that has not arrived in time; the spans that waited for it became units or orphans
outer        a missing parent outside all closed units: spans below it are not late, and may be unit roots

Traces and units are ordered by their latest span, so that due traces and units are at the front. ``max_age`` needs no timer:
a unit without further spans becomes quiet, so the age is checked only when a span arrives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import islice, takewhile
from typing import Final

from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.pipeline.trace_index import (
    FORGOTTEN,
    KEPT_NS,
    NO_LINKS,
    ORPHANED,
    SPAN_BYTES,
    Bounds,
    ClosedUnit,
    GatheredUnit,
    OpenTrace,
    OpenTraces,
    PastUnits,
    unit_key,
)

_SHARE_DIVISOR: Final = 4
"""Divisor of ``Bounds.bytes``: the limit of waiting spans of one trace, and of kept closed units."""
_CHECKS: Final = 64
"""Number of searches per ``max_age`` in an active trace for spans that have waited too long."""

_NOT_SAMPLED: Final = Outcome.NOT_SAMPLED
_closed: Callable[[type[ClosedUnit], tuple[object, ...]], ClosedUnit] = tuple.__new__
"""Takes half the time of the constructor of a named tuple."""
_Brief = tuple[WireSpan, Mapping[bytes, bytes], int, int, int]
"""A brief unit: topmost span; ids of its claimed spans → parents' ids; arrival; the table's time then; counted bytes."""

_Entries = list[WireSpan | bytes]
"""Claimed spans, and ids of unclaimed spans."""


@dataclass(eq=False, repr=False)
class TraceTable:
    """Gathers spans in OTLP bytes until their units are over. One thread owns the table.

    The table's time never decreases, even if the clock is set back. An *arrival* is the table's time in ns, increased if
    necessary so that each arrival is unique.

    Attributes:
        follows: returns whether the unit of a root may be scored; called once per unit. If the result is False, only the ids of
            the unit's other spans are kept.
        is_unit_root: returns whether a span without its parent is the root of a unit, because it can have a question and an
            answer.
        bytes: bytes of the claimed spans that wait for a root, and of the kept spans of open units, plus 400 per span.
        waiting_for_root: number of traces with waiting claimed spans.
        orphans: number of claimed spans that were dropped because their parent never came.
        late: number of spans that arrived after their unit was closed.
        duplicates: number of repeated spans, which are ignored.
        revisions: number of units that were opened again.
    """

    bounds: Bounds
    _: KW_ONLY
    follows: Callable[[WireSpan], bool]
    is_unit_root: Callable[[WireSpan], bool]

    def __post_init__(self) -> None:
        self._max_waiting_bytes = max(self.bounds.max_bytes, self.bounds.bytes // _SHARE_DIVISOR)
        self._orphan_wait_ns = min(self.bounds.orphan_wait_ns, self.bounds.max_age_ns)
        self._outcome_without_root = Outcome.INCOMPLETE if self.bounds.max_age_ns < self.bounds.orphan_wait_ns else None
        self._traces = OpenTraces(self.bounds.traces, self.bounds.bytes // _SHARE_DIVISOR)
        self._open_units: OrderedDict[GatheredUnit, None] = OrderedDict()  # open units, by their latest span
        self._past = PastUnits()
        self._brief: OrderedDict[bytes, _Brief] = OrderedDict()  # most units are brief; in the order of arrival
        self._ready: list[ClosedUnit] = []
        self._clock_ns, self._set_back_ns, self._now_ns, self._arrival = -1, 0, 0, -1
        self.bytes = self.waiting_for_root = self.orphans = self.late = self.duplicates = self.revisions = 0

    @property
    def open(self) -> int:
        """Number of traces with an open unit or with waiting claimed spans."""
        return len(self._traces.by_id) - len(self._traces.idle) + len(self._brief)

    def is_open(self, trace_id: bytes) -> bool:
        """Whether ``open`` counts a trace."""
        trace = self._traces.by_id.get(trace_id)
        return trace_id in self._brief if trace is None else bool(trace.units or trace.bytes)

    def has_trace(self, trace_id: bytes) -> bool:
        """Whether ids of a trace are in the table, or a closed unit or a missing parent of it is remembered."""
        return trace_id in self._traces.by_id or self._past.has_trace(trace_id)

    def unreturned_keys(self) -> set[UnitKey]:
        """Return the keys of the units whose root has arrived and that ``due`` has not returned yet."""
        roots = [*(brief[0] for brief in self._brief.values()), *(closed.root for closed in self._ready)]
        return {unit_key(root) for root in (*roots, *(unit.root for unit in self._open_units))}

    def open_traces(self) -> set[bytes]:
        """Return the ids of the traces that ``open`` counts, and of those with a closed unit that ``due`` has not returned."""
        idle = {trace.id for trace in self._traces.idle}
        ready = {unit.root[0] for unit in self._ready}
        return {*self._traces.by_id}.difference(idle).union(ready, self._brief)

    def next_due_ns(self) -> int | None:
        """Return the time at which ``due`` has work without further spans; None if it has none."""
        if self._ready:
            return self._clock_ns
        times = [trace.last_ns + self._orphan_wait_ns for trace in islice(self._traces.by_id.values(), 1)]
        times += [unit.last_ns + self.bounds.quiet_ns for unit in islice(self._open_units, 1)]
        times += [arrived_ns + self.bounds.quiet_ns for _, _, _, arrived_ns, _ in islice(self._brief.values(), 1)]
        times += [unit.last_ns + KEPT_NS for unit in islice(self._traces.kept, 1)]
        return min(times) - self._set_back_ns if times else None

    def add(self, span: WireSpan, *, claimed: bool, now_ns: int) -> None:
        """Add a span; only the id of an unclaimed span is kept."""
        if now_ns != self._clock_ns:
            self._set_time(now_ns)
        trace_id, span_id, parent_id, is_remote, raw, _ = span
        trace = self._traces.by_id.get(trace_id)
        if trace is None or trace.last_ns != self._now_ns:
            trace = self._open_trace(trace_id, trace)
        nodes = trace.nodes  # span id → its unit; None without a claimed span above; the arrival of a waiting span
        if span_id in nodes:
            self.duplicates += 1
            return
        if not claimed and not self._traces.has_room(trace):
            self._traces.mark_idle(trace)  # this may be its first span
            return
        self._arrival += 1
        owner = None if is_remote or not parent_id else nodes.get(parent_id, 0)
        if isinstance(owner, int):  # the parent has not arrived, or waits for its own parent
            self._add_waiting(trace, span, span if claimed else span_id, len(raw) + SPAN_BYTES)
        else:
            self._assign(trace, span, claimed, owner)

    def add_brief(self, root: WireSpan, ids: Mapping[bytes, bytes], now_ns: int) -> bool:
        """Add a unit that is not followed, with only the ids of its claimed spans.

        Returns False, and adds no span, if the trace is open or remembered: then the caller adds each span by ``add``.
        """
        if now_ns != self._clock_ns:
            self._set_time(now_ns)
        self._arrival += 1
        trace_id, _, _, _, raw, _ = root
        if trace_id in self._traces.by_id or trace_id in self._brief or self._past.has_trace(trace_id):
            return False
        size = len(raw) + SPAN_BYTES
        self._brief[trace_id] = root, ids, self._arrival, self._now_ns, size
        self.bytes += size
        return True

    def _set_time(self, now_ns: int) -> None:
        """Advance the table's time. If the clock is set back, ``_set_back_ns`` is added to all its later times."""
        self._clock_ns = now_ns
        now_ns += self._set_back_ns
        if now_ns < self._now_ns:
            self._set_back_ns += self._now_ns - now_ns
        else:
            self._now_ns = now_ns
            self._arrival = max(self._arrival, now_ns - 1)

    def _open_trace(self, trace_id: bytes, trace: OpenTrace | None) -> OpenTrace:
        """Record the arrival of a span in a trace, and drop spans that waited too long; return the open trace."""
        now_ns, max_age_ns = self._now_ns, self.bounds.max_age_ns
        if trace is not None:
            self._traces.mark_latest(trace, now_ns)
            if now_ns >= trace.check_ns and not trace.idle:
                trace.check_ns = now_ns + max_age_ns // _CHECKS
                self._end_wait_for_parents(trace, until_ns=now_ns - max_age_ns)
                trace = self._traces.by_id.get(trace_id)
        if trace is None:
            trace = self._traces.by_id[trace_id] = OpenTrace(trace_id, now_ns, now_ns + max_age_ns)
            if (brief := self._brief.pop(trace_id, None)) is None:
                self._past.restore(trace)
            else:  # its quiet time starts anew now, because units are in the order of their latest span
                root, ids, arrival, _, size = brief
                unit = self._begin_unit(trace, root, arrival, followed=False)
                unit.count, unit.bytes = len(ids), size
                trace.nodes.update(dict.fromkeys(ids, unit))
        return trace

    def _add_waiting(self, trace: OpenTrace, span: WireSpan, entry: WireSpan | bytes, size: int) -> None:
        """Add a span, or an unclaimed span's id, to the spans that wait for their parent."""
        span_id, parent_id = span[1], span[2]
        group = trace.waiting.get(parent_id)
        if group is not None:
            group.append(entry)
        elif parent_id not in trace.nodes and self._past.is_over(trace, parent_id):
            self._assign(trace, span, entry is span, FORGOTTEN)
            return
        else:
            trace.waiting[parent_id] = [entry]
        trace.nodes[span_id] = self._arrival
        if entry is not span:
            self._traces.count_id_without_unit(trace)
            return
        if not trace.bytes:
            self.waiting_for_root += 1
            self._traces.mark_active(trace)
        trace.bytes += size
        self.bytes += size
        if trace.bytes > self._max_waiting_bytes:  # stop waiting for the parents of the older half
            arrivals = sorted(trace.arrival(each) for group in trace.waiting.values() for each in group)
            self._end_wait_for_parents(trace, until_ns=arrivals[len(arrivals) // 2])
            if trace.bytes > self._max_waiting_bytes:
                self._end_wait_for_parents(trace)

    def _assign(self, trace: OpenTrace, span: WireSpan, claimed: bool, owner: GatheredUnit | None) -> None:
        """Assign a span to its unit, and then the spans that waited for it."""
        span_id = span[1]
        if not claimed:
            unit = self._assign_unclaimed(trace, span_id, owner, span.parent_id)
        else:
            unit = self._assign_claimed(trace, span, owner, self._arrival)
        if span_id in trace.waiting:
            self._assign_waiting(trace, span_id, trace.waiting.pop(span_id), unit)
        if unit is None or unit.closed:
            return
        if unit.last_ns != self._now_ns:
            unit.last_ns = self._now_ns
            self._open_units.move_to_end(unit)
        if unit.is_too_large(self.bounds) or self._now_ns - unit.since_ns >= self.bounds.max_age_ns:
            self._close(unit, Outcome.INCOMPLETE)

    def _assign_waiting(self, trace: OpenTrace, above: bytes, entries: _Entries, owner: GatheredUnit | None) -> None:
        """Assign the spans that waited for the span ``above``, and all spans below them, to their units.

        ``owner`` is the unit of the span ``above``; None if no claimed span is above the entries.
        """
        if owner is not None and not owner.closed and not trace.has_missing_parents:
            self._assign_waiting_to_open(trace, above, entries, owner)
            return
        waiting = trace.waiting
        below = [(above, entries, owner)]
        while below:
            above, entries, owner = below.pop()
            for entry in entries:
                if isinstance(entry, bytes):
                    span_id = entry
                    self._traces.uncount_id_without_unit(trace)
                    unit = self._assign_unclaimed(trace, span_id, owner, above)
                else:
                    span_id, arrival = entry[1], trace.arrival(entry)
                    self._remove_waiting(trace, len(entry[4]) + SPAN_BYTES)
                    unit = self._assign_claimed(trace, entry, owner, arrival)
                    unit.since_ns = min(unit.since_ns, arrival)
                if span_id in waiting:
                    below.append((span_id, waiting.pop(span_id), unit))

    def _assign_waiting_to_open(
        self, trace: OpenTrace, parent_id: bytes, entries: _Entries, unit: GatheredUnit
    ) -> None:
        """Do the work of ``_assign_waiting`` for an open unit in a trace without missing parents, the most frequent case.

        It is faster, because the steps of ``_assign_claimed`` that it leaves out are not needed:

        - No span is late, or repeats a closed unit, or is a missing parent.
        - A span that arrived before its parent neither begins a unit of its own nor extends the unit's end.
        - The table's number of ids stays the same: the ids had no unit, and now are those of the unit.
        """
        nodes, waiting, spans = trace.nodes, trace.waiting, unit.spans
        count = size = ids = 0
        below = [(parent_id, entries)]
        for above, group in below:
            unit.since_ns = min(unit.since_ns, trace.arrival(group[0]))
            for entry in group:
                if isinstance(entry, bytes):
                    ids += 1
                    span_id = entry
                    if unit.followed:
                        unit.unread[entry] = above
                else:
                    count += 1
                    size += len(entry[4])
                    span_id = entry[1]
                    if unit.followed:
                        spans[trace.arrival(entry)] = entry
                nodes[span_id] = unit
                if span_id in waiting:
                    below.append((span_id, waiting.pop(span_id)))
        size += count * SPAN_BYTES
        self._remove_waiting(trace, size)
        unit.count += count
        unit.ids += ids
        trace.ids_without_unit -= ids
        if unit.followed:
            unit.bytes += size
            self.bytes += size

    def _assign_claimed(
        self, trace: OpenTrace, span: WireSpan, owner: GatheredUnit | None, arrival: int
    ) -> GatheredUnit:
        """Assign a claimed span to the unit above it, or begin a unit with it; return the unit."""
        span_id = span[1]
        if (trace.has_missing_parents or owner is None) and self._past.is_over(trace, span_id):
            self.duplicates += 1
            return self._traces.record_closed(trace, span_id, FORGOTTEN)
        if owner is None or self._past.separate_or_extend(span, owner):
            owner = self._begin_unit(trace, span, arrival, followed=self.follows(span))
        elif owner.closed:
            self.orphans += owner is ORPHANED
            self.late += owner is not ORPHANED
            if not self._reopen(owner):
                return self._traces.record_closed(trace, span_id, owner)
        trace.nodes[span_id] = owner
        self.bytes += owner.add(span, arrival)
        if trace.has_missing_parents and self._past.record_arrival(trace.id, span_id):
            owner.has_late_root = True
        return owner

    def _assign_unclaimed(
        self, trace: OpenTrace, span_id: bytes, owner: GatheredUnit | None, above: bytes
    ) -> GatheredUnit | None:
        """Record the unit of an unclaimed span, and return that unit; None if no claimed span is above it."""
        if owner is None:
            trace.nodes[span_id] = None
            self._traces.count_id_without_unit(trace)
            return None
        if owner.closed:
            self.late += owner is not ORPHANED
            if not owner.kept:
                return self._traces.record_closed(trace, span_id, owner)
        trace.nodes[span_id] = owner
        self._traces.count_id(owner)
        if owner.followed:
            owner.unread[span_id] = above
        if trace.has_missing_parents and self._past.record_arrival(trace.id, span_id):
            owner.has_late_root = True
        return owner

    def _begin_unit(self, trace: OpenTrace, root: WireSpan, arrival: int, *, followed: bool) -> GatheredUnit:
        unit = GatheredUnit(trace, root, arrival, self._now_ns, followed)
        self._traces.mark_active(trace)
        trace.units += 1
        self._open_units[unit] = None
        return unit

    def _remove_waiting(self, trace: OpenTrace, size: int) -> None:
        if size:
            self.waiting_for_root -= trace.bytes == size
            trace.bytes -= size
            self.bytes -= size

    def due(self, now_ns: int, most: int | None = None) -> list[ClosedUnit]:
        """Return the closed units, and drop spans that have waited too long for their root.

        At most ``most`` quiet followed units are closed; None = all.
        """
        self._set_time(now_ns)
        now_ns, quiet_ns = self._now_ns, self.bounds.quiet_ns
        self._close_brief(now_ns - quiet_ns)
        for unit in [*islice(takewhile(lambda unit: now_ns - unit.last_ns >= quiet_ns, self._open_units), most)]:
            self._close(unit)
        silent = takewhile(lambda trace: now_ns - trace.last_ns >= self._orphan_wait_ns, self._traces.by_id.values())
        for trace in [*silent]:
            if trace.bytes:
                self._end_wait_for_parents(trace, outcome=self._outcome_without_root)
            if not (trace.units or trace.kept):
                self._traces.drop(trace)
            elif trace.id in self._traces.by_id:
                self._traces.mark_latest(trace, now_ns)
        self._traces.drop_old_kept(now_ns - KEPT_NS)
        ready, self._ready = self._ready, []
        return ready

    def close_all(self, now_ns: int) -> list[ClosedUnit]:
        """Close every unit, whole if its root has arrived, otherwise incomplete; then drop all other spans."""
        self._set_time(now_ns)
        for trace_id in [*self._brief]:
            self._open_trace(trace_id, None)
        for unit in [*self._open_units]:
            self._close(unit)
        for trace in [*self._traces.by_id.values()]:
            self._end_wait_for_parents(trace, outcome=Outcome.INCOMPLETE)
            self._traces.drop(trace)
        self._traces.drop_old_kept(self._now_ns)
        return self.due(now_ns)

    def _close_brief(self, last_ns: int) -> None:
        """Close the brief units that arrived at ``last_ns`` or earlier."""
        closed = list[ClosedUnit]()
        for root, _, _, arrived_ns, size in self._brief.values():
            if arrived_ns > last_ns:
                break
            closed.append(_closed(ClosedUnit, (root, (), _NOT_SAMPLED, 0, size, NO_LINKS)))
            self.bytes -= size
        for _ in closed:
            self._brief.popitem(last=False)
        self._past.remember_unfollowed([unit[0] for unit in closed])
        self._ready += closed

    def _close(self, unit: GatheredUnit, outcome: Outcome | None = None) -> None:
        del self._open_units[unit]
        self._past.close(unit)
        unit.closed = True
        trace = unit.trace
        trace.first_close_ns = min(trace.first_close_ns, self._arrival)
        trace.units -= 1
        self.bytes -= unit.bytes
        if not unit.followed:
            outcome = Outcome.NOT_SAMPLED
        elif outcome is None and unit.has_late_root:
            outcome = Outcome.INCOMPLETE
        spans = [unit.spans[arrival] for arrival in sorted(unit.spans)]
        closed = ClosedUnit(unit.root, spans, outcome, unit.revision, unit.bytes, unit.unread, unit.has_late_root)
        self._ready.append(closed)
        if outcome is None and self.bounds.late == "rescore":
            self._traces.keep(unit)
        else:
            self._traces.drop_unit(unit)

    def _reopen(self, unit: GatheredUnit) -> bool:
        """Open a closed unit again, if its spans are kept; return whether it is open."""
        if not self._traces.take_kept(unit):
            return False
        self._traces.mark_active(unit.trace)
        unit.trace.units += 1
        self.bytes += unit.bytes
        self._open_units[unit] = None
        self.revisions += 1
        unit.revision += 1
        unit.closed = False
        unit.since_ns = unit.last_ns = self._now_ns
        return True

    def _end_wait_for_parents(
        self, trace: OpenTrace, *, until_ns: int | None = None, outcome: Outcome | None = None
    ) -> None:
        """Stop waiting for the parents of spans that have waited too long; these spans become late spans, units or orphans.

        ``until_ns`` is the latest arrival of such a span; None = all waiting spans, even spans whose parents form a cycle.
        ``outcome`` is the outcome of the new units; None = they are whole.
        """
        for parent_id, tops in trace.pop_without_parent(until_ns):
            # A span is late unless it arrived before the first close, or its parent is outer, or it is claimed and began
            # after the end of the closed units.
            is_early = trace.arrival(tops[0]) <= trace.first_close_ns or self._past.is_outer(trace.id, parent_id)
            is_late = not (is_early or self._past.separate_or_extend(tops[0], FORGOTTEN))
            before = trace.bytes
            self._end_waiting(trace, tops, FORGOTTEN if is_late else ORPHANED, outcome)
            if trace.bytes < before:
                trace.has_missing_parents = True
                self._past.add_missing_parent(trace.id, parent_id, is_outer=not is_late)
        if until_ns is None:
            for parent_id in [*trace.waiting]:
                self._assign_waiting(trace, parent_id, trace.waiting.pop(parent_id, []), ORPHANED)

    def _end_waiting(
        self, trace: OpenTrace, tops: _Entries, owner: GatheredUnit | None, outcome: Outcome | None
    ) -> None:
        """Make units of spans that can be roots; assign other spans, with all spans below them, to ``owner``."""
        while tops:
            top = tops.pop()
            if isinstance(top, bytes):  # unclaimed: the spans below become the topmost spans
                self._traces.uncount_id_without_unit(trace)
                self._assign_unclaimed(trace, top, None, b"")
                tops += trace.waiting.pop(top, ())
            elif owner is FORGOTTEN:
                self._assign_waiting(trace, b"", [top], owner)
            elif not self.is_unit_root(top):
                tops += trace.waiting.pop(top[1], ())  # one of these may be a root
                self._assign_waiting(trace, b"", [top], owner)
            else:
                self._assign_waiting(trace, b"", [top], None)
                unit = trace.nodes[top[1]]
                if isinstance(unit, GatheredUnit) and not unit.closed:
                    self._close(unit, Outcome.INCOMPLETE if unit.is_too_large(self.bounds) else outcome)

"""``TraceTable`` gathers spans that arrive over OTLP, in any order, into whole units; spans stay bytes.

OTLP does not report the start of a span, so a unit is whole when its root is in and none of its spans has arrived for a while.

    span ─┬─ no parent, or a remote one, or only unclaimed ones above it ─▶ root of a unit ─(quiet)─▶ closed
          ├─ its parent is in a unit ─▶ in that unit                      └ not followed: its bytes are dropped
          ├─ it began when all of that unit had ended ─▶ root of a new unit
          ├─ its parent has not arrived, or waits ─▶ waits ─┬ the parent arrives ─▶ as above
          │                                                 └ its trace is silent for ``orphan_wait`` ─▶ a unit, or orphans
          └─ its unit is closed ─▶ late

Traces and units are ordered by their latest span, so that due ones are at the front. Age needs no timer: a unit without further
spans is due by silence, so its age is checked when a span arrives.
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
    ORPHANED,
    SPAN_BYTES,
    Bounds,
    BriefUnits,
    ClosedUnit,
    GatheredUnit,
    KeptUnits,
    OpenTrace,
    OpenTraces,
    PastUnits,
)

__all__ = ["Bounds", "ClosedUnit", "TraceTable"]

_SHARE: Final = 4
"""Divisor of ``Bounds.bytes``: the limit of waiting spans of one trace, and of kept closed units."""
_CHECKS: Final = 64
"""Number of searches of an active trace per ``max_age`` for spans that have waited too long."""

_Entries = list[WireSpan | bytes]
"""Claimed spans, and ids of unclaimed ones."""


@dataclass(eq=False, repr=False)
class TraceTable:
    """Gathers spans in OTLP bytes until their units are over. Owned by one thread; its time never goes back, even if the
    clock does.

    Attributes:
        follows: returns by its root whether a unit may be scored; called once. False: the bytes of its other spans are dropped.
        stands_alone: returns whether a span without its parent is the root of a unit, because it can have a question and an
            answer.
        bytes: bytes of claimed spans that wait for a root or are kept by open units, plus 400 each.
        waiting_for_root: number of traces with waiting claimed spans.
        orphans: number of dropped claimed spans.
        late: number of spans that arrived after their unit was closed.
        duplicates: number of repeated spans; the first one is kept.
        revisions: number of units that were opened again.
    """

    bounds: Bounds
    _: KW_ONLY
    follows: Callable[[WireSpan], bool]
    stands_alone: Callable[[WireSpan], bool]

    def __post_init__(self) -> None:
        self._most_waiting = max(self.bounds.max_bytes, self.bounds.bytes // _SHARE)
        self._orphan_wait_ns = min(self.bounds.orphan_wait_ns, self.bounds.max_age_ns)
        self._rootless = Outcome.INCOMPLETE if self.bounds.max_age_ns < self.bounds.orphan_wait_ns else None
        self._traces = OpenTraces(self.bounds.traces)
        self._quiet: OrderedDict[GatheredUnit, None] = OrderedDict()  # open units, by their latest span
        self._kept = KeptUnits(self._traces, self.bounds.bytes // _SHARE)
        self._past = PastUnits()
        self._brief = BriefUnits(self._past)
        self._ready: list[ClosedUnit] = []
        self._told_ns, self._set_back_ns, self._now_ns, self._arrival = -1, 0, 0, -1
        self.bytes = self.waiting_for_root = self.orphans = self.late = self.duplicates = self.revisions = 0

    @property
    def open(self) -> int:
        """Number of traces with an open unit or with waiting claimed spans."""
        return len(self._traces.by_id) - len(self._traces.spare) + len(self._brief)

    def holds(self, trace_id: bytes) -> bool:
        """Whether the trace has an open unit, or waiting claimed spans."""
        trace = self._traces.by_id.get(trace_id)
        return trace_id in self._brief if trace is None else bool(trace.units or trace.bytes)

    def knows(self, trace_id: bytes) -> bool:
        """Whether spans of the trace arrived, as far as that is remembered."""
        return trace_id in self._traces.by_id or self._past.knows(trace_id)

    def waiting(self) -> set[UnitKey]:
        """Return the units with their root that were not handed on."""
        return {unit.key for unit in (*self._quiet, *self._brief, *self._ready)}

    def next_due_ns(self) -> int | None:
        """Return the time at which ``due`` has work without further spans; None: never."""
        if self._ready:
            return self._told_ns
        times = [trace.last_ns + self._orphan_wait_ns for trace in islice(self._traces.by_id.values(), 1)]
        times += [unit.last_ns + self.bounds.quiet_ns for unit in islice(self._quiet, 1)]
        times += [unit.last_ns + self.bounds.quiet_ns for unit in islice(self._brief, 1)]
        times += [unit.last_ns + KEPT_NS for unit in islice(self._kept.units, 1)]
        return min(times) - self._set_back_ns if times else None

    def add(self, span: WireSpan, *, claimed: bool, now_ns: int) -> None:
        """Add a span; only the id of an unclaimed span is kept."""
        if now_ns != self._told_ns:
            self._tell(now_ns)
        trace_id, span_id, parent_id, is_remote, raw, _ = span
        trace = self._traces.by_id.get(trace_id)
        if trace is None or trace.last_ns != self._now_ns:
            trace = self._touch(trace_id, trace)
        nodes = trace.nodes
        if span_id in nodes:
            self.duplicates += 1
            return
        if not claimed and not self._traces.has_room(trace):
            return
        self._arrival += 1
        owner = None if is_remote or not parent_id else nodes.get(parent_id, 0)
        if isinstance(owner, int):
            self._wait(trace, span, span if claimed else span_id, len(raw) + SPAN_BYTES)
        else:
            self._place(trace, span, claimed, owner)

    def begins(self, root: WireSpan, ids: Mapping[bytes, bytes], now_ns: int) -> bool:
        """Add a unit that is not followed, by the ids of its claimed spans. False: its trace is known; add each span."""
        if now_ns != self._told_ns:
            self._tell(now_ns)
        self._arrival += 1
        size = 0 if root[0] in self._traces.by_id else self._brief.add(root, ids, self._arrival, self._now_ns)
        self.bytes += size
        return size > 0

    def _tell(self, now_ns: int) -> None:
        self._told_ns = now_ns
        now_ns += self._set_back_ns
        if now_ns < self._now_ns:
            self._set_back_ns += self._now_ns - now_ns
        else:
            self._now_ns = now_ns
            self._arrival = max(self._arrival, now_ns - 1)

    def _touch(self, trace_id: bytes, trace: OpenTrace | None) -> OpenTrace:
        """Record the arrival of a span in a trace, and drop spans that waited too long; return the trace, or a new one."""
        now_ns, max_age_ns = self._now_ns, self.bounds.max_age_ns
        if trace is not None:
            self._traces.touch(trace, now_ns)
            if now_ns >= trace.check_ns and not trace.spare:
                trace.check_ns = now_ns + max_age_ns // _CHECKS
                self._give_up(trace, until_ns=now_ns - max_age_ns)
                trace = self._traces.by_id.get(trace_id)
        if trace is None:
            trace = self._traces.begin(OpenTrace(trace_id, now_ns, now_ns + max_age_ns))
            if (brief := self._brief.take(trace_id)) is None:
                self._past.recall(trace)
            else:  # quiet from now on, because units are in the order of their latest span
                unit = self._begin_unit(trace, brief.root, brief.arrival, followed=False)
                unit.count, unit.bytes = len(brief.ids), brief.bytes
                trace.nodes.update(dict.fromkeys(brief.ids, unit))
        return trace

    def _wait(self, trace: OpenTrace, span: WireSpan, entry: WireSpan | bytes, size: int) -> None:
        """Add a span, or an unclaimed span's id, to the spans that wait for their parent."""
        span_id, parent_id = span[1], span[2]
        group = trace.waiting.get(parent_id)
        if group is not None:
            group.append(entry)
        elif parent_id not in trace.nodes and self._past.is_over(trace, parent_id):
            self._place(trace, span, entry is span, FORGOTTEN)
            return
        else:
            trace.waiting[parent_id] = [entry]
        trace.nodes[span_id] = self._arrival
        if entry is not span:
            self._traces.loosen(trace)
            return
        if not trace.bytes:
            self.waiting_for_root += 1
            self._traces.use(trace)
        trace.bytes += size
        self.bytes += size
        if trace.bytes > self._most_waiting:
            self._relieve(trace)

    def _place(self, trace: OpenTrace, span: WireSpan, claimed: bool, owner: GatheredUnit | None) -> None:
        """Assign a span to its unit, and then the spans that waited for it."""
        span_id = span[1]
        unit = self._claim(trace, span, owner, self._arrival) if claimed else self._note(trace, span_id, owner, span[2])
        if span_id in trace.waiting:
            self._follow(trace, span_id, trace.waiting.pop(span_id), unit)
        if unit is None or unit.closed:
            return
        if unit.last_ns != self._now_ns:
            unit.last_ns = self._now_ns
            self._quiet.move_to_end(unit)
        if unit.is_too_large(self.bounds) or self._now_ns - unit.since_ns >= self.bounds.max_age_ns:
            self._close(unit, Outcome.INCOMPLETE)

    def _follow(self, trace: OpenTrace, above: bytes, entries: _Entries, owner: GatheredUnit | None) -> None:
        """Assign the spans that waited for a span of a unit, and all spans below them, to their units."""
        if owner is not None and not owner.closed and not trace.gave_up:
            self._gather(trace, above, entries, owner)
            return
        waiting = trace.waiting
        below = [(above, entries, owner)]
        while below:
            above, entries, owner = below.pop()
            for entry in entries:
                if isinstance(entry, bytes):
                    span_id = entry
                    self._traces.tighten(trace)
                    unit = self._note(trace, span_id, owner, above)
                else:
                    span_id, arrival = entry[1], trace.arrival(entry)
                    self._unwait(trace, len(entry[4]) + SPAN_BYTES)
                    unit = self._claim(trace, entry, owner, arrival)
                    unit.since_ns = min(unit.since_ns, arrival)
                if span_id in waiting:
                    below.append((span_id, waiting.pop(span_id), unit))

    def _gather(self, trace: OpenTrace, parent_id: bytes, entries: _Entries, unit: GatheredUnit) -> None:
        """Do the same as ``_follow`` for an open unit in a trace without dropped spans: the path of most spans."""
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
        self._unwait(trace, size)
        unit.count += count
        unit.ids += ids
        trace.loose -= ids
        if unit.followed:
            unit.bytes += size
            self.bytes += size

    def _claim(self, trace: OpenTrace, span: WireSpan, owner: GatheredUnit | None, arrival: int) -> GatheredUnit:
        """Assign a claimed span to the unit above it, or begin one; return it."""
        span_id = span[1]
        if (trace.gave_up or owner is None) and self._past.is_over(trace, span_id):
            self.duplicates += 1
            return self._traces.put_gone(trace, span_id, FORGOTTEN)
        if owner is None or self._past.is_new_work(span, owner):
            owner = self._begin_unit(trace, span, arrival, followed=self.follows(span))
        elif owner.closed:
            self.orphans += owner is ORPHANED
            self.late += owner is not ORPHANED
            if not self._reopens(owner):
                return self._traces.put_gone(trace, span_id, owner)
        trace.nodes[span_id] = owner
        self.bytes += owner.add(span, arrival)
        if trace.gave_up and self._past.comes_late(trace.id, span_id):
            owner.has_late_root = True
        return owner

    def _note(self, trace: OpenTrace, span_id: bytes, owner: GatheredUnit | None, above: bytes) -> GatheredUnit | None:
        """Record the unit of an unclaimed span; return it."""
        if owner is None:
            trace.nodes[span_id] = None
            self._traces.loosen(trace)
            return None
        if owner.closed:
            self.late += owner is not ORPHANED
            if not owner.kept:
                return self._traces.put_gone(trace, span_id, owner)
        trace.nodes[span_id] = owner
        self._traces.note(owner)
        if owner.followed:
            owner.unread[span_id] = above
        if trace.gave_up and self._past.comes_late(trace.id, span_id):
            owner.has_late_root = True
        return owner

    def _begin_unit(self, trace: OpenTrace, root: WireSpan, arrival: int, *, followed: bool) -> GatheredUnit:
        unit = GatheredUnit(trace, root, arrival, self._now_ns, followed)
        self._traces.use(trace)
        trace.units += 1
        self._quiet[unit] = None
        return unit

    def _unwait(self, trace: OpenTrace, size: int) -> None:
        if size:
            self.waiting_for_root -= trace.bytes == size
            trace.bytes -= size
            self.bytes -= size

    def due(self, now_ns: int, most: int | None = None) -> list[ClosedUnit]:
        """Return the units that are over, at most ``most`` of the quiet ones; drop spans that have waited too long for their
        root.
        """
        self._tell(now_ns)
        now_ns, quiet_ns = self._now_ns, self.bounds.quiet_ns
        self._ready += (brief := self._brief.over(now_ns - quiet_ns))
        self.bytes -= sum([unit.bytes for unit in brief])
        for unit in [*islice(takewhile(lambda unit: now_ns - unit.last_ns >= quiet_ns, self._quiet), most)]:
            self._close(unit)
        silent = takewhile(lambda trace: now_ns - trace.last_ns >= self._orphan_wait_ns, self._traces.by_id.values())
        for trace in [*silent]:
            if trace.bytes:
                self._give_up(trace, verdict=self._rootless)
            if not (trace.units or trace.kept):
                self._traces.drop(trace)
            elif trace.id in self._traces.by_id:
                self._traces.touch(trace, now_ns)
        self._kept.let_old_go(now_ns - KEPT_NS)
        ready, self._ready = self._ready, []
        return ready

    def close_all(self, now_ns: int) -> list[ClosedUnit]:
        """Close every unit, whole if its root is in, otherwise incomplete; forget all other spans."""
        self._tell(now_ns)
        for brief in [*self._brief]:
            self._touch(brief.root[0], None)
        for unit in [*self._quiet]:
            self._close(unit)
        for trace in [*self._traces.by_id.values()]:
            self._give_up(trace, verdict=Outcome.INCOMPLETE)
            self._traces.drop(trace)
        self._kept.let_old_go(self._now_ns)
        return self.due(now_ns)

    def _close(self, unit: GatheredUnit, outcome: Outcome | None = None) -> None:
        del self._quiet[unit]
        self._past.close(unit)
        unit.closed = True
        trace = unit.trace
        trace.over_ns = min(trace.over_ns, self._arrival)
        trace.units -= 1
        self.bytes -= unit.bytes
        outcome = (
            (outcome or (Outcome.INCOMPLETE if unit.has_late_root else None)) if unit.followed else Outcome.NOT_SAMPLED
        )
        spans = [unit.spans[arrival] for arrival in sorted(unit.spans)]
        self._ready.append(
            ClosedUnit(unit.root, spans, outcome, unit.revision, unit.bytes, unit.unread, unit.has_late_root)
        )
        if outcome is None and self.bounds.late == "rescore":
            self._kept.keep(unit)
        else:
            self._traces.bury(unit)

    def _reopens(self, unit: GatheredUnit) -> bool:
        """Open a unit with kept spans again. False: its spans were not kept."""
        if not self._kept.take(unit):
            return False
        self._traces.use(unit.trace)
        unit.trace.units += 1
        self.bytes += unit.bytes
        self._quiet[unit] = None
        self.revisions += 1
        unit.revision += 1
        unit.closed = False
        unit.since_ns = unit.last_ns = self._now_ns
        return True

    def _relieve(self, trace: OpenTrace) -> None:
        """Drop the older half of the waiting spans of a trace that takes too much memory; all if that is not enough."""
        arrivals = sorted(trace.arrival(entry) for group in trace.waiting.values() for entry in group)
        self._give_up(trace, until_ns=arrivals[len(arrivals) // 2])
        if trace.bytes > self._most_waiting:
            self._give_up(trace)

    def _give_up(self, trace: OpenTrace, *, until_ns: int | None = None, verdict: Outcome | None = None) -> None:
        """Make units or orphans of the waiting spans that arrived by then; None: of all, cycles included."""
        for parent_id, tops in trace.tops(until_ns):
            is_late = trace.arrival(tops[0]) > trace.over_ns and not self._past.is_ambient(trace.id, parent_id)
            is_late = is_late and not self._past.is_new_work(tops[0], FORGOTTEN)
            before = trace.bytes
            self._give_up_tops(trace, tops, FORGOTTEN if is_late else ORPHANED, verdict)
            if trace.bytes < before:
                trace.gave_up = True
                self._past.give_up(trace.id, parent_id, ambient=not is_late)
        if until_ns is None:
            for parent_id in [*trace.waiting]:
                self._follow(trace, parent_id, trace.waiting.pop(parent_id, []), ORPHANED)

    def _give_up_tops(
        self, trace: OpenTrace, tops: _Entries, gone: GatheredUnit | None, verdict: Outcome | None
    ) -> None:
        """Make units of spans that can be roots; assign the others, with all spans below them, to ``gone``."""
        while tops:
            top = tops.pop()
            if isinstance(top, bytes):  # unclaimed: the spans below become the topmost ones
                self._traces.tighten(trace)
                self._note(trace, top, None, b"")
                tops += trace.waiting.pop(top, ())
            elif gone is FORGOTTEN:
                self._follow(trace, b"", [top], gone)
            elif not self.stands_alone(top):
                tops += trace.waiting.pop(top[1], ())  # one of these may be a root
                self._follow(trace, b"", [top], gone)
            else:
                self._follow(trace, b"", [top], None)
                unit = trace.nodes[top[1]]
                if isinstance(unit, GatheredUnit) and not unit.closed:
                    lost = Outcome.INCOMPLETE if unit.is_too_large(self.bounds) else None
                    self._close(unit, lost or verdict)

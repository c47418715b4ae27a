"""The books of a ``TraceTable``: which traces are open, which units are over, which of those have their spans kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from math import inf
from typing import Any, Final, NamedTuple

from spanscore.core.codecs.otlp_request import WireSpan, times_of
from spanscore.core.codecs.otlp_scan import TIMES_SIZE
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.units.closed_keys import ClosedKeys
from spanscore.units.trace_nodes import (
    FORGOTTEN,
    NO_LINKS,
    NO_SPANS,
    ORPHANED,
    SPAN_BYTES,
    ClosedUnit,
    GatheredUnit,
    OpenTrace,
    unit_key,
)

__all__ = ["KEPT_NS", "BriefUnits", "KeptUnits", "OpenTraces", "PastUnits"]

KEPT_NS: Final = 300_000_000_000
"""How long the spans of a closed unit are kept for its next revision."""
_DECIDED: Final = 100_000
_DROPPED: Final = 1_000_000
"""Closed units that are remembered, those that were followed and the others: a span that is sent again is no second unit."""
_GIVEN_UP: Final = 100_000
"""Parents that never came, remembered likewise."""
_ENDS: Final = 10_000
"""Traces of which it is remembered when their units ended, the latest ones, and twice as many at most: 0.3 kB each."""
_IDS_PER_TRACE: Final = 10
"""Ids remembered, on average over ``Bounds.traces``, at some 150 bytes; past them those of unclaimed spans are forgotten."""
_NOT_SAMPLED: Final = Outcome.NOT_SAMPLED
_closed: Callable[[type[ClosedUnit], tuple[object, ...]], ClosedUnit] = tuple.__new__
_brief: Callable[[type[BriefUnit], tuple[object, ...]], BriefUnit] = tuple.__new__
"""Half of what the constructors of named tuples take."""


class PastUnits:
    """Remembers units that are over, and parents that were given up."""

    def __init__(self) -> None:
        self._decided, self._dropped = ClosedKeys(_DECIDED), ClosedKeys(_DROPPED)
        self._given_up, self._ambient = ClosedKeys(_GIVEN_UP), ClosedKeys(_GIVEN_UP)
        self._ends: dict[bytes, int | WireSpan] = {}

    def close(self, unit: GatheredUnit) -> None:
        """Remember a unit."""
        trace_id, root_id, *_ = unit.root
        (self._decided if unit.followed else self._dropped).add(trace_id, root_id)
        if unit.end_ns:
            self._ends[trace_id] = max(unit.end_ns, self._ended_ns(trace_id, -1))
            self._forget_ends()

    def _ended_ns(self, trace_id: bytes, unknown: float) -> Any:
        """Return when the latest closed unit of a trace ended, or a number for a trace of which that is not known."""
        end = self._ends.get(trace_id)
        if not isinstance(end, WireSpan):
            return unknown if end is None else end
        times = times_of(end)
        return unknown if times is None else times[1]

    def _forget_ends(self) -> None:
        if len(self._ends) > 2 * _ENDS:
            self._ends = dict(islice(self._ends.items(), _ENDS, None))

    def is_new_work(self, span: WireSpan | bytes, unit: GatheredUnit) -> bool:
        """Whether a span began when its unit had ended, as far as is known: it is the work of a later call.

        Some instrumentations leave a span current that has ended, and the next calls of the thread become its children.

        Args:
            span: a claimed span, or the id of another.
            unit: the unit of its parent; `FORGOTTEN` = any closed unit of its trace.
        """
        if isinstance(span, bytes) or unit is ORPHANED or (times := times_of(span)) is None:
            return False
        start_ns, end_ns = times
        if unit is FORGOTTEN:
            return bool(start_ns > self._ended_ns(span.trace_id, inf))
        if unit.end_ns and start_ns > unit.end_ns and span.origin.resource == unit.root.origin.resource:
            return True
        unit.end_ns = max(unit.end_ns, end_ns)
        return False

    def drop(self, roots: Sequence[WireSpan]) -> None:
        """Remember units that were not followed, by their roots."""
        self._dropped.add_all([root[:2] for root in roots])
        self._ends.update([(root[0], root) for root in roots if len(root[4]) == TIMES_SIZE])
        self._forget_ends()

    def knows(self, trace_id: bytes) -> bool:
        """Whether anything of a trace is over."""
        return self._dropped.knows(trace_id) or self._decided.knows(trace_id) or self._given_up.knows(trace_id)

    def give_up(self, trace_id: bytes, parent_id: bytes, *, ambient: bool) -> None:
        """Remember that a parent did not come; ``ambient``: what is below it is of no unit that has closed."""
        self._given_up.add(trace_id, parent_id)
        if ambient:
            self._ambient.add(trace_id, parent_id)

    def recall(self, trace: OpenTrace) -> None:
        """Tell a trace whether anything of it is over."""
        if self._dropped.knows(trace.id) or self._decided.knows(trace.id):
            trace.forgot, trace.over_ns = True, -1
        trace.gave_up = self._given_up.knows(trace.id)

    def is_over(self, trace: OpenTrace, root_id: bytes) -> bool:
        """Whether that is the root of a closed unit of which the ids were forgotten."""
        return trace.forgot and (self._dropped.has(trace.id, root_id) or self._decided.has(trace.id, root_id))

    def comes_late(self, trace_id: bytes, span_id: bytes) -> bool:
        """Note that a claimed span came; return whether it had been given up."""
        self._ambient.discard(trace_id, span_id)
        return self._given_up.has(trace_id, span_id)

    def is_ambient(self, trace_id: bytes, parent_id: bytes) -> bool:
        """Whether that parent did not come, and units may be below it."""
        return self._ambient.has(trace_id, parent_id)


class OpenTraces:
    """The traces of which ids are remembered, by their latest span.

    Args:
        most: of those without anything that is claimed; the oldest makes room.

    Attributes:
        spare: traces without an open unit and without a claimed span that waits.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_ids = most * _IDS_PER_TRACE
        self._ids = 0
        self.by_id: OrderedDict[bytes, OpenTrace] = OrderedDict()
        self.spare: OrderedDict[OpenTrace, None] = OrderedDict()

    def begin(self, trace: OpenTrace) -> OpenTrace:
        """Open a trace."""
        self.by_id[trace.id] = trace
        return trace

    def touch(self, trace: OpenTrace, now_ns: int) -> None:
        """Note that a span came."""
        trace.last_ns = now_ns
        self.by_id.move_to_end(trace.id)
        if trace.spare:
            self.spare.move_to_end(trace)

    def has_room(self, trace: OpenTrace) -> bool:
        """Forget spare traces until there is room for an id of one; False: there are no others."""
        while self._ids >= self._most_ids:
            oldest = next(iter(self.spare), trace)
            if oldest is trace:
                return False
            self.drop(oldest)
        return True

    def use(self, trace: OpenTrace) -> None:
        """Note that a trace has an open unit, or a claimed span that waits."""
        if trace.spare:
            trace.spare = False
            del self.spare[trace]

    def loosen(self, trace: OpenTrace) -> None:
        """Note that a trace has one more id of no unit."""
        trace.loose += 1
        self._ids += 1 - trace.forget_loose()
        self.lay_aside(trace)

    def put_gone(self, trace: OpenTrace, span_id: bytes, owner: GatheredUnit) -> GatheredUnit:
        """Note the id of a span whose unit is over, and return what stands for that."""
        gone = trace.nodes[span_id] = ORPHANED if owner is ORPHANED else FORGOTTEN
        self.loosen(trace)
        return gone

    def tighten(self, trace: OpenTrace) -> None:
        """Note that an id was of no unit, and is so no longer."""
        trace.loose -= 1
        self._ids -= 1

    def note(self, unit: GatheredUnit) -> None:
        """Note that a unit has one more id of a span that is not claimed."""
        unit.ids += 1
        self._ids += 1

    def bury(self, unit: GatheredUnit) -> None:
        """Forget the spans of a closed unit, its ids when they are worth a walk, and its trace if nothing else is in it."""
        trace = unit.trace
        trace.dead += unit.count + unit.ids
        self._ids -= unit.ids
        unit.spans, unit.unread, unit.ids = NO_SPANS, NO_LINKS, 0
        busy = trace.units or trace.bytes
        if not (busy or trace.loose or trace.kept):
            self.drop(trace)
            return
        if not busy or trace.dead * 2 > len(trace.nodes):
            trace.forget_closed()
        self.lay_aside(trace)

    def drop(self, trace: OpenTrace) -> None:
        """Forget a trace; its units know it, so nothing would be freed before the garbage collector comes if it knew them."""
        if self.by_id.get(trace.id) is trace:
            del self.by_id[trace.id]
            self._ids -= trace.loose
            trace.nodes.clear()
            trace.waiting.clear()
            if trace.spare:
                del self.spare[trace]

    def lay_aside(self, trace: OpenTrace) -> None:
        """Note that nothing of a trace is claimed and open, if that is so."""
        if trace.spare or trace.units or trace.bytes or self.by_id.get(trace.id) is not trace:
            return
        trace.spare = True
        self.spare[trace] = None
        if len(self.spare) > self._most:
            self.drop(next(iter(self.spare)))


class KeptUnits:
    """Closed units whose spans are kept for a next revision, in the order in which they closed.

    Args:
        traces: told when one is let go.
        most_bytes: of spans; past them the oldest is let go.
    """

    def __init__(self, traces: OpenTraces, most_bytes: int) -> None:
        self._traces = traces
        self._most_bytes = most_bytes
        self.units: OrderedDict[GatheredUnit, None] = OrderedDict()
        self.bytes = 0

    def keep(self, unit: GatheredUnit) -> None:
        """Keep the spans of a closed unit, if there is room for them."""
        unit.kept = True
        unit.trace.kept += 1
        self.units[unit] = None
        self.bytes += unit.bytes
        self._traces.lay_aside(unit.trace)
        while self.bytes > self._most_bytes:
            self.let_go(next(iter(self.units)))

    def take(self, unit: GatheredUnit) -> bool:
        """Keep a unit no longer, as it is open again. False: it was not kept."""
        if unit not in self.units:
            return False
        del self.units[unit]
        self.bytes -= unit.bytes
        unit.kept = False
        unit.trace.kept -= 1
        return True

    def let_old_go(self, last_ns: int) -> None:
        """Forget the spans of those that nothing came of since."""
        for unit in [*takewhile(lambda unit: unit.last_ns <= last_ns, self.units)]:
            self.let_go(unit)

    def let_go(self, unit: GatheredUnit) -> None:
        """Forget the spans of a unit."""
        self.take(unit)
        self._traces.bury(unit)


class BriefUnit(NamedTuple):
    """A unit that came whole in one request, that no rate takes and that is all of its trace.

    Attributes:
        root: its top-most span.
        ids: of its claimed spans.
        arrival: when it came, as ``OpenTrace`` counts it.
        last_ns: when it came.
        bytes: of its root, and 400.
    """

    root: WireSpan
    ids: Mapping[bytes, bytes]
    arrival: int
    last_ns: int
    bytes: int

    @property
    def key(self) -> UnitKey:
        """Its name everywhere else."""
        return unit_key(self.root)


class BriefUnits:
    """Brief units of whose traces nothing more has come, in the order in which they came. Nearly every unit is one.

    Only a trace of which more comes is worth an ``OpenTrace``.

    Args:
        past: remembers the units that are over.
    """

    def __init__(self, past: PastUnits) -> None:
        self._past = past
        self._units: OrderedDict[bytes, BriefUnit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, trace_id: bytes) -> bool:
        return trace_id in self._units

    def __iter__(self) -> Iterator[BriefUnit]:
        return iter(self._units.values())

    def add(self, root: WireSpan, ids: Mapping[bytes, bytes], arrival: int, now_ns: int) -> int:
        """Keep a unit and return its bytes; 0: more is known of its trace, and it is not kept."""
        trace_id, _, _, _, raw, _ = root
        if trace_id in self._units or self._past.knows(trace_id):
            return 0
        size = len(raw) + SPAN_BYTES
        self._units[trace_id] = _brief(BriefUnit, (root, ids, arrival, now_ns, size))
        return size

    def take(self, trace_id: bytes) -> BriefUnit | None:
        """Return the unit of a trace, and forget it; None where there is none."""
        return self._units.pop(trace_id, None)

    def over(self, last_ns: int) -> list[ClosedUnit]:
        """Return those that came by then, and forget them."""
        units, closed = self._units, list[ClosedUnit]()
        for root, _, _, came_ns, size in units.values():
            if came_ns > last_ns:
                break
            closed.append(_closed(ClosedUnit, (root, (), _NOT_SAMPLED, 0, size, NO_LINKS)))
        for _ in closed:
            units.popitem(last=False)
        self._past.drop([unit[0] for unit in closed])
        return closed

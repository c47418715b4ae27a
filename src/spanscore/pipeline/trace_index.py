"""The index of a ``TraceTable``: open traces with their units and spans, and closed units."""

from __future__ import annotations

from bisect import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf
from typing import Any, Final, Literal, NamedTuple

from spanscore.core.codecs.otlp_request import Origin, WireSpan, times_of
from spanscore.core.codecs.otlp_scan import TIMES_SIZE
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey

_BITS: Final = (1 << 60) - 1
"""An int of 60 bits takes 32 bytes, one of 64 takes 48."""
_NONE: Final = -1
_SLACK: Final = 8
"""An eighth is removed at a time, because taking the first item of a dict walks over all removed ones."""


class ClosedKeys:
    """Remembers closed units, 110 to 160 bytes each: hash of the trace → hash of the root that ended last in it.

    Further roots of that trace have entries of their own. Python's hash of bytes is keyed per process: ids cannot be made to
    collide, and collide by chance once in 10¹² look-ups.

    Args:
        most: minimum number of remembered entries; the maximum is an eighth more, and the oldest are forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = most
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
        if len(roots) > self._most + self._most // _SLACK:
            for key in [*islice(roots, len(roots) - self._most)]:
                del roots[key]

    def discard(self, trace_id: bytes, root_id: bytes) -> None:
        """Forget a unit, but not its trace."""
        roots, trace = self._roots, hash(trace_id) & _BITS
        if roots.get(trace) == hash(root_id) & _BITS:
            roots[trace] = _NONE
        else:
            roots.pop(hash(trace_id + root_id) & _BITS, None)

    def knows(self, trace_id: bytes) -> bool:
        """Whether a unit of that trace is remembered."""
        return hash(trace_id) & _BITS in self._roots

    def has(self, trace_id: bytes, root_id: bytes) -> bool:
        """Whether that unit is remembered."""
        roots = self._roots
        root = roots.get(hash(trace_id) & _BITS)
        if root is None:
            return False
        return root == hash(root_id) & _BITS or hash(trace_id + root_id) & _BITS in roots


SPAN_BYTES: Final = 400
"""Bytes of a waiting span in addition to its own: 300 to 410 were seen. A trace needs 650 more, which ``traces`` bounds."""
_MOST_LOOSE: Final = 10_000
"""Maximum number of ids of one trace that are remembered only for their children; beyond it the older half is forgotten."""


Links = dict[bytes, bytes]
"""Span id → its parent's id."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of ``Units``, times in nanoseconds; the caller holds ``bytes`` and ``traces``."""

    quiet_ns: int = 2_000_000_000
    orphan_wait_ns: int = 60_000_000_000
    max_age_ns: int = 3_600_000_000_000
    max_spans: int = 2_000
    max_bytes: int = 16_000_000
    traces: int = 100_000
    bytes: int = 512_000_000
    late: Literal["count", "rescore"] = "count"


class ClosedUnit(NamedTuple):
    """A unit that is over.

    Attributes:
        root: its topmost span.
        spans: its claimed spans, root included, in the order of arrival; empty if it is not followed.
        outcome: None: whole; INCOMPLETE (by age, spans, bytes, a shutdown, or a late root); NOT_SAMPLED (it is not followed).
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
        """Why it is not whole; None if only its outcome is known."""
        return "late_root" if self.has_late_root and self.outcome is Outcome.INCOMPLETE else None

    @property
    def key(self) -> UnitKey:
        """Its key in all other modules, computed on each call because most units need none."""
        return unit_key(self.root)


def unit_key(root: WireSpan) -> UnitKey:
    """Return the key of a unit in all other modules."""
    return UnitKey(int.from_bytes(root[0], "big"), int.from_bytes(root[1], "big"))


NO_SPANS: Final[dict[int, WireSpan]] = {}
"""The spans of every unit that is not followed: saves the garbage collector a dict per unit."""
NO_LINKS: Final[Links] = {}
"""The unclaimed spans of every unit that is not followed."""


class GatheredUnit:
    """A unit from the arrival of its root until it is forgotten.

    Attributes:
        spans: arrival → claimed span; empty if the unit is not followed.
        unread: ids of unclaimed spans → their parents' ids; empty if the unit is not followed.
        count: number of claimed spans, kept or not.
        bytes: bytes of the kept spans.
        ids: number of unclaimed spans.
        since_ns: arrival of its first span.
        last_ns: arrival of its latest span, claimed or not.
        has_late_root: whether its root arrived after its other spans had been dropped.
        closed: whether it was handed on.
        kept: whether it was handed on and its spans are kept for a next revision.
        end_ns: the latest end of the root and later spans, since the epoch; 0 if no time is known.
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

    @property
    def key(self) -> UnitKey:
        """Its key in all other modules."""
        return unit_key(self.root)

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
        nodes: span id → its unit; None: it is unclaimed, without a claimed span above it; an int: its parent has not arrived,
            or waits itself, and the int is its arrival (unique in a table).
        waiting: parent id → spans that wait for it, claimed ones whole and others by id.
        units: number of open units.
        bytes: bytes of the claimed spans in ``waiting``.
        kept: number of closed units with kept spans.
        loose: number of ids without a unit: of spans that are unclaimed or late.
        dead: approximate number of ids of closed units.
        forgot: whether ids of closed units were forgotten, so that further spans may belong to these units.
        gave_up: whether spans were dropped without their parent, so that the parent may arrive now.
        over_ns: close of its first unit: later spans without a parent may belong to that unit.
        spare: whether it has no open unit, and no claimed span waits.
        check_ns: time of the next search for spans that have waited too long.
    """

    __slots__ = (
        "bytes", "check_ns", "dead", "forgot", "gave_up", "id", "kept", "last_ns", "loose", "nodes", "over_ns", "spare",
        "units", "waiting",
    )  # fmt: skip

    def __init__(self, trace_id: bytes, now_ns: int, check_ns: int) -> None:
        self.id = trace_id
        self.nodes: dict[bytes, Node] = {}
        self.waiting: dict[bytes, list[WireSpan | bytes]] = {}
        self.over_ns: float = inf
        self.last_ns = now_ns
        self.check_ns = check_ns
        self.spare = self.forgot = self.gave_up = False
        self.units = self.bytes = self.kept = self.loose = self.dead = 0

    def arrival(self, entry: WireSpan | bytes) -> int:
        """Return the arrival of a waiting span."""
        return self.nodes[entry if entry.__class__ is bytes else entry[1]]  # type: ignore[return-value, index]

    def tops(self, until_ns: int | None) -> Iterator[tuple[bytes, list[WireSpan | bytes]]]:
        """Remove the spans that arrived by then (None: all) and lack their parent; yield them by parent id."""
        for parent_id in [parent_id for parent_id in self.waiting if parent_id not in self.nodes]:
            group = self.waiting.pop(parent_id, [])
            split = len(group) if until_ns is None else bisect([*map(self.arrival, group)], until_ns)
            if split < len(group):
                self.waiting[parent_id] = group[split:]
            if split:
                yield parent_id, group[:split]

    def forget_closed(self) -> None:
        """Forget the ids of closed units."""
        self.forgot = True
        self.nodes = {
            span_id: node
            for span_id, node in self.nodes.items()
            if node.__class__ is not GatheredUnit or not node.closed or node.kept
        }
        self.dead = 0

    def forget_loose(self) -> int:
        """Forget the older half of the ids without a unit, if they are too many; return their number."""
        if self.loose <= _MOST_LOOSE:
            return 0
        loose = self._loose()
        old = set(loose[: len(loose) // 2])
        for parent_id, group in [*self.waiting.items()]:
            self.waiting[parent_id] = [entry for entry in group if entry not in old]
            if not self.waiting[parent_id]:
                del self.waiting[parent_id]
        for span_id in old:
            del self.nodes[span_id]
        self.loose -= len(old)
        return len(old)

    def _loose(self) -> list[bytes]:
        """Return the ids without a unit in the order of arrival."""
        waiting = {entry for group in self.waiting.values() for entry in group if entry.__class__ is bytes}
        gone = (None, ORPHANED, FORGOTTEN)
        return [span_id for span_id, node in self.nodes.items() if node in gone or span_id in waiting]


Node = GatheredUnit | int | None


def _make_tombstone() -> GatheredUnit:
    """Return a closed unit without spans, which represents forgotten ones."""
    nothing = WireSpan(b"", b"", b"", False, b"", Origin(b"", b"", ""))
    unit = GatheredUnit(OpenTrace(b"", 0, 0), nothing, 0, 0, False)
    unit.closed = unit.kept = True
    return unit


FORGOTTEN: Final = _make_tombstone()
"""Represents a closed unit with forgotten ids: its further spans are late."""
ORPHANED: Final = _make_tombstone()
"""Represents the unit of orphans: further spans below them are orphans."""


KEPT_NS: Final = 300_000_000_000
"""How long the spans of a closed unit are kept for its next revision."""
_DECIDED: Final = 100_000
_DROPPED: Final = 1_000_000
"""Numbers of remembered closed units, followed and others, so that a repeated span makes no second unit."""
_GIVEN_UP: Final = 100_000
"""Number of remembered parents that never arrived."""
_ENDS: Final = 10_000
"""Number of latest traces with remembered ends of units, and twice as many at most: 0.3 kB each."""
_IDS_PER_TRACE: Final = 10
"""Average number of ids per trace of ``Bounds.traces``, at 150 bytes; beyond it ids of unclaimed spans are forgotten."""
_NOT_SAMPLED: Final = Outcome.NOT_SAMPLED
_closed: Callable[[type[ClosedUnit], tuple[object, ...]], ClosedUnit] = tuple.__new__
_brief: Callable[[type[BriefUnit], tuple[object, ...]], BriefUnit] = tuple.__new__
"""Takes half the time of the constructor of a named tuple, like ``_closed``."""


class PastUnits:
    """Remembers closed units, and parents that never arrived."""

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
        """Return the end of the latest closed unit of a trace, or ``unknown``."""
        end = self._ends.get(trace_id)
        if not isinstance(end, WireSpan):
            return unknown if end is None else end
        times = times_of(end)
        return unknown if times is None else times[1]

    def _forget_ends(self) -> None:
        if len(self._ends) > 2 * _ENDS:
            self._ends = dict(islice(self._ends.items(), _ENDS, None))

    def is_new_work(self, span: WireSpan | bytes, unit: GatheredUnit) -> bool:
        """Whether a span began after its unit had ended, and so is the work of a later call.

        Some instrumentations leave an ended span current, and the next calls of the thread become its children.

        Args:
            span: a claimed span, or the id of an unclaimed one.
            unit: the unit of its parent; `FORGOTTEN`: any closed unit of its trace.
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
        """Whether a unit of the trace has closed, or a parent in it never arrived."""
        return self._dropped.knows(trace_id) or self._decided.knows(trace_id) or self._given_up.knows(trace_id)

    def give_up(self, trace_id: bytes, parent_id: bytes, *, ambient: bool) -> None:
        """Remember that a parent did not arrive; ``ambient``: whether the spans below it belong to no closed unit."""
        self._given_up.add(trace_id, parent_id)
        if ambient:
            self._ambient.add(trace_id, parent_id)

    def recall(self, trace: OpenTrace) -> None:
        """Set on a trace whether units of it have closed, and whether parents were given up."""
        if self._dropped.knows(trace.id) or self._decided.knows(trace.id):
            trace.forgot, trace.over_ns = True, -1
        trace.gave_up = self._given_up.knows(trace.id)

    def is_over(self, trace: OpenTrace, root_id: bytes) -> bool:
        """Whether the id is the root of a closed unit with forgotten ids."""
        return trace.forgot and (self._dropped.has(trace.id, root_id) or self._decided.has(trace.id, root_id))

    def comes_late(self, trace_id: bytes, span_id: bytes) -> bool:
        """Record the arrival of a claimed span; return whether it had been given up."""
        self._ambient.discard(trace_id, span_id)
        return self._given_up.has(trace_id, span_id)

    def is_ambient(self, trace_id: bytes, parent_id: bytes) -> bool:
        """Whether the parent did not arrive, with units that may be below it."""
        return self._ambient.has(trace_id, parent_id)


class OpenTraces:
    """The traces with remembered ids, in the order of their latest span.

    Args:
        most: number of kept spare traces; beyond it the oldest is dropped.

    Attributes:
        spare: traces without an open unit and without a waiting claimed span.
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
        """Record the arrival of a span."""
        trace.last_ns = now_ns
        self.by_id.move_to_end(trace.id)
        if trace.spare:
            self.spare.move_to_end(trace)

    def has_room(self, trace: OpenTrace) -> bool:
        """Drop other spare traces until there is room for an id of this one. False: there are no other spare ones."""
        while self._ids >= self._most_ids:
            oldest = next(iter(self.spare), trace)
            if oldest is trace:
                return False
            self.drop(oldest)
        return True

    def use(self, trace: OpenTrace) -> None:
        """Record that a trace has an open unit, or a waiting claimed span."""
        if trace.spare:
            trace.spare = False
            del self.spare[trace]

    def loosen(self, trace: OpenTrace) -> None:
        """Record one more id without a unit in a trace."""
        trace.loose += 1
        self._ids += 1 - trace.forget_loose()
        self.lay_aside(trace)

    def put_gone(self, trace: OpenTrace, span_id: bytes, owner: GatheredUnit) -> GatheredUnit:
        """Record the id of a span of a closed unit; return the unit that represents it."""
        gone = trace.nodes[span_id] = ORPHANED if owner is ORPHANED else FORGOTTEN
        self.loosen(trace)
        return gone

    def tighten(self, trace: OpenTrace) -> None:
        """Record that an id without a unit has one now."""
        trace.loose -= 1
        self._ids -= 1

    def note(self, unit: GatheredUnit) -> None:
        """Record one more unclaimed span of a unit."""
        unit.ids += 1
        self._ids += 1

    def bury(self, unit: GatheredUnit) -> None:
        """Drop the spans of a closed unit, its ids if they are worth a walk, and its trace if it is empty."""
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
        """Forget a trace, and break its reference cycle with its units, which frees both at once."""
        if self.by_id.get(trace.id) is trace:
            del self.by_id[trace.id]
            self._ids -= trace.loose
            trace.nodes.clear()
            trace.waiting.clear()
            if trace.spare:
                del self.spare[trace]

    def lay_aside(self, trace: OpenTrace) -> None:
        """Make a trace spare, if it has no open unit and no waiting claimed span."""
        if trace.spare or trace.units or trace.bytes or self.by_id.get(trace.id) is not trace:
            return
        trace.spare = True
        self.spare[trace] = None
        if len(self.spare) > self._most:
            self.drop(next(iter(self.spare)))


class KeptUnits:
    """Closed units with spans that are kept for a next revision, in the order of closing.

    Args:
        traces: the traces of the units.
        most_bytes: maximum bytes of kept spans; beyond it the oldest unit is dropped.
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
        """Remove a unit, because it is open again. False: it was not kept."""
        if unit not in self.units:
            return False
        del self.units[unit]
        self.bytes -= unit.bytes
        unit.kept = False
        unit.trace.kept -= 1
        return True

    def let_old_go(self, last_ns: int) -> None:
        """Drop the spans of units without a span since then."""
        for unit in [*takewhile(lambda unit: unit.last_ns <= last_ns, self.units)]:
            self.let_go(unit)

    def let_go(self, unit: GatheredUnit) -> None:
        """Drop the spans of a unit."""
        self.take(unit)
        self._traces.bury(unit)


class BriefUnit(NamedTuple):
    """A whole unit of one request that no rate samples and that is all of its trace.

    Attributes:
        root: its topmost span.
        ids: ids of its claimed spans → their parents' ids.
        arrival: arrival number, as in ``OpenTrace``.
        last_ns: time of its arrival.
        bytes: bytes of its root, plus 400.
    """

    root: WireSpan
    ids: Mapping[bytes, bytes]
    arrival: int
    last_ns: int
    bytes: int

    @property
    def key(self) -> UnitKey:
        """Its key in all other modules."""
        return unit_key(self.root)


class BriefUnits:
    """Brief units, in the order of arrival: nearly every unit is one. A trace with further spans gets an ``OpenTrace``.

    Args:
        past: remembers closed units.
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
        """Keep a unit and return its bytes; 0: its trace is already known, and the unit is not kept."""
        trace_id, _, _, _, raw, _ = root
        if trace_id in self._units or self._past.knows(trace_id):
            return 0
        size = len(raw) + SPAN_BYTES
        self._units[trace_id] = _brief(BriefUnit, (root, ids, arrival, now_ns, size))
        return size

    def take(self, trace_id: bytes) -> BriefUnit | None:
        """Remove and return the unit of a trace; None without one."""
        return self._units.pop(trace_id, None)

    def over(self, last_ns: int) -> list[ClosedUnit]:
        """Remove and return the units that arrived by then."""
        units, closed = self._units, list[ClosedUnit]()
        for root, _, _, came_ns, size in units.values():
            if came_ns > last_ns:
                break
            closed.append(_closed(ClosedUnit, (root, (), _NOT_SAMPLED, 0, size, NO_LINKS)))
        for _ in closed:
            units.popitem(last=False)
        self._past.drop([unit[0] for unit in closed])
        return closed

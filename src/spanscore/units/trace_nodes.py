"""What a ``TraceTable`` is bound by, gives, and knows of one trace and of one unit in it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, NamedTuple

from spanscore.core.codecs.otlp_request import Origin, WireSpan, times_of
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey

__all__ = [
    "FORGOTTEN",
    "NO_LINKS",
    "NO_SPANS",
    "ORPHANED",
    "SPAN_BYTES",
    "Bounds",
    "ClosedUnit",
    "GatheredUnit",
    "Node",
    "OpenTrace",
    "unit_key",
]

SPAN_BYTES: Final = 400
"""What a span that waits takes beside its own bytes: 300 to 410 were seen. A trace takes 650 more: ``traces`` bounds that."""
_MOST_LOOSE: Final = 10_000
"""Ids of one trace that are remembered for the sake of their children alone; past them the older half is forgotten."""


Links = dict[bytes, bytes]
"""Ids of spans → their parents' ids."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """``settings.serving.Units``, times in nanoseconds; ``bytes`` and ``traces`` are for the caller to hold."""

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
        root: its top-most span.
        spans: the claimed ones, root included, in the order in which they came; empty where it is not followed.
        outcome: None = whole; INCOMPLETE (by age, spans, bytes, a shutdown, or a late root), NOT_SAMPLED (it is not followed).
        revision: how often it was closed before.
        bytes: of its spans, as ``TraceTable.bytes``.
        unread: ids of its spans that are not claimed → their parents' ids; empty if it is not followed.
        has_late_root: its root came when other spans of it had been given up.
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
        """Why it is not whole; None if no more is known than its outcome."""
        return "late_root" if self.has_late_root and self.outcome is Outcome.INCOMPLETE else None

    @property
    def key(self) -> UnitKey:
        """Its name everywhere else, which nobody asks for of most."""
        return unit_key(self.root)


def unit_key(root: WireSpan) -> UnitKey:
    """Return the name that a unit has everywhere else."""
    return UnitKey(int.from_bytes(root[0], "big"), int.from_bytes(root[1], "big"))


NO_SPANS: Final[dict[int, WireSpan]] = {}
"""Of every unit that is not followed: a dict less for the garbage collector to look at."""
NO_LINKS: Final[Links] = {}
"""Likewise."""


class GatheredUnit:
    """A unit whose root is known, from then until it is forgotten.

    Attributes:
        spans: arrival → span; empty of one that is not followed.
        unread: ids of spans that are not claimed → their parents' ids; likewise.
        count: of its claimed spans, whether they are kept or not.
        bytes: of the kept ones.
        ids: of spans that are not claimed.
        since_ns: when the first of them came.
        last_ns: when the latest span of it came, claimed or not.
        has_late_root: its root came when other spans of it had been given up.
        closed: it was handed on.
        kept: it was, and its spans are kept for a next revision.
        end_ns: the latest end among the root and the spans that came after it, since the epoch; 0 if no time is known.
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
        """Its name everywhere else."""
        return unit_key(self.root)

    def add(self, span: WireSpan, arrival: int) -> int:
        """Add a claimed span; return the bytes that are kept of it."""
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
        nodes: span id → its unit; None = it is not claimed, and no claimed span is above it; an int = its parent has not
            come, or waits itself, and this is when it came (no two of a table came at the same time).
        waiting: parent's id → what waits for it: a claimed span, or the id of another.
        units: open ones.
        bytes: of the claimed spans in ``waiting``.
        kept: closed units whose spans are kept.
        loose: ids of no unit, of spans that are not claimed or came too late.
        dead: ids of closed units, roughly.
        forgot: ids of its closed units, so what comes may be of these.
        gave_up: spans of which the parent did not come, so it may come now.
        over_ns: when its first unit closed: what has come since, and has no parent, may be of that.
        spare: it has no open unit, and no claimed span waits.
        check_ns: when to look for spans that have waited for too long.
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
        """Return when something came that waits."""
        return self.nodes[entry if entry.__class__ is bytes else entry[1]]  # type: ignore[return-value, index]

    def tops(self, until_ns: int | None) -> Iterator[tuple[bytes, list[WireSpan | bytes]]]:
        """Take out what came by then and whose parent did not come, by that parent; None = whenever it came."""
        for parent_id in [parent_id for parent_id in self.waiting if parent_id not in self.nodes]:
            group = self.waiting.pop(parent_id, [])
            split = len(group) if until_ns is None else bisect([*map(self.arrival, group)], until_ns)
            if split < len(group):
                self.waiting[parent_id] = group[split:]
            if split:
                yield parent_id, group[:split]

    def forget_closed(self) -> None:
        """Forget the ids of units that are over."""
        self.forgot = True
        self.nodes = {
            span_id: node
            for span_id, node in self.nodes.items()
            if node.__class__ is not GatheredUnit or not node.closed or node.kept
        }
        self.dead = 0

    def forget_loose(self) -> int:
        """Forget the older half of the ids of no unit, if they are too many; return how many."""
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
        """Return the ids of no unit in the order in which they came."""
        waiting = {entry for group in self.waiting.values() for entry in group if entry.__class__ is bytes}
        gone = (None, ORPHANED, FORGOTTEN)
        return [span_id for span_id, node in self.nodes.items() if node in gone or span_id in waiting]


Node = GatheredUnit | int | None


def _make_tombstone() -> GatheredUnit:
    """Return what stands for a unit of which nothing is known but that its spans need not wait."""
    nothing = WireSpan(b"", b"", b"", False, b"", Origin(b"", b"", ""))
    unit = GatheredUnit(OpenTrace(b"", 0, 0), nothing, 0, 0, False)
    unit.closed = unit.kept = True
    return unit


FORGOTTEN: Final = _make_tombstone()
"""The unit of late spans whose unit is remembered as closed, and no more."""
ORPHANED: Final = _make_tombstone()
"""The unit of orphans, for spans below them that come later."""

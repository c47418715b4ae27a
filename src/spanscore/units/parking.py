"""Parking: the spans of units between their end and the moment in which all of a unit is out.

root's end ─▶ kept ─▶ parked ─▶ released, with scores ─▶ out
                └─▶ turned back ─▶ out
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Any

from spanscore.core.span import Unit, UnitKey
from spanscore.protocols import PendingSpan
from spanscore.units.roots import split
from spanscore.units.span_buffer import SpanBuffer

__all__ = ["Parking"]


@dataclass(eq=False, repr=False)
class Parking:
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

"""Assembler: single spans in any order → whole units.

A unit closes when its root has ended, no known span of it is open and ``idle_timeout`` has passed since the last one; or
incomplete, by age or size. Closed units are remembered for a while, so that a late span is counted and opens no second
unit. Pure: the clock is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field

from spanscore.core.span import SpanData, Unit, UnitKey

__all__ = ["Assembler"]


@dataclass(slots=True)
class _Open:
    since_ns: int
    last_ns: int
    open_ids: set[int] = field(default_factory=set)
    spans: list[SpanData] = field(default_factory=list)
    size_bytes: int = 0
    root_ended: bool = False
    broken: bool = False

    @property
    def is_whole(self) -> bool:
        return self.root_ended and not self.open_ids


@dataclass(eq=False, repr=False)
class Assembler:
    """Gathers the spans of units until they close. Owned by one thread.

    Attributes:
        quiet_ns: how long a unit whose spans have all ended waits for others; 0 for a receiver that knows what is open.
        max_age_ns: a unit older than this closes incomplete.
        max_spans: a unit with more spans than this closes incomplete.
        max_units: the oldest open unit closes incomplete when there are more.
        max_bytes: of the spans of open units; likewise.
        remembered: how many closed units are remembered: as many as may close before the latest of a unit's spans has come.
    """

    _: KW_ONLY
    quiet_ns: int = 0
    max_age_ns: int = 3_600_000_000_000
    max_spans: int = 2_000
    max_units: int = 10_000
    max_bytes: int = 256_000_000
    remembered: int = 10_000

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every unit: in a forked child."""
        self._units: OrderedDict[UnitKey, _Open] = OrderedDict()
        self._whole: OrderedDict[UnitKey, None] = OrderedDict()  # by their last span, and so as they fall due
        self._full: dict[UnitKey, None] = {}
        self._bytes = 0
        self._closed: OrderedDict[UnitKey, None] = OrderedDict()
        self.late = 0

    def __len__(self) -> int:
        return len(self._units)

    def started(self, key: UnitKey, span_id: int, now_ns: int) -> None:
        """Say that a span began: its unit stays open until it has ended."""
        unit = self._unit(key, now_ns)
        if unit is not None:
            unit.open_ids.add(span_id)
            self._whole.pop(key, None)

    def ended(self, key: UnitKey, span: SpanData, now_ns: int, *, size_bytes: int = 0) -> bool:
        """Add an ended span. False: its unit has closed already, the span is counted as late.

        Args:
            size_bytes: what it holds, roughly, where that is bounded nowhere else.
        """
        unit = self._unit(key, now_ns)
        if unit is None:
            self.late += 1
            return False
        unit.open_ids.discard(span.span_id)
        unit.spans.append(span)
        unit.last_ns = now_ns
        unit.size_bytes += size_bytes
        self._bytes += size_bytes
        unit.root_ended = unit.root_ended or span.span_id == key.span_id
        if unit.is_whole:
            self._whole[key] = None
            self._whole.move_to_end(key)
        if len(unit.spans) >= self.max_spans:
            self._full[key] = None
        return True

    def broken(self, key: UnitKey, now_ns: int) -> None:
        """Say that spans of a unit were lost: it will close incomplete."""
        unit = self._unit(key, now_ns)
        if unit is not None:
            unit.broken = True

    def forget(self, key: UnitKey) -> Unit | None:
        """Close an open unit as it is: its outcome has been decided elsewhere. None: it is not open."""
        return self._close(key) if key in self._units else None

    def due(self, now_ns: int) -> list[Unit]:
        """Close and return the units whose time has come, in the order in which they became ready."""
        due = [*self._quiet(now_ns), *self._full]
        closed = [self._close(key) for key in dict.fromkeys(due)]
        while self._units and self._must_close_oldest(now_ns):
            closed.append(self._close(next(iter(self._units))))
        return closed

    def waiting(self) -> list[UnitKey]:
        """Return the units whose root has ended and of which nothing known is open, and that have not closed yet."""
        return list(self._whole)

    def next_due_ns(self) -> int | None:
        """Return when the next unit closes if no further span comes, None when no unit is open."""
        oldest, first = next(iter(self._units.values()), None), next(iter(self._whole), None)
        if oldest is None:
            return None
        by_age = oldest.since_ns + self.max_age_ns
        return by_age if first is None else min(by_age, self._units[first].last_ns + self.quiet_ns)

    def _unit(self, key: UnitKey, now_ns: int) -> _Open | None:
        unit = self._units.get(key)
        if unit is None and key not in self._closed:
            unit = self._units[key] = _Open(since_ns=now_ns, last_ns=now_ns)
        return unit

    def _quiet(self, now_ns: int) -> Iterator[UnitKey]:
        for key in self._whole:
            if now_ns - self._units[key].last_ns < self.quiet_ns:
                return
            yield key

    def _must_close_oldest(self, now_ns: int) -> bool:
        oldest = next(iter(self._units.values()))
        is_old = now_ns - oldest.since_ns >= self.max_age_ns
        return is_old or len(self._units) > self.max_units or self._bytes > self.max_bytes

    def _close(self, key: UnitKey) -> Unit:
        unit = self._units.pop(key)
        self._whole.pop(key, None)
        self._full.pop(key, None)
        self._bytes -= unit.size_bytes
        self._closed[key] = None
        if len(self._closed) > self.remembered:
            self._closed.popitem(last=False)
        complete = unit.is_whole and not unit.broken
        return Unit(key=key, spans=tuple(sorted(unit.spans, key=lambda span: span.start_ns)), complete=complete)

"""The buffer of the hold: spans of a unit that may be scored wait here and leave together with the scores.

Bounded in units, spans, bytes and time; what leaves, leaves at a pace: 5,000 spans ended at once into a default batch
processor behind a 50 ms exporter lost half of them, and 512 per 100 ms blindly still lost a third behind a slower one. So
after each 512 spans the next batch goes only when the provider's ``force_flush`` has returned, or after two seconds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from spanscore.core.event_queue import yield_gil
from spanscore.core.span import UnitKey
from spanscore.protocols import PendingSpan

__all__ = ["RELEASE_REASONS", "Pace", "SpanBuffer"]

RELEASE_REASONS = ("done", "deadline", "overflow", "shutdown")
"""Why a unit leaves."""

_SECOND_NS = 1_000_000_000


@dataclass(eq=False, repr=False)
class Pace:
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

    pace: Pace
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

"""ForeignUnit: what is remembered of a unit whose spans another library makes. OpenUnits: which of them a span belongs to."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final

from spanscore.model.span import Facts, SpanData, UnitKey
from spanscore.receivers.processor.held_span import HeldSpan
from spanscore.runtime.clock import steady_ns

__all__ = ["FollowedUnit", "ForeignUnit", "OpenUnits"]

_REMEMBERED_NS: Final = 10_000_000_000
"""How long the spans of an ended root are remembered: one that starts late (a task left behind) must not become a root."""
_MOST_UNITS: Final = 10_000
_MOST_SPANS: Final = 200_000
"""Spans remembered, some 0.2 kB each: past them those of ended roots are forgotten early, oldest first."""


Ended = tuple[SpanData, HeldSpan | None, int]
"""A span that was read, how it leaves, and its size."""


@dataclass(slots=True, eq=False)
class ForeignUnit:
    """One unit, from its root's start until its late spans are no longer awaited. Of one that is not followed this is all.

    Attributes:
        excluded: by what sampling has excluded it, until it counts as not sampled: once it is seen to be a unit at all.
        spans: trace id and span id of all of its spans.
        since_ns: when it began.
        ended: its root has.
    """

    key: UnitKey
    excluded: Facts | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)
    since_ns: int = field(default_factory=steady_ns)
    ended: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class FollowedUnit(ForeignUnit):
    """One that may be scored: its spans are read, and wait.

    Attributes:
        root: the live span; None when it was handed on.
        front: the processor that saw it begin.
        session: id of the conversation, where ``spanscore.session`` gives one; else its root may.
        open: its spans that have not ended: the application's threads add them, the span thread takes them away.
        broken: spans of it were passed on unread.
        done: it was handed on, or given up: what comes is passed on at once.

    The rest is the span thread's:
        seen: an event of it was read.
        opened: it was told that it began.
        is_unit: a span of it asks or answers something.
        held: the spans that have ended → how they leave; None where they have left.
        early: those that ended before anything told that it is a unit.
        root_ended: the root, which waits for spans that are open.
        closes_ns: when it does so no longer.
    """

    root: Any
    front: object
    session: str | None = None
    open: dict[int, None] = field(default_factory=dict)
    broken: bool = False
    done: bool = False
    seen: bool = False
    opened: bool = False
    is_unit: bool = False
    held: dict[int, HeldSpan | None] = field(default_factory=dict)
    early: list[Ended] = field(default_factory=list)
    root_ended: Ended | None = None
    closes_ns: int = 0


class OpenUnits:
    """Which unit a span belongs to, by its parent. Written by the application's threads, without a lock: a step is a dict's.

    Attributes:
        of: trace id and span id → unit.
        running: those whose root has not ended, oldest first.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], ForeignUnit] = {}
        self.running: OrderedDict[UnitKey, ForeignUnit] = OrderedDict()
        self._ended: deque[tuple[int, ForeignUnit]] = deque()
        self._given_up: OrderedDict[UnitKey, ForeignUnit] = (
            OrderedDict()
        )  # they may run on: remembered while there is room

    def begin(self, unit: ForeignUnit) -> ForeignUnit | None:
        """Remember a unit by its root; return the one that has to make room, which is as good as ended."""
        self.running[unit.key] = unit
        self.of[unit.key] = unit
        unit.spans.append(unit.key)
        if len(self.running) <= _MOST_UNITS:
            return None
        _, oldest = self.running.popitem(last=False)
        self._given_up[oldest.key] = oldest
        while len(self.of) > _MOST_SPANS and self._given_up:
            self._forget(self._given_up.popitem(last=False)[1])
        return oldest

    def oldest(self) -> ForeignUnit | None:
        """Return the unit that has been running for longest, None where none runs. Never raises."""
        try:
            return next(iter(self.running.values()), None)
        except RuntimeError:  # one began or ended on another thread just now
            return None

    def end(self, unit: ForeignUnit, now_ns: int) -> None:
        """Note that a root has ended, and forget those that ended long ago. Called once."""
        unit.ended = True
        self.running.pop(unit.key, None)
        self._given_up.pop(unit.key, None)
        self._ended.append((now_ns, unit))
        try:
            while now_ns - self._ended[0][0] >= _REMEMBERED_NS or len(self.of) > _MOST_SPANS:
                self._forget(self._ended.popleft()[1])
        except IndexError:  # none is left, or another thread was faster
            return

    def _forget(self, unit: ForeignUnit) -> None:
        for ids in unit.spans:
            self.of.pop(ids, None)

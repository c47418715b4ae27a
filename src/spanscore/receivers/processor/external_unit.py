"""ExternalUnit, a topmost span with those below it; PlainSpan, an open span of no unit; OpenUnits, the unit of each span."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from spanscore.core.event_queue import steady_ns
from spanscore.core.span import SamplingContext, SpanData, UnitKey
from spanscore.pipeline.assembly import RootRole, topmost_roots
from spanscore.receivers.processor.held_span import HeldSpan

__all__ = ["ExternalUnit", "FollowedUnit", "Ids", "OpenUnits", "PlainSpan", "facts_of"]

_REMEMBERED_NS: Final = 10_000_000_000
"""How long the spans of an ended root are remembered: one that starts late (a task left behind) must not become a root."""
_MOST_UNITS: Final = 10_000
_MOST_SPANS: Final = 200_000
"""Spans remembered, some 0.2 kB each: past them those of ended roots are forgotten early, oldest first."""


_MOST_WAITING: Final = 100
"""Units that wait for one span to end: a span around a whole batch job has thousands below it."""

Ids = tuple[int, int]
"""Trace id and span id."""
Ended = tuple[SpanData, HeldSpan | None, int]
"""A span that was read, how it leaves, and its size."""


@dataclass(slots=True, eq=False, kw_only=True)
class ExternalUnit:
    """A topmost span and the spans below it, until late ones are no longer awaited. The application's threads write it.

    Attributes:
        key: trace id and span id of the topmost span.
        facts: what sampling decides by; None = the unit was counted, or the spans make no unit.
        around: the open span above it that may turn out to be its root; None = there is none.
        role: of the topmost span; None = its attributes have not shown it so far.
        parent_id: of the topmost span; None = it has none.
        below: id of each claimed span that ended → its parent's id and its role, if those decide which of them are roots.
        unnoted: ended spans that are not in `below` yet.
        unread: ids of spans below it that are not claimed → their parents' ids.
        spans: trace id and span id of all of its spans.
        since_ns: when it began.
        ended: the topmost span has ended.
        settled: no open span can become its root any more.
    """

    key: UnitKey
    facts: SamplingContext | None = None
    around: PlainSpan | None = None
    role: RootRole | None = None
    parent_id: int | None = None
    below: dict[int, tuple[int | None, RootRole]] = field(default_factory=dict)
    unnoted: list[ReadableSpan] = field(default_factory=list)
    unread: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)
    since_ns: int = field(default_factory=steady_ns)
    ended: bool = False
    settled: bool = False

    def roots(self) -> list[int]:
        """Return the span ids of the roots of the units that these spans make, by what was noted of them."""
        top = self.key.span_id
        if self.role in (None, RootRole.ROOT):
            return [top]
        roles = {span_id: role for span_id, (_, role) in self.below.items()} | {top: self.role}
        parents = [(span_id, parent_id) for span_id, (parent_id, _) in self.below.items()]
        return topmost_roots(top, parents, roles.__getitem__, self.unread)


@dataclass(slots=True, eq=False, kw_only=True)
class FollowedUnit(ExternalUnit):
    """One that may be scored: its spans are read, and wait.

    Attributes:
        root: the live span; None when the unit was handed on.
        front: the processor that saw it begin.
        own: whether it may be scored with this root; else only with a span above it as the root.
        parts: units that became parts of this one, as its root was recognised after they had begun.
        shared: metrics that other scorers of the process give it.
        session: id of the conversation, where ``spanscore.session`` gives one; else its root may.
        open: its spans that have not ended: the application's threads add them, the span thread takes them away.
        broken: spans of it were passed on unread.
        done: it was handed on, or given up: what comes is passed on at once.

    The rest is the span thread's:
        seen: an event of it was read.
        handed_on: its ended spans were handed on before its root.
        is_unit: some span of it can be a root.
        held: the spans that have ended → how they leave; None where they have left.
        early: the spans that ended and were not handed on.
        root_ended: the root, which waits for spans that are open.
        closes_ns: when it does so no longer.
    """

    root: Any
    front: object
    own: bool = True
    parts: list[FollowedUnit] = field(default_factory=list)
    shared: frozenset[str] = frozenset()
    session: str | None = None
    open: dict[int, None] = field(default_factory=dict)
    broken: bool = False
    done: bool = False
    seen: bool = False
    handed_on: bool = False
    is_unit: bool = False
    held: dict[int, HeldSpan | None] = field(default_factory=dict)
    early: list[Ended] = field(default_factory=list)
    root_ended: Ended | None = None
    closes_ns: int = 0


@dataclass(slots=True, eq=False)
class PlainSpan:
    """An open span of a scope that no translation names.

    Attributes:
        ids: trace id and span id.
        span: the live span.
        above: the open plain span above it; None = there is none.
        may: whether a unit with this span as its root may be scored; None = not looked up so far.
        waiting: units below it whose root has ended, while it is not known whether this span is their root.
        decided: some unit below it was decided on: this span can be no root any more.
        ended: it has ended.
        unit: the unit whose root it became, as it got GenAI attributes while it was open; None = it became no root.
    """

    ids: Ids
    span: Any
    above: PlainSpan | None
    may: bool | None = None
    waiting: list[ExternalUnit] = field(default_factory=list)
    decided: bool = False
    ended: bool = False
    unit: ExternalUnit | None = None

    def unit_above(self) -> ExternalUnit | None:
        """Return the unit that this span or one above it became the root of; None = there is none."""
        span: PlainSpan | None = self
        while span is not None and span.unit is None:
            span = span.above
        return None if span is None else span.unit

    def open_line(self) -> Iterator[PlainSpan]:
        """Give this span and those above it that are open, the nearest first."""
        span: PlainSpan | None = self
        while span is not None:
            if not span.ended:
                yield span
            span = span.above

    def await_end(self, unit: ExternalUnit) -> list[ExternalUnit]:
        """Have a unit wait for the end of this span; return the units that are to wait no longer, as there are too many."""
        self.waiting.append(unit)
        if len(self.waiting) <= _MOST_WAITING:
            return []
        released, self.waiting = self.waiting[:-1], self.waiting[-1:]
        self.decided = True
        return [unit for unit in released if not unit.settled]

    def let_go(self) -> list[ExternalUnit]:
        """Return the units that still wait for this span, which has ended."""
        waiting, self.waiting = self.waiting, []
        self.decided = self.decided or any(unit.settled for unit in waiting)
        return [unit for unit in waiting if not unit.settled]


def facts_of(root: UnitKey, facts: SamplingContext) -> SamplingContext:
    """Return what sampling decides by for a unit below a topmost span, whose facts are given."""
    return facts if root == facts.key else facts._replace(key=root, sampled_by=facts.key)


class OpenUnits:
    """Which unit a span belongs to, by its parent. Written by the application's threads, without a lock: a step is a dict's.

    Attributes:
        of: trace id and span id → unit.
        running: those whose root has not ended, oldest first.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], ExternalUnit] = {}
        self.running: OrderedDict[UnitKey, ExternalUnit] = OrderedDict()
        self._ended: deque[tuple[int, ExternalUnit]] = deque()
        self._given_up: OrderedDict[UnitKey, ExternalUnit] = (
            OrderedDict()
        )  # they may run on: remembered while there is room

    def begin(self, unit: ExternalUnit) -> ExternalUnit | None:
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

    def oldest(self) -> ExternalUnit | None:
        """Return the unit that has been running for longest, None where none runs. Never raises."""
        try:
            return next(iter(self.running.values()), None)
        except RuntimeError:  # one began or ended on another thread just now
            return None

    def end(self, unit: ExternalUnit, now_ns: int) -> None:
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

    def _forget(self, unit: ExternalUnit) -> None:
        for ids in unit.spans:
            self.of.pop(ids, None)

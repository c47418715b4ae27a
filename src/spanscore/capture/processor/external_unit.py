"""The state of units of spans from other instrumentations in this process.

- A *followed* unit may be scored. Any other unit is only counted.
- A *plain* span has a scope that no normalizer names. Such a span becomes a root if it gets GenAI attributes while it is open.
- A *settled* unit has no open plain span above it, which could become its root.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore.core.codecs.sdk import with_attributes
from spanscore.core.event_queue import steady_ns
from spanscore.core.log import log_internal_error
from spanscore.core.span import SamplingContext, SpanData, UnitKey
from spanscore.pipeline.assembly import RootRole, topmost_roots


@dataclass(slots=True, eq=False)
class HeldSpan:
    """A ``PendingSpan`` that another library created and ended. ``end`` passes it to each processor in ``_targets``, once."""

    _span: ReadableSpan | None
    _targets: list[SpanProcessor]
    size: int
    ended: bool = False

    def add_processors(self, targets: Sequence[SpanProcessor]) -> bool:
        """Add processors that get the span. Return False if the span was passed on already."""
        if not self.ended:
            self._targets += [processor for processor in targets if processor not in self._targets]
        return not self.ended

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Pass the span on; with attributes, pass on a copy that has them."""
        span, self._span, self.ended = self._span, None, True
        if span is not None:
            pass_on(with_attributes(span, attributes) if attributes else span, self._targets)


def pass_on(span: ReadableSpan, targets: Sequence[SpanProcessor]) -> None:
    """Pass a span to processors. Never raises; an error in one does not affect other processors."""
    for processor in targets:
        try:
            processor.on_end(span)
        except BaseException as error:  # noqa: BLE001  (application code; SystemExit would end the span thread)
            log_internal_error("pass a span on", error)


_REMEMBERED_NS: Final = 10_000_000_000
"""Time for which the spans of an ended root are remembered, so that a late child (of a background task) becomes no root."""
_MOST_PLAIN: Final = 10_000
"""Number of remembered open plain spans, some 0.3 kB each. Above it, the oldest is forgotten."""
MOST_UNITS: Final = 10_000
"""Number of remembered units with an open root. Above it, the oldest is given up."""
MOST_SPANS: Final = 200_000
"""Number of remembered spans, some 0.2 kB each. Above it, the spans of the oldest ended roots are forgotten early."""
_MOST_WAITING: Final = 100
"""Maximum number of units that wait for one span to end. A span around a batch job has thousands of units below it."""

Ids = tuple[int, int]
"""Trace id and span id."""
Ended = tuple[SpanData, HeldSpan | None, int]
"""An ended span, its pending span (None = no processor waits for it), and its size in bytes."""


@dataclass(slots=True, eq=False, kw_only=True)
class ExternalUnit:
    """A topmost span and the spans below it, kept for ``_REMEMBERED_NS`` after its end. Written by the application's threads.

    Attributes:
        key: trace id and span id of the topmost span.
        facts: facts for the sampling decision; None = the unit was counted, or the spans make no unit.
        open_above: nearest open plain span above the topmost span, which may become the unit's root; None = no such span.
        role: role of the topmost span; None = unknown so far.
        parent_id: id of the topmost span's parent; None = it has no parent.
        roles: id of an ended claimed span → (its parent's id, its role), if the roles decide which spans are roots.
        kept_spans: ended spans that are not in `roles` yet.
        unread: id of each unclaimed span below the topmost span → its parent's id.
        spans: trace id and span id of all spans.
        started_ns: monotonic time of the start.
        ended: whether the topmost span has ended.
        settled: whether no plain span can become its root any more.
    """

    key: UnitKey
    facts: SamplingContext | None = None
    open_above: PlainSpan | None = None
    role: RootRole | None = None
    parent_id: int | None = None
    roles: dict[int, tuple[int | None, RootRole]] = field(default_factory=dict)
    kept_spans: list[ReadableSpan] = field(default_factory=list)
    unread: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)
    started_ns: int = field(default_factory=steady_ns)
    ended: bool = False
    settled: bool = False

    def roots(self) -> list[int]:
        """Return the span ids of the roots among these spans, by the roles that were recorded so far."""
        top = self.key.span_id
        if self.role in (None, RootRole.ROOT):
            return [top]
        roles = {span_id: role for span_id, (_, role) in self.roles.items()} | {top: self.role}
        parents = [(span_id, parent_id) for span_id, (parent_id, _) in self.roles.items()]
        return topmost_roots(top, parents, roles.__getitem__, self.unread)


@dataclass(slots=True, eq=False, kw_only=True)
class FollowedUnit(ExternalUnit):
    """A unit that may be scored. The unit's spans are read, and wait for scores.

    Attributes:
        root: the live span; None after the unit was handed on.
        processor: the processor that observed the start of the root.
        may_be_sampled: whether the sampler may sample the unit with this root. If not, the unit is counted as excluded, unless
            a span above it becomes its root.
        parts: units below this unit's root that were begun before the root was recognised.
        shared: metrics that other scorers in the process score on the unit.
        session: id of the conversation from ``spanscore.session``; None = the root's attributes may have one.
        open: ids of spans that have not ended. The application's threads add them, the span thread removes them.
        incomplete: whether spans of the unit were lost, or passed on unread.
        finished: whether the unit was handed on or released; further spans are passed on immediately.
        is_read: whether the span thread has read an event of the unit. Only the span thread uses this and the next attributes.
        handed_on: whether its ended spans were handed on before its root.
        is_unit: whether one of its spans can be a root.
        pending: id of an ended span → its pending span; None after it was passed on.
        early: ended spans that were not handed on.
        root_ended: the ended root, which waits for open spans.
        closes_ns: time at which the root stops waiting.
    """

    root: Any
    processor: object
    may_be_sampled: bool = True
    parts: list[FollowedUnit] = field(default_factory=list)
    shared: frozenset[str] = frozenset()
    session: str | None = None
    open: dict[int, None] = field(default_factory=dict)
    incomplete: bool = False
    finished: bool = False
    is_read: bool = False
    handed_on: bool = False
    is_unit: bool = False
    pending: dict[int, HeldSpan | None] = field(default_factory=dict)
    early: list[Ended] = field(default_factory=list)
    root_ended: Ended | None = None
    closes_ns: int = 0


@dataclass(slots=True, eq=False)
class PlainSpan:
    """An open span of a scope that no normalizer names.

    Attributes:
        ids: trace id and span id.
        above: the open plain span above it; None = no such span.
        may_be_scored: whether a unit with this span as its root may be scored; None = unknown so far.
        waiting: units below it with an ended root, which wait for this span to end, because it may become their root.
        decided: whether a unit below it was settled; then this span can no longer become a root.
        unit: the unit of which this span became the root, because it got GenAI attributes while open; None = no root.
    """

    ids: Ids
    span: Any
    above: PlainSpan | None
    may_be_scored: bool | None = None
    waiting: list[ExternalUnit] = field(default_factory=list)
    decided: bool = False
    ended: bool = False
    unit: ExternalUnit | None = None

    def unit_above(self) -> ExternalUnit | None:
        """Return the unit that has this span, or a span above it, as its root; None without such a unit."""
        span: PlainSpan | None = self
        while span is not None and span.unit is None:
            span = span.above
        return None if span is None else span.unit

    def open_spans(self) -> Iterator[PlainSpan]:
        """Yield this span and the spans above it that are open, the nearest first."""
        span: PlainSpan | None = self
        while span is not None:
            if not span.ended:
                yield span
            span = span.above

    def await_end(self, unit: ExternalUnit) -> list[ExternalUnit]:
        """Make a unit wait for the end of this span. Return the units that stop waiting because too many wait."""
        self.waiting.append(unit)
        if len(self.waiting) <= _MOST_WAITING:
            return []
        released, self.waiting = self.waiting[:-1], self.waiting[-1:]
        self.decided = True
        return [unit for unit in released if not unit.settled]

    def pop_waiting(self) -> list[ExternalUnit]:
        """Remove and return the units that wait for this ended span."""
        waiting, self.waiting = self.waiting, []
        self.decided = self.decided or any(unit.settled for unit in waiting)
        return [unit for unit in waiting if not unit.settled]


def facts_of(root: UnitKey, facts: SamplingContext) -> SamplingContext:
    """Return the sampling facts of the unit with this root, which is the span of ``facts`` or is below it."""
    return facts if root == facts.key else facts._replace(key=root, sampled_by=facts.key)


class OpenUnits:
    """Finds the unit of each span. The application's threads write it without a lock: each step is one dict operation.

    Attributes:
        by_span: trace id and span id → unit.
        plain: trace id and span id → open plain span; for a span that is never a root, the plain span above it.
        running: units with an open root, oldest first.
    """

    def __init__(self) -> None:
        self.by_span: dict[tuple[int, int], ExternalUnit] = {}
        self.plain: OrderedDict[Ids, PlainSpan] = OrderedDict()
        self.running: OrderedDict[UnitKey, ExternalUnit] = OrderedDict()
        self._ended: deque[tuple[int, ExternalUnit]] = deque()
        # Units that were removed from ``running`` with an open root, oldest first.
        self._given_up: OrderedDict[UnitKey, ExternalUnit] = OrderedDict()

    def begin(self, unit: ExternalUnit) -> ExternalUnit | None:
        """Add a unit. Return the oldest unit if it was removed to make room; treat that unit as ended."""
        self.running[unit.key] = unit
        self.by_span[unit.key] = unit
        unit.spans.append(unit.key)
        if len(self.running) <= MOST_UNITS:
            return None
        _, oldest = self.running.popitem(last=False)
        self._given_up[oldest.key] = oldest
        while len(self.by_span) > MOST_SPANS and self._given_up:
            self._forget(self._given_up.popitem(last=False)[1])
        return oldest

    def oldest(self) -> ExternalUnit | None:
        """Return the unit that has run for longest; None if no unit runs. Never raises."""
        try:
            return next(iter(self.running.values()), None)
        except RuntimeError:  # another thread just added or removed a unit
            return None

    def end(self, unit: ExternalUnit, now_ns: int) -> None:
        """Record the end of a root, and forget units that ended long ago. Called once per root."""
        unit.ended = True
        self.running.pop(unit.key, None)
        self._given_up.pop(unit.key, None)
        self._ended.append((now_ns, unit))
        try:
            while now_ns - self._ended[0][0] >= _REMEMBERED_NS or len(self.by_span) > MOST_SPANS:
                _, past = self._ended.popleft()
                waits = isinstance(past, FollowedUnit) and past.root_ended is not None  # for spans
                if waits and len(self.by_span) <= MOST_SPANS:
                    self._ended.append((now_ns, past))
                else:
                    self._forget(past)
        except IndexError:  # empty, or another thread was faster
            return

    def start_plain(self, ids: Ids, span: Any, above: PlainSpan | None) -> list[ExternalUnit]:
        """Add a started span. Return the units that waited for the span that was removed to make room."""
        if ids in self.plain:  # another processor added it
            return []
        self.plain[ids] = PlainSpan(ids, span, above)
        if len(self.plain) <= _MOST_PLAIN:
            return []
        _, oldest = self.plain.popitem(last=False)
        oldest.ended = True
        return oldest.pop_waiting()

    def end_plain(self, ids: Ids) -> PlainSpan | None:
        """Remove and return an ended span; None if it is not a plain span."""
        span = self.plain.pop(ids, None)
        if span is None or span.ids != ids:
            return None
        span.ended = True
        return span

    def _forget(self, unit: ExternalUnit) -> None:
        for ids in unit.spans:
            self.by_span.pop(ids, None)


class Signal(Enum):
    """An event about a unit that is not the end of a span."""

    GIVE_UP = auto()
    """The unit is finished without the end of its root."""
    SETTLED = auto()
    """No open span above the unit can become its root any more."""
    DROP = auto()
    """The unit became part of a unit that cannot be scored."""


Event = tuple[FollowedUnit, ReadableSpan | Signal, Sequence[SpanProcessor], int]
"""The unit, its ended span or a signal, the processors that get the span, its size in bytes."""

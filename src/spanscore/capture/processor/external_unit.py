"""The state of units of spans from other instrumentations in this process, and the reading of these spans.

The application's threads link each span to its unit at its start, and queue it at its end. The span thread reads the ended
spans, and keeps them as ``early`` until the unit and its root are certain. Then the span thread hands them on to the
listener. After the root has ended, the span thread waits for open spans of the unit, and finishes the unit.

- A *followed* unit may be scored. Any other unit is only counted.
- A *plain* span has a scope that no normalizer names. Such a span becomes a root if it gets GenAI attributes while it is open.
- A *settled* unit has no open span above it that can become its root.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from time import time_ns
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore.capture.log_content import LogContent
from spanscore.core.codecs.sdk import span_data, with_attributes
from spanscore.core.event_queue import steady_ns
from spanscore.core.log import log_internal_error
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import GRACE_NS, RootRole, role_of_operation, split, topmost_roots
from spanscore.protocols import UnitListener
from spanscore.samples.normalizers.registry import SpanNormalizers


@dataclass(slots=True, eq=False)
class HeldSpan:
    """A ``PendingSpan`` that another library created and ended, and that each processor in ``_exits`` gets once."""

    _span: ReadableSpan | None
    _exits: list[SpanProcessor]
    size: int
    ended: bool = False

    def also(self, exits: Sequence[SpanProcessor]) -> bool:
        """Pass the span to these processors, too. Return False if the span was passed on already."""
        if not self.ended:
            self._exits += [processor for processor in exits if processor not in self._exits]
        return not self.ended

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Pass the span on; with attributes, pass on a copy that has them."""
        span, self._span, self.ended = self._span, None, True
        if span is not None:
            pass_on(with_attributes(span, attributes) if attributes else span, self._exits)


def pass_on(span: ReadableSpan, exits: Sequence[SpanProcessor]) -> None:
    """Pass a span to processors. Never raises; an error in one does not affect other processors."""
    for processor in exits:
        try:
            processor.on_end(span)
        except BaseException as error:  # noqa: BLE001  (application code; SystemExit would end the span thread)
            log_internal_error("pass a span on", error)


_REMEMBERED_NS: Final = 10_000_000_000
"""Time for which the spans of an ended root are remembered. A late child (a task left behind) must not become a root."""
_MOST_PLAIN: Final = 10_000
"""Number of remembered open plain spans, some 0.3 kB each. Above it, the oldest is forgotten."""
MOST_UNITS: Final = 10_000
MOST_SPANS: Final = 200_000
"""Number of remembered spans, some 0.2 kB each. Above it, the spans of the oldest ended roots are forgotten early."""


_MOST_WAITING: Final = 100
"""Maximum number of units that wait for one span to end. A span around a batch job has thousands of units below it."""

Ids = tuple[int, int]
"""Trace id and span id."""
Ended = tuple[SpanData, HeldSpan | None, int]
"""An ended span, its pending original and its size in bytes; None = nothing waits for the span."""


@dataclass(slots=True, eq=False, kw_only=True)
class ExternalUnit:
    """A topmost span and the spans below it, kept for ``_REMEMBERED_NS`` after its end. Written by the application's threads.

    Attributes:
        key: trace id and span id of the topmost span.
        facts: facts for the sampling decision; None = the unit was counted, or the spans make no unit.
        around: open span above the topmost span that may turn out to be the unit's root; None = no such span.
        role: role of the topmost span; None = unknown so far, by its attributes.
        parent_id: parent's id of the topmost span; None = it has no parent.
        below: id of each ended claimed span → its parent's id and its role, if they decide which spans are roots.
        unnoted: ended spans that are not in `below` yet.
        unread: ids of unclaimed spans below the topmost span → their parents' ids.
        spans: trace id and span id of all spans.
        since_ns: monotonic time of the start.
        ended: whether the topmost span has ended.
        settled: whether no open span can become its root any more.
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
        """Return the span ids of the roots of the units among these spans, as far as their roles were recorded."""
        top = self.key.span_id
        if self.role in (None, RootRole.ROOT):
            return [top]
        roles = {span_id: role for span_id, (_, role) in self.below.items()} | {top: self.role}
        parents = [(span_id, parent_id) for span_id, (parent_id, _) in self.below.items()]
        return topmost_roots(top, parents, roles.__getitem__, self.unread)


@dataclass(slots=True, eq=False, kw_only=True)
class FollowedUnit(ExternalUnit):
    """A unit that may be scored. The unit's spans are read, and wait for scores.

    Attributes:
        root: the live span; None after the unit was handed on.
        front: the processor that saw the root start.
        own: whether the sampler may sample the unit with this root. If not, the unit is counted as excluded, unless a span
            above it becomes its root.
        parts: units that became parts of this unit, because this unit's root was recognised after the others had begun.
        shared: metrics that other scorers in the process score on the unit.
        session: id of the conversation from ``spanscore.session``; None = the root's attributes may have one.
        open: ids of spans that have not ended. The application's threads add them, the span thread removes them.
        broken: whether spans of the unit were lost, or passed on unread; the unit is then incomplete.
        done: whether the unit was passed to the listener or abandoned; further spans are passed on immediately.

    Attributes of the span thread:
        seen: whether an event of the unit was read.
        handed_on: whether its ended spans were handed on before its root.
        is_unit: whether one of its spans can be a root.
        held: id of an ended span → its pending span; None after it was passed on.
        early: ended spans that were not handed on.
        root_ended: the ended root, which waits for open spans.
        closes_ns: time at which the root stops waiting.
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
    """An open span of a scope that no normalizer names.

    Attributes:
        ids: trace id and span id.
        span: the live span.
        above: the open plain span above it; None = no such span.
        may_be_scored: whether a unit with this span as its root may be scored; None = unknown so far.
        waiting: units below it with an ended root, while this span may still become their root.
        decided: whether a unit below it was decided; then this span can no longer become a root.
        ended: whether the span has ended.
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

    def open_line(self) -> Iterator[PlainSpan]:
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

    def take_waiting(self) -> list[ExternalUnit]:
        """Remove and return the units that wait for this ended span."""
        waiting, self.waiting = self.waiting, []
        self.decided = self.decided or any(unit.settled for unit in waiting)
        return [unit for unit in waiting if not unit.settled]


def facts_of(root: UnitKey, facts: SamplingContext) -> SamplingContext:
    """Return the sampling facts of a unit below a topmost span with the given facts."""
    return facts if root == facts.key else facts._replace(key=root, sampled_by=facts.key)


class OpenUnits:
    """The unit of each span, found by its parent. Written by the application's threads without a lock: each step is one dict
    operation.

    Attributes:
        of: trace id and span id → unit.
        plain: trace id and span id → open plain span; for a span that is never a root, the plain span above it.
        running: units with an open root, oldest first.
    """

    def __init__(self) -> None:
        self.of: dict[tuple[int, int], ExternalUnit] = {}
        self.plain: OrderedDict[Ids, PlainSpan] = OrderedDict()
        self.running: OrderedDict[UnitKey, ExternalUnit] = OrderedDict()
        self._ended: deque[tuple[int, ExternalUnit]] = deque()
        # Units that may continue: remembered up to a maximum.
        self._given_up: OrderedDict[UnitKey, ExternalUnit] = OrderedDict()

    def begin(self, unit: ExternalUnit) -> ExternalUnit | None:
        """Add a unit. Return the oldest unit if it was removed to make room; treat that unit as ended."""
        self.running[unit.key] = unit
        self.of[unit.key] = unit
        unit.spans.append(unit.key)
        if len(self.running) <= MOST_UNITS:
            return None
        _, oldest = self.running.popitem(last=False)
        self._given_up[oldest.key] = oldest
        while len(self.of) > MOST_SPANS and self._given_up:
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
            while now_ns - self._ended[0][0] >= _REMEMBERED_NS or len(self.of) > MOST_SPANS:
                self._forget(self._ended.popleft()[1])
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
        return oldest.take_waiting()

    def end_plain(self, ids: Ids) -> PlainSpan | None:
        """Remove and return an ended span; None if it is not a plain span."""
        span = self.plain.pop(ids, None)
        if span is None or span.ids != ids:
            return None
        span.ended = True
        return span

    def _forget(self, unit: ExternalUnit) -> None:
        for ids in unit.spans:
            self.of.pop(ids, None)


PLAIN_GRACE_NS: Final = 2_000_000_000
"""Time in nanoseconds for which a unit waits for the open spans above it, one of which may turn out to be its root."""
_MOST_EARLY: Final = 100
"""Number of spans that are kept as ``early``. At this number they count as a unit with the topmost span as its root."""
_LOG_BYTES: Final = 16_000_000
_LOG_WAIT_NS: Final = 600_000_000_000
"""Time for which content in log records waits for the end of its span, in nanoseconds; ``_LOG_BYTES`` limits its size."""
_UNIT_ROLES: Final = (RootRole.ROOT, RootRole.STEP)


class Signal(Enum):
    """An event about a unit, in place of one of its spans."""

    GIVE_UP = auto()
    """The root is no longer awaited."""
    SETTLED = auto()
    """No open span above the unit can become its root any more."""
    DROP = auto()
    """The unit became part of a unit that cannot be scored."""


Event = tuple[FollowedUnit, ReadableSpan | Signal, Sequence[SpanProcessor], int]
"""The unit of the span, the span, the processors that get it, its size in bytes."""


class ExternalReading:
    """Reads spans, maps them to GenAI names, and hands on their units. Call on the span thread.

    Attributes:
        logs: content from log records.
        closing: units with an ended root that wait for open spans.
        units: number of topmost spans with an event that was read.
        late: number of spans that ended after their unit was closed.
    """

    def __init__(self, port: UnitListener, translator: SpanNormalizers) -> None:
        self._port = port
        self._translator = translator
        self.logs = LogContent(_LOG_BYTES, _LOG_WAIT_NS)
        self.closing: dict[UnitKey, FollowedUnit] = {}
        self.units = self.late = 0

    def handle(self, event: Event, now_ns: int) -> None:
        """Read one ended span, or apply a signal to its unit."""
        unit, span, exits, size = event
        self._see(unit)
        if isinstance(span, Signal):
            self._heed(unit, span, now_ns)
            return
        ids: Any = span.get_span_context()
        if ids.span_id in unit.held:  # another processor passed it on, too
            held = unit.held[ids.span_id]
            if held is None or not held.also(exits):
                pass_on(span, exits)
            return
        unit.open.pop(ids.span_id, None)
        if unit.done:
            self.late += 1
            pass_on(span, exits)
            return
        self._end(unit, span, HeldSpan(span, [*exits], size) if exits else None, size, now_ns)

    def tick(self, now_ns: int) -> None:
        """Finish the units that have waited long enough."""
        for unit in list(self.closing.values()):
            if now_ns >= unit.closes_ns:
                self._finish(unit, now_ns)

    def next_due_ns(self) -> int | None:
        """Return the time at which the next waiting unit is due; None if no unit waits."""
        return min((unit.closes_ns for unit in self.closing.values()), default=None)

    def finish_ended(self, running: Sequence[ExternalUnit], now_ns: int) -> None:
        """Hand on the units with an ended root, and the ended spans of all other units."""
        for unit in list(self.closing.values()):
            self._finish(unit, now_ns)
        for external in running:
            if isinstance(external, FollowedUnit) and external.early:
                external.is_unit = True
                self._hand_on_early(external, now_ns)

    def break_off(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a unit without an ended root."""
        self._see(unit)
        unit.broken = True
        self._finish_as_it_is(unit, now_ns)

    def _see(self, unit: FollowedUnit) -> None:
        self.units += not unit.seen
        unit.seen = True

    def _heed(self, unit: FollowedUnit, signal: Signal, now_ns: int) -> None:
        if signal is Signal.GIVE_UP:
            self._finish_as_it_is(unit, now_ns)
        elif signal is Signal.DROP:
            self._release(unit)
        elif unit.root_ended is not None and not unit.open:
            self._finish(unit, now_ns)

    def _end(self, unit: FollowedUnit, span: ReadableSpan, held: HeldSpan | None, size: int, now_ns: int) -> None:
        data = self._read_span(unit, span)
        unit.held[data.span_id] = held
        if data.span_id == unit.key.span_id:
            unit.root_ended = data, held, size
            unit.closes_ns = now_ns + (GRACE_NS if unit.settled else PLAIN_GRACE_NS)
            self.closing[unit.key] = unit
            for part in unit.parts:
                self._join(unit, part)
        elif unit.handed_on:
            self._port.span_ended(unit.key, data, held, now_ns, size_bytes=size)
        else:
            unit.early.append((data, held, size))
            is_full = len(unit.early) >= _MOST_EARLY
            unit.is_unit = unit.is_unit or is_full
            if is_full or (unit.is_unit and unit.around is None):
                self._hand_on_early(unit, now_ns)
        if unit.root_ended is not None and unit.settled and not unit.open:
            self._finish(unit, now_ns)

    def _read_span(self, unit: FollowedUnit, span: ReadableSpan) -> SpanData:
        """Return a span in GenAI names, without attributes if no normalizer claims it."""
        data = span_data(span)
        try:
            translated = self.logs.translated(data, self._translator)
        except Exception as error:  # noqa: BLE001  (the application's span is passed on in any case)
            log_internal_error("read a span", error)
            translated, unit.broken, unit.is_unit = None, True, True
        if translated is None:
            return replace(data, attributes={}, events=(), unread=unit.unread)
        unit.is_unit = unit.is_unit or role_of_operation(translated.operation) in _UNIT_ROLES
        if data.span_id != unit.key.span_id or not (unit.session or unit.unread):
            return translated
        return replace(translated, conversation_id=unit.session, unread=unit.unread)

    def _join(self, unit: FollowedUnit, part: FollowedUnit) -> None:
        """Add the spans of a unit to a unit with a root that was recognised later, unless they were handed on already."""
        if part.done or part.handed_on or part.root_ended is None:
            return
        self.closing.pop(part.key, None)
        unit.early += [*part.early, part.root_ended]
        unit.held.update(part.held)
        unit.is_unit = unit.is_unit or part.is_unit
        unit.broken = unit.broken or part.broken
        part.done, part.early, part.root_ended, part.root = True, [], None, None

    def _hand_on_early(self, unit: FollowedUnit, now_ns: int) -> None:
        unit.handed_on = True
        if unit.shared:
            self._port.metrics_shared(unit.key, unit.shared)
        if unit.role is RootRole.ROOT:
            self._port.unit_opened(unit.key, now_ns)
        early, unit.early = unit.early, []
        for data, held, size in early:
            self._port.span_ended(unit.key, data, held, now_ns, size_bytes=size)

    def _finish_as_it_is(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a unit without an ended root, or with a root that was passed on unread."""
        if not unit.done:
            root = span_data(unit.root)
            root = replace(root, end_ns=max(time_ns(), root.start_ns), attributes={}, events=())
            unit.is_unit, unit.own, unit.role, unit.root_ended = True, True, RootRole.ROOT, (root, None, 0)
            self._finish(unit, now_ns)

    def _finish(self, unit: FollowedUnit, now_ns: int) -> None:
        """Hand on a unit with an ended root, or count or release it."""
        assert unit.root_ended is not None
        unit.settled = True
        if not unit.own and not unit.handed_on:
            self._exclude(unit)
            return
        data, held, size = unit.root_ended
        self.closing.pop(unit.key, None)
        unit.done, unit.facts = True, None
        if not unit.is_unit:  # an agent is built, texts are embedded: the spans are passed on, uncounted
            self._release(unit)
            return
        unit.held = {data.span_id: held}  # another processor may pass it on later
        if not unit.handed_on:
            self._hand_on_early(unit, now_ns)
        if unit.broken:
            self._port.events_lost(unit.key, now_ns)
        self._port.span_ended(unit.key, data, held, now_ns, size_bytes=size)
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.open.clear()

    def _exclude(self, unit: FollowedUnit) -> None:
        """Count a unit that could only be scored with a root above it, which never appeared."""
        facts, unit.facts = unit.facts, None
        assert unit.root_ended is not None
        spans = tuple(data for data, _, _ in (*unit.early, unit.root_ended))
        if facts is not None:
            for part in split(Unit(unit.key, spans)):
                self._port.unit_excluded(facts_of(part.key, facts))
        self._release(unit)

    def _release(self, unit: FollowedUnit) -> None:
        """Pass on the spans of a unit unchanged."""
        self.closing.pop(unit.key, None)
        unit.done = True
        ended = [*unit.early, *([] if unit.root_ended is None else [unit.root_ended])]
        for _, pending, _ in ended:
            if pending is not None:
                pending.end()
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.held = dict.fromkeys(unit.held)
        unit.open.clear()

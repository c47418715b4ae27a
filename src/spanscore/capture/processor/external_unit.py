"""Spans that other instrumentations make → units of this process: their state, and how the span thread reads them."""

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
from spanscore.pipeline.assembly import RootRole, role_of_operation, split, topmost_roots
from spanscore.protocols import UnitListener
from spanscore.samples.normalizers.registry import SpanNormalizers

# --- held span ------------------------------------------------------------------------------------------------------


class HeldSpan:
    """A ``PendingSpan`` that another library made and ended: it goes on to the processors that were to have it.

    Args:
        span: as the SDK gave it.
        exits: who is given it, each once.
        size: bytes held, roughly.
    """

    __slots__ = ("_exits", "_span", "ended", "size")

    def __init__(self, span: ReadableSpan, exits: Sequence[SpanProcessor], size: int) -> None:
        self._span: ReadableSpan | None = span
        self._exits = list(exits)
        self.size = size
        self.ended = False

    def also(self, exits: Sequence[SpanProcessor]) -> bool:
        """Give it to these, too. False: it has left."""
        if not self.ended:
            self._exits += [processor for processor in exits if processor not in self._exits]
        return not self.ended

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Pass the span on: itself, or where it is given attributes its like with them."""
        span, self._span, self.ended = self._span, None, True
        if span is not None:
            pass_on(with_attributes(span, attributes) if attributes else span, self._exits)


def pass_on(span: ReadableSpan, exits: Sequence[SpanProcessor]) -> None:
    """Give a span to processors. Never raises: one that does keeps it from no other."""
    for processor in exits:
        try:
            processor.on_end(span)
        except BaseException as error:  # noqa: BLE001  (of the application; SystemExit would end our thread)
            log_internal_error("pass a span on", error)


# --- external unit --------------------------------------------------------------------------------------------------

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
        around: the open span above it that may turn out to be its root; None = absent.
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
        above: the open plain span above it; None = absent.
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
        """Return the unit that this span or one above it became the root of; None = absent."""
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


# --- plain spans ----------------------------------------------------------------------------------------------------

_MOST_OPEN: Final = 10_000
"""Open spans remembered, some 0.3 kB each; past them the oldest is forgotten."""


class PlainSpans:
    """The open spans of no unit that are not claimed so far; one that gets GenAI attributes later is a root.

    Written by the application's threads, without a lock: a step is a dict's.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[Ids, PlainSpan] = OrderedDict()

    def start(self, ids: Ids, span: Any, above: PlainSpan | None) -> list[ExternalUnit]:
        """Remember a span that started; return the units that waited for the span that had to make room."""
        self._open[ids] = PlainSpan(ids, span, above)
        if len(self._open) <= _MOST_OPEN:
            return []
        _, oldest = self._open.popitem(last=False)
        oldest.ended = True
        return oldest.let_go()

    def pass_by(self, ids: Ids, above: PlainSpan | None) -> None:
        """Remember what is above a span that is never a root."""
        if above is not None:
            self._open[ids] = above

    def of(self, ids: Ids | None) -> PlainSpan | None:
        """Return an open span, or the one above a span that is never a root; None = absent."""
        return None if ids is None else self._open.get(ids)

    def open(self) -> list[PlainSpan]:
        """Return the open spans."""
        return [span for ids, span in list(self._open.items()) if span.ids == ids]

    def end(self, ids: Ids) -> PlainSpan | None:
        """Forget a span that ended, and return it; None = it is no plain one."""
        span = self._open.pop(ids, None)
        if span is None or span.ids != ids:
            return None
        span.ended = True
        return span


# --- external reading -----------------------------------------------------------------------------------------------

_GRACE_NS: Final = 5_000_000_000
"""How long an ended root waits for spans of its unit that are open: a stream is read on after its chain has returned, and some
instrumentations never end the span of a run that was cancelled."""
_PLAIN_GRACE_NS: Final = 2_000_000_000
"""How long a unit waits for the open spans above it, of which one may turn out to be its root."""
_MOST_EARLY: Final = 100
"""Spans kept until it is known whether they make a unit, and with which root; with more they do, with the one that is known."""
_LOG_BYTES: Final = 16_000_000
_LOG_WAIT_NS: Final = 600_000_000_000
"""How long, and in how much memory, content in log records waits for its span to end."""
_UNIT_ROLES: Final = (RootRole.ROOT, RootRole.STEP)


class Signal(Enum):
    """What becomes of a unit, in place of one more span of it."""

    GIVE_UP = auto()
    """Its root is not awaited any longer."""
    SETTLED = auto()
    """No open span above it can become its root any more."""
    DROP = auto()
    """It is part of a unit that cannot be scored."""


Event = tuple[FollowedUnit, ReadableSpan | Signal, Sequence[SpanProcessor], int]
"""Whose the span is, the span, the processors that are to get it, its size in bytes."""


class ExternalReading:
    """Reads spans, and hands on the units that they make. Span thread.

    Args:
        port: where units are handed on.
        translator: puts spans into GenAI names.

    Attributes:
        logs: content that came in log records.
        closing: units whose root has ended and that wait.
        units: topmost spans of which an event was read.
        late: spans that came after their unit was closed.
    """

    def __init__(self, port: UnitListener, translator: SpanNormalizers) -> None:
        self._port = port
        self._translator = translator
        self.logs = LogContent(_LOG_BYTES, _LOG_WAIT_NS)
        self.closing: dict[UnitKey, FollowedUnit] = {}
        self.units = self.late = 0

    def handle(self, event: Event, now_ns: int) -> None:
        """Read one span that ended, or learn what becomes of a unit."""
        unit, span, exits, size = event
        self._see(unit)
        if isinstance(span, Signal):
            self._heed(unit, span, now_ns)
            return
        ids: Any = span.get_span_context()
        if ids.span_id in unit.held:  # another processor has it, too
            held = unit.held[ids.span_id]
            if held is None or not held.also(exits):
                pass_on(span, exits)
            return
        unit.open.pop(ids.span_id, None)
        if unit.done:
            self.late += 1
            pass_on(span, exits)
            return
        self._end(unit, span, HeldSpan(span, exits, size) if exits else None, size, now_ns)

    def tick(self, now_ns: int) -> None:
        """Finish the units that have waited for long enough."""
        for unit in list(self.closing.values()):
            if now_ns >= unit.closes_ns:
                self._finish(unit, now_ns)

    def next_due_ns(self) -> int | None:
        """Return when the first of the waiting units is due; None = none waits."""
        return min((unit.closes_ns for unit in self.closing.values()), default=None)

    def finish_ended(self, running: Sequence[ExternalUnit], now_ns: int) -> None:
        """Hand on the units whose root has ended, and the ended spans of the others."""
        for unit in list(self.closing.values()):
            self._finish(unit, now_ns)
        for external in running:
            if isinstance(external, FollowedUnit) and external.early:
                external.is_unit = True
                self._hand_on_early(external, now_ns)

    def break_off(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a unit whose root has not ended."""
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
            unit.closes_ns = now_ns + (_GRACE_NS if unit.settled else _PLAIN_GRACE_NS)
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
        """Return a span in GenAI names; one that no translation claims has no attributes."""
        data = span_data(span)
        try:
            translated = self.logs.translated(data, self._translator)
        except Exception as error:  # noqa: BLE001  (the span is the application's: it leaves whatever is wrong with it)
            log_internal_error("read a span", error)
            translated, unit.broken, unit.is_unit = None, True, True
        if translated is None:
            return replace(data, attributes={}, events=(), unread=unit.unread)
        unit.is_unit = unit.is_unit or role_of_operation(translated.operation) in _UNIT_ROLES
        if data.span_id != unit.key.span_id or not (unit.session or unit.unread):
            return translated
        return replace(translated, conversation_id=unit.session, unread=unit.unread)

    def _join(self, unit: FollowedUnit, part: FollowedUnit) -> None:
        """Make the spans of a unit part of another, whose root was recognised later; a unit that was handed on stays one."""
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
        """Finish a unit whose root has not ended, or was passed on unread."""
        if not unit.done:
            root = span_data(unit.root)
            root = replace(root, end_ns=max(time_ns(), root.start_ns), attributes={}, events=())
            unit.is_unit, unit.own, unit.role, unit.root_ended = True, True, RootRole.ROOT, (root, None, 0)
            self._finish(unit, now_ns)

    def _finish(self, unit: FollowedUnit, now_ns: int) -> None:
        """Hand on a unit whose root has ended, or something in its place."""
        assert unit.root_ended is not None
        unit.settled = True
        if not unit.own and not unit.handed_on:
            self._exclude(unit)
            return
        data, held, size = unit.root_ended
        self.closing.pop(unit.key, None)
        unit.done, unit.facts = True, None
        if not unit.is_unit:  # an agent is built, texts are embedded: the spans leave, and nothing is counted
            self._release(unit)
            return
        unit.held = {data.span_id: held}  # another processor may bring it yet
        if not unit.handed_on:
            self._hand_on_early(unit, now_ns)
        if unit.broken:
            self._port.events_lost(unit.key, now_ns)
        self._port.span_ended(unit.key, data, held, now_ns, size_bytes=size)
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.open.clear()

    def _exclude(self, unit: FollowedUnit) -> None:
        """Count a unit that could be scored only with another root, which it has not got."""
        facts, unit.facts = unit.facts, None
        assert unit.root_ended is not None
        spans = tuple(data for data, _, _ in (*unit.early, unit.root_ended))
        if facts is not None:
            for part in split(Unit(unit.key, spans)):
                self._port.unit_excluded(facts_of(part.key, facts))
        self._release(unit)

    def _release(self, unit: FollowedUnit) -> None:
        """Let the spans of a unit leave as they are."""
        self.closing.pop(unit.key, None)
        unit.done = True
        ended = [*unit.early, *([] if unit.root_ended is None else [unit.root_ended])]
        for _, pending, _ in ended:
            if pending is not None:
                pending.end()
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.held = dict.fromkeys(unit.held)
        unit.open.clear()

"""ExternalReading: what the span thread makes of the spans that other instrumentations made → units, handed on whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto
from time import time_ns
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore.core.codecs.sdk import span_data
from spanscore.core.log import log_internal_error
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import RootRole, role_of_operation, split
from spanscore.protocols import UnitListener
from spanscore.receivers.log_content import LogContent
from spanscore.receivers.processor.external_unit import ExternalUnit, FollowedUnit, facts_of
from spanscore.receivers.processor.held_span import HeldSpan, pass_on
from spanscore.samples.normalizers.registry import Translator

__all__ = ["Event", "ExternalReading", "Signal"]

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

    def __init__(self, port: UnitListener, translator: Translator) -> None:
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

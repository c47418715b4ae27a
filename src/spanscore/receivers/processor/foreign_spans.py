"""ForeignSpans: spans that other instrumentations make in this process → units: the receiver of ``ScoringSpanProcessor``.

When a span starts it is known which unit it belongs to, as its parent is. So a unit closes when its root has ended and no
claimed span of it is open, and waits for nothing else. On the application's thread a span costs a look-up of its scope, one
of its parent, and at its end, where its unit may be scored, one append; it is read and translated on the span thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import time_ns
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore import context, semconv
from spanscore.codec.sdk import attributes_of, span_data
from spanscore.dialects.translations.registry import Translator
from spanscore.model.score import Outcome
from spanscore.model.span import Facts, SpanData, UnitKey
from spanscore.otel.beside import processors_beside
from spanscore.protocols import Admission, Receiver, Recorded, Sampler
from spanscore.receivers.processor.foreign_unit import FollowedUnit, ForeignUnit, OpenUnits
from spanscore.receivers.processor.held_span import HeldSpan, pass_on
from spanscore.receivers.scopes import Role, Scopes, asks_nothing, scope_notes
from spanscore.runtime.clock import steady_ns
from spanscore.runtime.inbox import Inbox
from spanscore.runtime.log import log_internal_error
from spanscore.units.session_ids import SessionIds

__all__ = ["ForeignSpans"]

_GRACE_NS: Final = 5_000_000_000
"""How long an ended root waits for spans of its unit that are open: a stream is read on after its chain has returned, and some
instrumentations never end the span of a run that was cancelled."""
_MAX_AGE_NS: Final = 3_600_000_000_000
"""A root that has not ended by then is given up."""
_MOST_EARLY: Final = 100
"""Spans that mean nothing and are kept until it is known what they belong to; with more it is a unit."""
_SPAN_BYTES: Final = 2_000

_OURS, _CLAIMED, _MODEL_CLIENT, _UNKNOWN = Role.OURS, Role.CLAIMED, Role.MODEL_CLIENT, Role.UNKNOWN
_IDS: Final = slice(2)
"""Trace id and span id, which come first in a ``SpanContext``: it is a tuple, and its properties are slow."""

Event = tuple[FollowedUnit, ReadableSpan | None, Sequence[SpanProcessor], int]
"""Whose the span is, the span, who is to have it, its size; without a span: the unit is given up."""


class ForeignSpans:
    """The receiver of all processors of one scorer.

    Args:
        inbox: the way to the span thread.
        port: where units are handed on.
        sampler: asked once per root whether the unit may be scored at all.
        admission: counts the units that are turned away here.
        scopes: whose spans are claimed.
        translator: puts them into GenAI names.
        ready: called with the first root (of each process): chooses providers, starts the span thread.
        turns: told of a root in a ``spanscore.session`` block, and whether it is let in; None = nobody scores conversations.

    Attributes:
        units: roots that were let in.
        late: spans that came after their unit was closed; they went on as they are.
        closed: no further unit is let in.
    """

    def __init__(
        self,
        inbox: Inbox[Receiver],
        port: Recorded,
        sampler: Sampler,
        admission: Admission,
        *,
        scopes: Scopes,
        translator: Translator,
        ready: Callable[[Any], None],
        turns: SessionIds | None = None,
    ) -> None:
        self._inbox = inbox
        self._port = port
        self._sampler = sampler
        self._admission = admission
        self.scopes = scopes
        self.translator = translator
        self._ready = ready
        self._turns = turns
        self.closed = False
        self.reset()

    def reset(self) -> None:
        """Forget every unit, and count from zero: in a forked child, where spans that were open are the parent's."""
        self._open = OpenUnits()
        self._closing: dict[UnitKey, FollowedUnit] = {}
        self.units = self.late = 0
        self._read = 0
        self._is_ready = False

    # --- the application's threads -----------------------------------------------------------------------------

    def started(self, span: Any, front: object, around: Context | None = None) -> bool:
        """Note that a span started, which unit it belongs to; return whether it begins one that may be scored.

        Args:
            front: the processor that saw it.
            around: the context in which it started; None = the current one.
        """
        role = self.scopes.role(_scope(span))
        if role is _OURS:
            return False
        of, ids, parent = self._open.of, span.context[_IDS], span.parent
        unit = None if parent is None else of.get(parent[_IDS])
        if unit is None:
            return not self._is_step_of_earlier(span, front, around) and self._begin(span, ids, role, front)
        of[ids] = unit  # perhaps once more: another processor may have seen it, too
        unit.spans.append(ids)
        if isinstance(unit, FollowedUnit) and self._claims(span, role):
            unit.open[ids[1]] = None
        return False

    def ended(self, span: ReadableSpan, front: object, exits: Sequence[SpanProcessor]) -> bool:
        """Take a span that ended; it will be passed on to ``exits``. False: it is not taken, or may go on at once."""
        context: Any = span.get_span_context()
        ids = context[_IDS]
        unit = self._open.of.get(ids)
        if unit is None:
            return False
        is_root = ids == unit.key
        if is_root and not unit.ended:
            self._end_root(unit, span)
        if not isinstance(unit, FollowedUnit):
            return False
        if unit.done:
            self.late += not self.closed
            return False
        if not context.trace_flags.sampled:  # recorded only: no exporter takes it, and so none waits for it
            exits = ()
        if not exits and unit.front is not front:  # another processor has it read
            return False
        is_read = is_root or self._claims(span, self.scopes.role(_scope(span)))
        return is_read and self._put(unit, span, ids[1], exits)

    def _is_step_of_earlier(self, span: Any, front: object, around: Context | None) -> bool:
        """Whether a span is a step of a run that began before the processor was added, which is never seen whole."""
        if span.parent is None or span.parent.is_remote:
            return False
        above: Any = trace.get_current_span(around)
        if not above.is_recording() or front not in processors_beside(above):
            return False
        role = self.scopes.role(_scope(above))  # by that alone: an operation may have been said after the start
        return role is _CLAIMED or role is _MODEL_CLIENT

    def _begin(self, span: Any, ids: tuple[int, int], role: Role, front: object) -> bool:
        known = self._open.of.get(ids)
        if known is not None:  # another processor has seen it
            return ids == known.key and isinstance(known, FollowedUnit)
        if not self._claims(span, role) or self.closed or context.is_judging():
            return False
        is_model = role is _MODEL_CLIENT or (role is _UNKNOWN and _operation(span) in semconv.MODEL_OPERATIONS)
        if is_model and self.scopes.is_inner(_scope(span)):
            unit = ForeignUnit(UnitKey(*ids))
        else:
            unit = self._admitted(UnitKey(*ids), span, front)
        oldest = self._open.begin(unit)
        if oldest is not None:
            self._give_up(oldest)
        return isinstance(unit, FollowedUnit)

    def _admitted(self, key: UnitKey, span: Any, front: object) -> ForeignUnit:
        session = context.current_session()
        if not self._inbox.admits():
            self._admission.record_rejected(Outcome.REFUSED)
            if session is not None and self._turns is not None:
                self._turns.missed(session, Outcome.REFUSED)
            return ForeignUnit(key)
        if not self._is_ready:
            self._ready(span)
            self._is_ready = True
        state = span.context.trace_state
        facts = Facts(key, span.parent is None, state.to_header() if state else "", conversation_id=session)
        if session is not None and self._turns is not None:
            self._turns.began(session, span.start_time)
        if not self._sampler.may(facts):
            return ForeignUnit(key, facts)
        self.units += 1
        return FollowedUnit(key, root=span, front=front, session=session, open={key.span_id: None})

    def _claims(self, span: ReadableSpan, role: Role) -> bool:
        """Whether a span is read, if its unit is."""
        return role is _CLAIMED or role is _MODEL_CLIENT or (role is _UNKNOWN and _operation(span) is not None)

    def _end_root(self, unit: ForeignUnit, span: ReadableSpan) -> None:
        self._open.end(unit, steady_ns())
        if unit.excluded is not None and _may_be_unit(attributes_of(span)):
            self._count_excluded(unit)

    def _count_excluded(self, unit: ForeignUnit) -> None:
        facts, unit.excluded = unit.excluded, None
        if facts is not None:
            self._port.excluded(facts)

    def _put(self, unit: FollowedUnit, span: ReadableSpan, span_id: int, exits: Sequence[SpanProcessor]) -> bool:
        size = _SPAN_BYTES + _size_bytes(span)
        if self._inbox.put(self, (unit, span, exits, size), size):
            return bool(exits)
        unit.broken = True
        unit.open.pop(span_id, None)  # its end will not be read
        if span_id == unit.key.span_id:
            self._give_up(unit)
        return False

    def _give_up(self, unit: ForeignUnit) -> None:
        self._count_excluded(unit)  # now, as its end may never come
        if isinstance(unit, FollowedUnit) and not unit.done:
            unit.broken = True
            self._inbox.put(self, (unit, None, (), 0), must=True)

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> None:
        """Read one span that ended."""
        unit, span, exits, size = event
        self._see(unit)
        if span is None:
            self._finish_as_it_is(unit, now_ns)
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

    def due(self, now_ns: int) -> None:
        """Finish the units whose open spans have been waited for long enough, and give up those that never end."""
        for unit in list(self._closing.values()):
            if now_ns < unit.closes_ns:
                break
            self._finish(unit, now_ns)
        while (oldest := self._open.oldest()) is not None and now_ns - oldest.since_ns >= _MAX_AGE_NS:
            self._open.end(oldest, now_ns)
            self._count_excluded(oldest)
            if isinstance(oldest, FollowedUnit):
                self._see(oldest)
                oldest.broken = True
                self._finish_as_it_is(oldest, now_ns)

    def next_due_ns(self) -> int | None:
        """Return when the first of these waits is over."""
        return next((unit.closes_ns for unit in self._closing.values()), None)

    def in_flight(self) -> set[UnitKey]:
        """Return the units whose root has ended and that wait for spans that are open."""
        return set(self._closing)

    def detach(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit as it is; return those whose root had not ended. Its spans go on as they are when they end."""
        self.finish_ended(now_ns)
        running = [one for one in list(self._open.running.values()) if isinstance(one, FollowedUnit) and not one.done]
        for unit in running:
            self._see(unit)
            unit.broken = True
            self._finish_as_it_is(unit, now_ns)
        return [unit.key for unit in running]

    def finish_ended(self, now_ns: int) -> None:
        """Hand on the units whose root has ended, whatever of them is open, and what has ended of the others."""
        for unit in list(self._closing.values()):
            self._finish(unit, now_ns)
        for running in list(self._open.running.values()):
            if isinstance(running, FollowedUnit) and running.early:
                running.is_unit = True
                self._hand_on_early(running, now_ns)

    def unread(self) -> int:
        """Return how many roots the span thread has not heard of. Any thread."""
        return self.units - self._read

    def close(self) -> None:
        """Let no further unit in. Any thread."""
        self.closed = True

    def notes(self) -> list[str]:
        """Return what must be known of spans that were not scored, for ``status()``."""
        told = scope_notes(self.scopes.inner.copy(), self.scopes.unheard.copy(), where="here") + self.translator.notes()
        return [*told, *([f"{self.late:,} spans came after their unit was closed"] if self.late else [])]

    def _see(self, unit: FollowedUnit) -> None:
        self._read += not unit.seen
        unit.seen = True

    def _end(self, unit: FollowedUnit, span: ReadableSpan, held: HeldSpan | None, size: int, now_ns: int) -> None:
        data = self._read_span(unit, span)
        unit.held[data.span_id] = held
        if data.span_id == unit.key.span_id:
            unit.root_ended, unit.closes_ns = (data, held, size), now_ns + _GRACE_NS
            self._closing[unit.key] = unit
        elif unit.opened:
            self._port.ended(unit.key, data, held, now_ns, size_bytes=size)
        else:
            unit.early.append((data, held, size))
            unit.is_unit = unit.is_unit or len(unit.early) >= _MOST_EARLY
            if unit.is_unit:
                self._hand_on_early(unit, now_ns)
        if unit.root_ended is not None and not unit.open:
            self._finish(unit, now_ns)

    def _read_span(self, unit: FollowedUnit, span: ReadableSpan) -> SpanData:
        """Return a span in GenAI names; one that means nothing to them has no attributes."""
        data = span_data(span)
        try:
            translated = self.translator.translate(data)
        except Exception as error:  # noqa: BLE001  (the span is the application's: it leaves whatever is wrong with it)
            log_internal_error("read a span", error)
            translated, unit.broken = None, True
        if translated is None:
            return replace(data, attributes={}, events=())
        unit.is_unit = True
        is_root = data.span_id == unit.key.span_id
        return replace(translated, conversation_id=unit.session) if is_root and unit.session else translated

    def _hand_on_early(self, unit: FollowedUnit, now_ns: int) -> None:
        unit.opened = True
        self._port.opened(unit.key, now_ns)
        early, unit.early = unit.early, []
        for data, held, size in early:
            self._port.ended(unit.key, data, held, now_ns, size_bytes=size)

    def _finish_as_it_is(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a unit whose root has not ended, or was passed on unread."""
        if not unit.done:
            root = span_data(unit.root)
            root = replace(root, end_ns=max(time_ns(), root.start_ns), attributes={}, events=())
            unit.is_unit, unit.root_ended = True, (root, None, 0)
            self._finish(unit, now_ns)

    def _finish(self, unit: FollowedUnit, now_ns: int) -> None:
        assert unit.root_ended is not None  # or something stands in for it
        data, held, size = unit.root_ended
        self._closing.pop(unit.key, None)
        unit.done = True
        unit.held = {data.span_id: held}  # another processor may bring it yet
        if unit.is_unit:
            if not unit.opened:
                self._hand_on_early(unit, now_ns)
            if unit.broken:
                self._port.broken(unit.key, now_ns)
            self._port.ended(unit.key, data, held, now_ns, size_bytes=size)
        else:  # what a framework builds, or embeds: its spans leave, and nothing is counted
            for _, pending, _ in (*unit.early, unit.root_ended):
                if pending is not None:
                    pending.end()
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.open.clear()


def _scope(span: ReadableSpan) -> str:
    scope = span.instrumentation_scope
    return "" if scope is None else scope.name


def _operation(span: ReadableSpan) -> Any:
    return (span.attributes or {}).get(semconv.OPERATION_NAME)


def _may_be_unit(attributes: Mapping[str, Any]) -> bool:
    """Whether a root that nobody reads is a unit, by what it names itself: what is counted must not depend on the dice."""
    return not asks_nothing(attributes.get(semconv.OPERATION_NAME), attributes.get)


def _size_bytes(span: ReadableSpan) -> int:
    return sum([len(value) for value in attributes_of(span).values() if type(value) is str])

"""The receiver of ``ScoringSpanProcessor``, which gathers spans of other instrumentations in this process into units.

A span's unit is known when it starts, from its parent. A unit closes when its topmost span has ended and no claimed span of it
is open. On the application's thread, a span costs a look-up of its scope and of its parent, and one append at its end if its
unit may be scored. The span thread reads and translates the ended spans, and keeps them as ``early`` until the unit and its
root are certain. Then it hands them on to the listener, and finishes the unit after its last open span.

A span of a scope that no normalizer names often gets its attributes only at its end. The units below it wait for that end, at
most 2 s, because the span may be their root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from operator import methodcaller
from time import time_ns
from typing import Any, Final
from weakref import ReferenceType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore import semconv
from spanscore.capture.intake import Intake
from spanscore.capture.log_content import LogContent
from spanscore.capture.other_scorers import ScorerIdentity, handlers, processors, recorded_by_others
from spanscore.capture.processor.external_unit import (
    Event,
    ExternalUnit,
    FollowedUnit,
    HeldSpan,
    Ids,
    OpenUnits,
    PlainSpan,
    Signal,
    facts_of,
    pass_on,
)
from spanscore.capture.scopes import Role, Scopes, library_of, root_role, scope_notes
from spanscore.core import context
from spanscore.core.codecs.otlp_span import ContentRecord
from spanscore.core.codecs.sdk import attributes_of, span_data
from spanscore.core.event_queue import steady_ns
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.outputs.provider_introspection import processors_beside
from spanscore.pipeline.assembly import GRACE_NS, ROOT_RUN, ROOT_RUN_SCOPE, RootRole, role_of_operation, split
from spanscore.pipeline.in_force import WHOLE_TRACE
from spanscore.samples.normalizers.registry import SpanNormalizers

MAX_AGE_NS: Final = 3_600_000_000_000
"""Maximum age of a root that has not ended; its unit is then ended as incomplete."""
_SPAN_BYTES: Final = 2_000
_MOST_UNNOTED: Final = 100
"""Number of ended spans of an unsampled unit that are kept unread until its root ends, because few need to be read then."""

_OURS, _CLAIMED, _IGNORED, _UNKNOWN = Role.OURS, Role.CLAIMED, Role.IGNORED, Role.UNKNOWN
_ROOT: Final = RootRole.ROOT
_IDS: Final = slice(2)
"""Trace id and span id, the first items of a ``SpanContext``. A ``SpanContext`` is a tuple; its properties are slow."""
PLAIN_GRACE_NS: Final = 2_000_000_000
"""Time in nanoseconds for which a unit waits for the open spans above it, one of which may turn out to be its root."""
_MOST_EARLY: Final = 100
"""Number of spans that are kept as ``early``. At this number they count as a unit with the topmost span as its root."""
_LOG_BYTES: Final = 16_000_000
_LOG_WAIT_NS: Final = 600_000_000_000
"""Time for which content in log records waits for the end of its span, in nanoseconds; ``_LOG_BYTES`` limits its size."""
_UNIT_ROLES: Final = (RootRole.ROOT, RootRole.STEP)
_TOO_LATE: Final = "spans got GenAI attributes only after a unit below them was closed: that unit is scored"
_BEFORE: Final = "spans are steps of runs that began before ScoringSpanProcessor was added"


@dataclass(eq=False, repr=False)
class ExternalSpans:
    """The receiver of all processors of one scorer.

    Attributes:
        intake: the intake to use first; ``connect`` replaces it.
        scopes: roles of instrumentation scopes, which decide the claimed spans.
        translator: normalizers, which map spans to GenAI names.
        ready: called with the first root (of each process): chooses providers and starts the span thread.
        spans_file: file that also gets the spans of units with their scores; None = no file.
        identity: identity of the scorer, for other scorers in the process.
        others: receivers of other scorers.
        units: number of accepted topmost spans.
        late: number of spans that ended after their unit was closed, and were passed on unchanged.
        untaken: reason → number of spans with GenAI attributes that were not accepted.
        closed: whether no further unit is accepted.
    """

    intake: InitVar[Intake]
    _: KW_ONLY
    scopes: Scopes
    translator: SpanNormalizers
    ready: Callable[[Any], None]
    identity: ScorerIdentity = field(default_factory=ScorerIdentity)
    spans_file: Any = None

    def __post_init__(self, intake: Intake) -> None:
        self._files: tuple[Any, ...] = () if self.spans_file is None else (self.spans_file,)
        self._roles = self.scopes.roles
        self._is_mark = methodcaller("startswith", tuple([mark.decode() for mark in self.translator.marks]))
        self.others: tuple[ReferenceType[ExternalSpans], ...] = ()
        processors.join(self)
        self.closed = False
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Use this intake from now on, without a unit: spans that are open at a fork belong to the parent."""
        self._intake, self._event_queue, self._port = intake, intake.event_queue, intake.port
        self._sampler, self._turns = intake.sampler, intake.turns
        self._open = OpenUnits()
        self._logs = LogContent(_LOG_BYTES, _LOG_WAIT_NS)
        self._closing: dict[UnitKey, FollowedUnit] = {}  # units with an ended root that wait for open spans
        self.units = self._read = self.late = 0
        self.untaken: Counter[str] = Counter()
        self._is_ready = False

    # --- the application's threads -----------------------------------------------------------------------------

    def started(self, span: Any, front: object, around: Context | None = None) -> bool:
        """Assign a started span to its unit. Return whether the span begins a unit that may be scored.

        ``front`` is the processor that called. ``around`` is the context in which the span started; None = the current context.
        """
        scope = _scope(span)
        role = self._roles.get(scope) or self.scopes.role(scope)
        if role is _OURS:
            return False
        ids, parent = span.context[_IDS], span.parent
        unit = None if parent is None else self._open.of.get(parent[_IDS])
        if unit is None or (unit.ended and _has_ended(parent, around)):
            return self._begin(span, ids, role, front, around)
        if scope == ROOT_RUN_SCOPE and _is_root_run(span, around):
            return self._begin(span, ids, role, front, around)
        self._add(unit, span, ids, role)
        return False

    def ended(self, span: ReadableSpan, front: object, exits: Sequence[SpanProcessor]) -> bool:
        """Accept an ended span, to be passed on to ``exits`` later. Return False if the caller must pass it on now."""
        taken = self._take_ended(span, front, (*exits, *self._files))
        if self._files and not taken:
            role = self.scopes.role(_scope(span))
            if role is not _OURS and self._is_claimed(span, role):
                pass_on(span, self._files)
        return taken and bool(exits)

    def _take_ended(self, span: ReadableSpan, front: object, exits: Sequence[SpanProcessor]) -> bool:
        context: Any = span.get_span_context()
        ids = context[_IDS]
        unit = self._open.of.get(ids)
        if unit is None and (unit := self._late_root(span, ids, front)) is None:
            return False
        if ids == unit.key:
            return self._ended_root(unit, span, context, front, exits)
        if isinstance(unit, FollowedUnit):
            if unit.around is not None:
                self._keep(unit, span)
            return self._take(unit, span, context, front, exits)
        if unit.role is not _ROOT:
            self._keep(unit, span)
        return False

    def _ended_root(
        self, unit: ExternalUnit, span: ReadableSpan, ids: Any, front: object, exits: Sequence[SpanProcessor]
    ) -> bool:
        ends = not unit.ended  # another processor may have ended it
        if ends:
            self._end_root(unit, span)
        kept = isinstance(unit, FollowedUnit) and self._take(unit, span, ids, front, exits)
        if ends and not unit.settled:
            self._await(unit.around, [unit])
        return kept

    def _take(
        self, unit: FollowedUnit, span: ReadableSpan, ids: Any, front: object, exits: Sequence[SpanProcessor]
    ) -> bool:
        if unit.done:
            self.late += not self.closed
            return False
        if not ids.trace_flags.sampled:  # recorded only: exporters drop it, so nothing waits for it
            exits = ()
        if not exits and unit.front is not front:  # another processor passes it to the span thread
            return False
        is_read = ids[_IDS] == unit.key or self._is_claimed(span, self.scopes.role(_scope(span)))
        return is_read and self._put(unit, span, ids[1], exits)

    def _add(self, unit: ExternalUnit, span: Any, ids: Ids, role: Role) -> None:
        """Add a span to a unit. Another processor may have added the span already."""
        self._open.of[ids] = unit
        unit.spans.append(ids)
        if role is not _CLAIMED and not self._is_claimed(span, role):
            if unit.role is not _ROOT or unit.around is not None:
                unit.unread[ids[1]] = span.parent[1]
        elif isinstance(unit, FollowedUnit):
            unit.open[ids[1]] = None

    def _keep(self, unit: ExternalUnit, span: ReadableSpan) -> None:
        """Keep a span of a unit that may turn out not to be scored, so that its roots can be counted."""
        if not unit.ended:
            unit.unnoted.append(span)
            if len(unit.unnoted) > _MOST_UNNOTED:
                self._note(unit)

    def _note(self, unit: ExternalUnit) -> None:
        """Record the roles of the kept spans, which decide on roots, and drop the spans."""
        while unit.unnoted:
            try:
                span = unit.unnoted.pop()
            except IndexError:  # another thread took the last one
                return
            scope = _scope(span)
            if self._is_claimed(span, self.scopes.role(scope)):
                ids: Any = span.get_span_context()
                parent: Any = span.parent
                unit.below[ids.span_id] = parent.span_id, root_role(attributes_of(span), scope)

    def _begin(self, span: Any, ids: Ids, role: Role, front: object, around: Context | None) -> bool:
        """Handle a span that has no unit above it. Return whether it begins a unit that may be scored."""
        seen_unit = self._open.of.get(ids)
        if seen_unit is not None:  # another processor began it
            return ids == seen_unit.key and isinstance(seen_unit, FollowedUnit)
        above = None if span.parent is None else self._open.plain.get(span.parent[_IDS])
        unit = None if above is None else above.unit_above()
        if unit is not None:
            self._add(unit, span, ids, role)
        elif role is _IGNORED:
            if above is not None:
                self._open.plain[ids] = above
        elif not self._is_claimed(span, role):
            self._settle_all(self._open.start_plain(ids, span, above))
        elif not (self.closed or context.is_judging() or self._is_step_of_earlier(span, front, around)):
            return isinstance(self._root_of(span, ids, role, front, above), FollowedUnit)
        return False

    def _root_of(self, span: Any, ids: Ids, role: Role, front: object, above: PlainSpan | None) -> ExternalUnit:
        """Begin the unit of a claimed span. The root is the span, or an open span above it that is claimed by now."""
        line = () if above is None else above.open_line()
        claimed = [plain for plain in line if self._has_marks(plain.span)]
        if not claimed:
            return self._new(ids, span, role, front, above)
        late = claimed[-1]  # the topmost span
        late.unit = self._new(late.ids, late.span, self.scopes.role(_scope(late.span)), front, late.above)
        self._open.end_plain(late.ids)
        self._absorb(late.unit, late.take_waiting(), late.ids[1])
        self._add(late.unit, span, ids, role)
        return late.unit

    def _new(self, ids: Ids, root: Any, role: Role, front: object, above: PlainSpan | None) -> ExternalUnit:
        unit = self._admit(UnitKey(*ids), root, front, above)
        if root.parent is not None:
            unit.parent_id = root.parent[1]
        if root.attributes and (root_is := root_role(attributes_of(root), _scope(root))) is _ROOT:
            unit.role = root_is
        if role is not _CLAIMED:
            self.scopes.found_by_content(_scope(root))
        oldest = self._open.begin(unit)
        if oldest is not None:
            self._give_up(oldest)
        return unit

    def _late_root(self, span: ReadableSpan, ids: Ids, front: object) -> ExternalUnit | None:
        """Return a unit for a span of an unnamed scope that is recognised at its end; None if it is not a root."""
        plain = self._open.end_plain(ids)
        if plain is None:
            return None
        waiting = plain.take_waiting()
        if (unit := plain.unit_above()) is not None:
            self._open.of[ids] = unit
            unit.spans.append(ids)
            self._absorb(unit, waiting, ids[1])
            return unit
        nearest = None if plain.above is None else next(plain.above.open_line(), None)
        if not self._has_marks(span) or self.closed or context.is_judging():
            self._await(nearest, waiting)
            return None
        if plain.decided:
            self.untaken[_TOO_LATE] += 1
            self._settle_all(waiting)
            return None
        unit = self._new(ids, plain.span, _UNKNOWN, front, nearest)
        self._absorb(unit, waiting, ids[1])
        return unit

    def _absorb(self, unit: ExternalUnit, parts: Sequence[ExternalUnit], parent_id: int) -> None:
        """Make units that ended below the span ``parent_id`` parts of a unit with a root above them."""
        for part in parts:
            self._note(part)
            part.facts = None
            unit.below |= part.below | {part.key.span_id: (part.parent_id, part.role or _ROOT)}
            unit.unread |= part.unread
            if part.parent_id is not None and part.parent_id != parent_id:
                unit.unread[part.parent_id] = parent_id
            if isinstance(part, FollowedUnit) and isinstance(unit, FollowedUnit):
                unit.parts.append(part)
            elif isinstance(part, FollowedUnit):
                self._event_queue.put(self, (part, Signal.DROP, (), 0), never_drop=True)

    def _is_step_of_earlier(self, span: Any, front: object, around: Context | None) -> bool:
        """Return whether a span belongs to a run that began before the processor was added; such runs are never complete."""
        if span.parent is None or span.parent.is_remote or span.parent[_IDS] in self._open.of:
            return False
        above: Any = trace.get_current_span(around)
        if not above.is_recording() or front not in processors_beside(above):
            return False
        # By its scope only: attributes may be later than the start.
        is_step = self.scopes.role(_scope(above)) is _CLAIMED
        self.untaken[_BEFORE] += is_step
        return is_step

    def _find_shared_metrics(self, key: UnitKey, scope: str) -> frozenset[str]:
        """Return the metrics that other running scorers score on a unit, through their processors or callbacks."""
        shared: frozenset[str] = frozenset()
        if handlers.of_others(self.identity) and library_of(scope) == "langchain":
            shared = recorded_by_others(self.identity)
        for reference in self.others:
            other = reference()
            if other is None or other.closed:
                continue
            unit = other.unit_at(key)
            if unit is not None and unit.key == key:
                shared |= self.identity.meet(other.identity)
        return shared

    def take_log(self, record: ContentRecord) -> None:
        """Keep content from a log record until its span is read, unless the span will not be scored. Thread-safe."""
        unit = self._open.of.get(record.ids)
        if not self.closed and (unit is None or isinstance(unit, FollowedUnit)):
            self._logs.add([record])

    def unit_at(self, ids: Ids) -> ExternalUnit | None:
        """Return the open unit of a span; None if it is unknown."""
        return self._open.of.get(ids)

    def _admit(self, key: UnitKey, span: Any, front: object, above: PlainSpan | None) -> ExternalUnit:
        shared, session = self._find_shared_metrics(key, _scope(span)), context.current_session()
        if self.identity.is_among(shared):
            return ExternalUnit(key=key, settled=True)
        if not self._event_queue.admits():
            self._intake.reject(Outcome.EVENT_QUEUE_FULL, session)
            return ExternalUnit(key=key, settled=True)
        if not self._is_ready:
            self.ready(span)
            self._is_ready = True
        facts = _facts(key, span, session)
        if session is not None and self._turns is not None:
            self._turns.record_start(session, span.start_time, shared)
        # A shared unit is kept whatever the rates are, because it is counted only for some metrics.
        own = bool(shared) or self._sampler.could_sample(facts)
        if not own and (above is None or not any(map(self._may, above.open_line()))):
            return ExternalUnit(key=key, facts=facts, around=above)
        self.units += 1
        return FollowedUnit(
            key=key,
            facts=facts,
            around=above,
            root=span,
            front=front,
            own=own,
            shared=shared,
            session=session,
            open={key.span_id: None},
        )

    def _may(self, plain: PlainSpan) -> bool:
        """Return whether a unit with this span as its root may be scored."""
        if plain.may_be_scored is None:
            is_possible = self.scopes.role(_scope(plain.span)) is _UNKNOWN
            plain.may_be_scored = is_possible and self._sampler.could_sample(_facts(UnitKey(*plain.ids), plain.span))
        return plain.may_be_scored

    def _is_claimed(self, span: ReadableSpan, role: Role) -> bool:
        """Return whether a span is claimed by its scope or its attributes so far."""
        if role is _CLAIMED:
            return True
        attributes = span.attributes
        if role is _IGNORED or not attributes:
            return False
        return semconv.OPERATION_NAME in attributes or self._has_marks(span)

    def _has_marks(self, span: ReadableSpan) -> bool:
        """Return whether a span has an attribute that a normalizer reads."""
        return any(map(self._is_mark, span.attributes or ()))

    def _end_root(self, unit: ExternalUnit, span: ReadableSpan) -> None:
        self._open.end(unit, steady_ns())
        if unit.role is None:
            unit.role = root_role(attributes_of(span), _scope(span))
        if unit.around is None or next(unit.around.open_line(), None) is None:
            unit.settled = True
            if not isinstance(unit, FollowedUnit):
                self._count(unit)

    def _await(self, plain: PlainSpan | None, units: Sequence[ExternalUnit]) -> None:
        """Make ended units wait for the nearest open span above them; units without such a span are settled."""
        inside = None if plain is None else plain.unit_above()
        if plain is not None and inside is not None and not inside.ended:
            self._absorb(inside, units, plain.ids[1])
            return
        nearest = None if plain is None else next(plain.open_line(), None)
        if nearest is None:
            self._settle_all(units)
            return
        for unit in units:
            self._settle_all(nearest.await_end(unit))
        if nearest.ended:  # on another thread, just now
            self._settle_all(nearest.take_waiting())

    def _settle_all(self, units: Sequence[ExternalUnit]) -> None:
        """Settle units, because no open span can become their root any more."""
        for unit in units:
            unit.settled = True
            if isinstance(unit, FollowedUnit):
                unit.unnoted.clear()
                self._event_queue.put(self, (unit, Signal.SETTLED, (), 0), never_drop=True)
            else:
                self._count(unit)

    def _count(self, unit: ExternalUnit) -> None:
        """Count the units of spans that cannot be scored, once."""
        facts, unit.facts = unit.facts, None
        if facts is None or unit.role in (None, _ROOT):
            unit.unnoted.clear()
        self._note(unit)
        if facts is not None:
            for root_id in unit.roots():
                self._port.unit_excluded(facts_of(UnitKey(facts.key.trace_id, root_id), facts))

    def _put(self, unit: FollowedUnit, span: ReadableSpan, span_id: int, exits: Sequence[SpanProcessor]) -> bool:
        size = _SPAN_BYTES + sum([len(value) for value in attributes_of(span).values() if type(value) is str])
        if self._event_queue.put(self, (unit, span, exits, size), size):
            return bool(exits)
        unit.broken = True
        unit.open.pop(span_id, None)  # its end is lost
        if span_id == unit.key.span_id:
            self._give_up(unit)
        return False

    def _give_up(self, unit: ExternalUnit) -> None:
        if not isinstance(unit, FollowedUnit):
            self._count(unit)  # now, because the unit's end may never come
        elif not unit.done:
            unit.broken = True
            self._event_queue.put(self, (unit, Signal.GIVE_UP, (), 0), never_drop=True)

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> None:
        """Read one ended span, or apply a signal to its unit."""
        unit, span, exits, size = event
        self._read += not unit.seen
        unit.seen = True
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
        """Finish the units that have waited long enough, and end units with a root that is too old."""
        for unit in list(self._closing.values()):
            if now_ns >= unit.closes_ns:
                self._finish(unit, now_ns)
        while (oldest := self._open.oldest()) is not None and now_ns - oldest.since_ns >= MAX_AGE_NS:
            self._open.end(oldest, now_ns)
            if isinstance(oldest, FollowedUnit):
                self._break_off(oldest, now_ns)
            else:
                self._count(oldest)

    def next_due_ns(self) -> int | None:
        """Return the time at which the next waiting unit is due; None if no unit waits."""
        return min((unit.closes_ns for unit in self._closing.values()), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return the units with an ended root that wait for open spans."""
        return set(self._closing)

    def open_keys(self) -> set[UnitKey]:
        """Return the traces with an open unit, because only the end of a unit shows its roots."""
        units = [*self._open.running, *self._closing]
        return {UnitKey(key.trace_id, WHOLE_TRACE) for key in units}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit as it is. Return the units without an ended root; open spans are passed on at their end."""
        self.finish_ended(now_ns)
        running = [
            unit for unit in list(self._open.running.values()) if isinstance(unit, FollowedUnit) and not unit.done
        ]
        for unit in running:
            self._break_off(unit, now_ns)
        return [unit.key for unit in running]

    def finish_ended(self, now_ns: int) -> None:
        """Hand on the units with an ended root, and the ended spans of all other units."""
        for ids, plain in [*self._open.plain.items()]:
            if plain.ids == ids:
                self._settle_all([unit for unit in plain.take_waiting() if not isinstance(unit, FollowedUnit)])
        for unit in list(self._closing.values()):
            self._finish(unit, now_ns)
        for external in [*self._open.running.values()]:
            if isinstance(external, FollowedUnit) and external.early:
                external.is_unit = True
                self._hand_on_early(external, now_ns)

    def unread_count(self) -> int:
        """Return the number of roots that the span thread has not read. Thread-safe."""
        return self.units - self._read

    def close(self) -> None:
        """Accept no further unit. Thread-safe."""
        self.closed = True

    def notes(self) -> list[str]:
        """Return the notes on unscored spans for ``status()``."""
        untaken = self.untaken.copy()
        if self.late:
            untaken["spans came after their unit was closed"] = self.late
        logs = self._logs.counts()
        if logs is not None:
            untaken["log records with content came for no span that ended after them"] = logs.unjoined
            untaken["log records with content had no room"] = logs.dropped
        counted = [f"{spans:,} {reason}" for reason, spans in untaken.items() if spans]
        return [*scope_notes(self.scopes.listed, [self.scopes]), *self.translator.notes(), *counted]

    # --- the span thread ---------------------------------------------------------------------------------------

    def _break_off(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a unit without an ended root."""
        self._read += not unit.seen
        unit.seen = unit.broken = True
        self._finish_as_it_is(unit, now_ns)

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
            self._closing[unit.key] = unit
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
            translated = self._logs.translated(data, self.translator)
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
        self._closing.pop(part.key, None)
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
        self._closing.pop(unit.key, None)
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
        self._closing.pop(unit.key, None)
        unit.done = True
        ended = [*unit.early, *([] if unit.root_ended is None else [unit.root_ended])]
        for _, pending, _ in ended:
            if pending is not None:
                pending.end()
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.held = dict.fromkeys(unit.held)
        unit.open.clear()


def _scope(span: ReadableSpan) -> str:
    scope = span.instrumentation_scope
    return "" if scope is None else scope.name


def _facts(key: UnitKey, span: Any, session: str | None = None) -> SamplingContext:
    state = span.context.trace_state
    return SamplingContext(key, span.parent is None, state.to_header() if state else "", conversation_id=session)


def _has_ended(parent: Any, around: Context | None) -> bool:
    """Return whether the parent of a starting span is an ended span of this process."""
    above: Any = trace.get_current_span(around)
    return getattr(above, "end_time", None) is not None and above.get_span_context()[_IDS] == parent[_IDS]


def _is_root_run(span: Any, around: Context | None) -> bool:
    """Return whether a span is a further run of a batch, in the context of the previous run (see `ROOT_RUN`)."""
    if not span.name.endswith(ROOT_RUN):
        return False
    above: Any = trace.get_current_span(around)
    return getattr(above, "name", "") == span.name and _scope(above) == ROOT_RUN_SCOPE

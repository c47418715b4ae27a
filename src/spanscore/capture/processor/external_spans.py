"""The receiver of ``ScoringSpanProcessor``, which gathers spans of other instrumentations in this process into units.

A span's unit is known when it starts, from its parent. A unit closes when its topmost span has ended and no claimed span of it
is open. On the application's thread, a span costs a look-up of its scope and of its parent, and one append at its end if its
unit may be scored. The span is read and translated on the span thread (`external_unit.py`).

A span of a scope that no normalizer names often gets its attributes only at its end. The units below it wait for that end, at
most 2 s, because the span may be their root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from operator import methodcaller
from typing import Any, Final
from weakref import ReferenceType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanscore import semconv
from spanscore.capture.intake import Intake
from spanscore.capture.other_scorers import ScorerIdentity, handlers, processors, recorded_by_others
from spanscore.capture.processor.external_unit import (
    Event,
    ExternalReading,
    ExternalUnit,
    FollowedUnit,
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
from spanscore.core.codecs.sdk import attributes_of
from spanscore.core.event_queue import steady_ns
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.outputs.provider_introspection import processors_beside
from spanscore.pipeline.assembly import ROOT_RUN, ROOT_RUN_SCOPE, RootRole
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
_TOO_LATE: Final = "spans got GenAI attributes only after a unit below them was closed: that unit is scored"
_BEFORE: Final = "spans are steps of runs that began before ScoringSpanProcessor was added"


@dataclass(eq=False, repr=False)
class ExternalSpans:
    """The receiver of all processors of one scorer.

    Attributes:
        intake: the first parts.
        scopes: roles of instrumentation scopes, which decide the claimed spans.
        translator: normalizers, which map spans to GenAI names.
        ready: called with the first root (of each process): chooses providers and starts the span thread.
        spans_file: file that also gets the spans of units with their scores; None = no file.
        identity: identity of the scorer, for other scorers in the process.
        others: receivers of other scorers.
        units: number of accepted topmost spans.
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
        """Use these parts from now on, without a unit: spans that are open at a fork belong to the parent."""
        self._intake, self._event_queue, self._port = intake, intake.event_queue, intake.port
        self._sampler, self._turns = intake.sampler, intake.turns
        self._open = OpenUnits()
        self._reading = ExternalReading(self._port, self.translator)
        self.units = 0
        self.untaken: Counter[str] = Counter()
        self._is_ready = False

    @property
    def late(self) -> int:
        """Number of spans that ended after their unit was closed, and were passed on unchanged."""
        return self._reading.late

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
            self._reading.late += not self.closed
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
            unit = other._open.of.get(key)
            if unit is not None and unit.key == key:
                shared |= self.identity.meet(other.identity)
        return shared

    def take_log(self, record: ContentRecord) -> None:
        """Keep content from a log record until its span is read, unless the span will not be scored. Thread-safe."""
        unit = self._open.of.get(record.ids)
        if not self.closed and (unit is None or isinstance(unit, FollowedUnit)):
            self._reading.logs.add([record])

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
        self._reading.handle(event, now_ns)

    def tick(self, now_ns: int) -> None:
        """Finish the units that have waited long enough, and end units with a root that is too old."""
        self._reading.tick(now_ns)
        while (oldest := self._open.oldest()) is not None and now_ns - oldest.since_ns >= MAX_AGE_NS:
            self._open.end(oldest, now_ns)
            if isinstance(oldest, FollowedUnit):
                self._reading.break_off(oldest, now_ns)
            else:
                self._count(oldest)

    def next_due_ns(self) -> int | None:
        """Return the time at which the next waiting unit is due; None if no unit waits."""
        return self._reading.next_due_ns()

    def in_flight(self) -> set[UnitKey]:
        """Return the units with an ended root that wait for open spans."""
        return set(self._reading.closing)

    def open_keys(self) -> set[UnitKey]:
        """Return the traces with an open unit, because only the end of a unit shows its roots."""
        units = [*self._open.running, *self._reading.closing]
        return {UnitKey(key.trace_id, WHOLE_TRACE) for key in units}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit as it is. Return the units without an ended root; open spans are passed on at their end."""
        self.finish_ended(now_ns)
        running = [
            unit for unit in list(self._open.running.values()) if isinstance(unit, FollowedUnit) and not unit.done
        ]
        for unit in running:
            self._reading.break_off(unit, now_ns)
        return [unit.key for unit in running]

    def finish_ended(self, now_ns: int) -> None:
        """Hand on the units with an ended root, and the ended spans of all other units."""
        for ids, plain in [*self._open.plain.items()]:
            if plain.ids == ids:
                self._settle_all([unit for unit in plain.take_waiting() if not isinstance(unit, FollowedUnit)])
        self._reading.finish_ended([*self._open.running.values()], now_ns)

    def unread_count(self) -> int:
        """Return the number of roots that the span thread has not read. Thread-safe."""
        return self.units - self._reading.units

    def close(self) -> None:
        """Accept no further unit. Thread-safe."""
        self.closed = True

    def notes(self) -> list[str]:
        """Return the notes on unscored spans for ``status()``."""
        untaken = self.untaken.copy()
        if self.late:
            untaken["spans came after their unit was closed"] = self.late
        logs = self._reading.logs.counts()
        if logs is not None:
            untaken["log records with content came for no span that ended after them"] = logs.unjoined
            untaken["log records with content had no room"] = logs.dropped
        counted = [f"{spans:,} {reason}" for reason, spans in untaken.items() if spans]
        return [*scope_notes(self.scopes.listed, [self.scopes]), *self.translator.notes(), *counted]


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

"""The receiver of ``ScoringSpanProcessor``, which gathers spans of other instrumentations in this process into units.

1. At its start, a span is added to the unit of its parent, or begins a unit.
2. At its end, a span of a unit that may be scored is sent to the span thread.
3. The span thread translates the span, and keeps it in ``early`` until the unit and its root are certain.
4. The unit is handed on to the listener when its topmost span has ended, and none of its claimed spans is open.

On the application's thread, a span costs a look-up of its scope and of its parent, and one append at its end.

A span of a scope that no normalizer names often gets its attributes only at its end. The units below it wait for that end, at
most 2 s, because the span may be their root. ``external_unit`` explains the words *followed*, *plain* and *settled*.
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
from spanscore.pipeline.assembly import (
    GRACE_NS,
    ROOT_RUN,
    RootRole,
    is_further_run,
    is_step,
    role_of_operation,
    split,
)
from spanscore.pipeline.in_force import WHOLE_TRACE
from spanscore.samples.normalizers.registry import SpanNormalizers

MAX_AGE_NS: Final = 3_600_000_000_000
"""Maximum age of a root that has not ended; its unit is then ended as incomplete."""
_SPAN_BYTES: Final = 2_000
_MOST_KEPT_SPANS: Final = 100
"""Number of ended spans of an unsampled unit that are kept unread until its root ends: usually only the root is read then."""

_OURS, _CLAIMED, _IGNORED, _UNKNOWN = Role.OURS, Role.CLAIMED, Role.IGNORED, Role.UNKNOWN
_ROOT: Final = RootRole.ROOT
_IDS: Final = slice(2)
"""Trace id and span id, the first items of a ``SpanContext``. A ``SpanContext`` is a tuple; its properties are slow."""
PLAIN_GRACE_NS: Final = 2_000_000_000
"""Time in nanoseconds for which a unit waits for the open spans above it, one of which may turn out to be its root."""
_STEP_NS: Final = 30_000_000_000
"""Time in nanoseconds for which a unit waits for an open step, if its root ends before its steps. The span of a failed step of
LlamaIndex never ends.
"""
_MOST_EARLY: Final = 100
"""Number of spans that are kept as ``early``. At this number they count as a unit with the topmost span as its root."""
_LOG_BYTES: Final = 16_000_000
_LOG_WAIT_NS: Final = 600_000_000_000
"""Time for which content in log records waits for the end of its span, in nanoseconds; ``_LOG_BYTES`` limits its size."""
_UNIT_ROLES: Final = (RootRole.ROOT, RootRole.STEP)
_TOO_LATE: Final = "spans got GenAI attributes only after a unit below them was closed: that unit is scored"
_STEPS_OF_EARLIER_RUNS: Final = "spans are steps of runs that began before ScoringSpanProcessor was added"


@dataclass(eq=False, repr=False)
class ExternalSpans:
    """The receiver of all processors of one scorer.

    Attributes:
        intake: the intake to use first; ``connect`` replaces it.
        scopes: roles of instrumentation scopes, which decide the claimed spans.
        translator: normalizers, which map spans to GenAI names.
        ready: called with the first root of each process; it chooses providers and starts the span thread.
        spans_file: file that also gets the spans of units with their scores; None = no file.
        identity: identity of the scorer, for other scorers in the process.
        others: receivers of other scorers.
        units: number of accepted topmost spans.
        late: number of spans that ended after their unit was closed, and were passed on unchanged.
        not_accepted: reason → number of spans with GenAI attributes that were not accepted.
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
        processors.add(self)
        self.closed = False
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Use this intake from now on, and forget all units. In a forked child, open spans belong to the parent process."""
        self._intake, self._event_queue, self._port = intake, intake.event_queue, intake.listener
        self._sampler, self._session_ids = intake.sampler, intake.session_ids
        self._open = OpenUnits()
        self._logs = LogContent(_LOG_BYTES, _LOG_WAIT_NS)
        self._closing: dict[UnitKey, FollowedUnit] = {}  # units with an ended root that wait for open spans
        self.units = self._read = self.late = 0
        self.not_accepted: Counter[str] = Counter()
        self._is_ready = False

    # --- the application's threads -----------------------------------------------------------------------------

    def on_start(self, span: Any, processor: object, parent_context: Context | None = None) -> bool:
        """Assign a started span to its unit. Return whether the span begins a unit that may be scored.

        ``processor`` is the caller. ``parent_context`` is the context in which the span started; None = the current context.
        """
        scope = _scope(span)
        role = self._roles.get(scope) or self.scopes.role(scope)
        if role is _OURS:
            return False
        ids, parent = span.context[_IDS], span.parent
        unit = None if parent is None else self._open.by_span.get(parent[_IDS])
        if unit is None or (unit.ended and _began_later(span, parent_context)):
            return self._begin_span(span, ids, role, processor, parent_context)
        if span.name.endswith(ROOT_RUN) and _is_further_run(span, parent_context):
            return self._begin_span(span, ids, role, processor, parent_context)
        self._add(unit, span, ids, role)
        return False

    def on_end(self, span: ReadableSpan, processor: object, targets: Sequence[SpanProcessor]) -> bool:
        """Accept an ended span, to be passed on to ``targets`` later. Return False if the caller must pass it on now."""
        accepted = self._accept_ended(span, processor, (*targets, *self._files))
        if self._files and not accepted:
            role = self.scopes.role(_scope(span))
            if role is not _OURS and self._is_claimed(span, role):
                pass_on(span, self._files)
        return accepted and bool(targets)

    def _accept_ended(self, span: ReadableSpan, processor: object, targets: Sequence[SpanProcessor]) -> bool:
        context: Any = span.get_span_context()
        ids = context[_IDS]
        unit = self._open.by_span.get(ids)
        if unit is None and (unit := self._recognise_at_end(span, ids, processor)) is None:
            return False
        if ids == unit.key:
            return self._accept_ended_root(unit, span, context, processor, targets)
        if isinstance(unit, FollowedUnit):
            if unit.open_above is not None:
                self._keep_for_roles(unit, span)
            return self._accept_followed(unit, span, context, processor, targets)
        if unit.role is not _ROOT:
            self._keep_for_roles(unit, span)
        return False

    def _accept_ended_root(
        self, unit: ExternalUnit, span: ReadableSpan, ids: Any, processor: object, targets: Sequence[SpanProcessor]
    ) -> bool:
        is_first = not unit.ended  # another processor may have ended it
        if is_first:
            self._open.end(unit, steady_ns())
            if unit.role is None:
                unit.role = root_role(attributes_of(span), _scope(span))
            if unit.open_above is None or next(unit.open_above.open_spans(), None) is None:
                unit.settled = True
                if not isinstance(unit, FollowedUnit):
                    self._count_excluded(unit)
        accepted = isinstance(unit, FollowedUnit) and self._accept_followed(unit, span, ids, processor, targets)
        if is_first and not unit.settled:
            self._await_open_span(unit.open_above, [unit])
        return accepted

    def _accept_followed(
        self, unit: FollowedUnit, span: ReadableSpan, ids: Any, processor: object, targets: Sequence[SpanProcessor]
    ) -> bool:
        if unit.finished:
            self.late += not self.closed
            return False
        if not ids.trace_flags.sampled:  # recorded only: exporters drop it, so nothing waits for it
            targets = ()
        if not targets and unit.processor is not processor:  # the other processor sends it
            return False
        is_claimed = ids[_IDS] == unit.key or self._is_claimed(span, self.scopes.role(_scope(span)))
        return is_claimed and self._send(unit, span, ids[1], targets)

    def _add(self, unit: ExternalUnit, span: Any, ids: Ids, role: Role) -> None:
        """Add a span to a unit. Another processor may have added the span already."""
        self._open.by_span[ids] = unit
        unit.spans.append(ids)
        if role is not _CLAIMED and not self._is_claimed(span, role):
            if unit.role is not _ROOT or unit.open_above is not None:
                unit.unread[ids[1]] = span.parent[1]
        elif isinstance(unit, FollowedUnit):
            unit.open[ids[1]] = None

    def _keep_for_roles(self, unit: ExternalUnit, span: ReadableSpan) -> None:
        """Keep a span of a unit that may not be scored, because its roots are then counted by the roles of its spans."""
        if not unit.ended:
            unit.kept_spans.append(span)
            if len(unit.kept_spans) > _MOST_KEPT_SPANS:
                self._record_roles(unit)

    def _record_roles(self, unit: ExternalUnit) -> None:
        """Record the roles of the kept spans, which decide on roots, and drop the spans."""
        while unit.kept_spans:
            try:
                span = unit.kept_spans.pop()
            except IndexError:  # another thread took the last one
                return
            scope = _scope(span)
            if self._is_claimed(span, self.scopes.role(scope)):
                ids: Any = span.get_span_context()
                parent: Any = span.parent
                unit.roles[ids.span_id] = parent.span_id, root_role(attributes_of(span), scope)

    def _begin_span(self, span: Any, ids: Ids, role: Role, processor: object, parent_context: Context | None) -> bool:
        """Handle a span that has no unit above it. Return whether it begins a unit that may be scored."""
        seen_unit = self._open.by_span.get(ids)
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
            self._settle(self._open.start_plain(ids, span, above))
        elif not (self.closed or context.is_judging() or self._is_step_of_earlier(span, processor, parent_context)):
            return isinstance(self._begin_unit(span, ids, role, processor, above), FollowedUnit)
        return False

    def _begin_unit(self, span: Any, ids: Ids, role: Role, processor: object, above: PlainSpan | None) -> ExternalUnit:
        """Begin the unit of a claimed span. Its root is the span, or the topmost open span above it with GenAI attributes."""
        claimed = [plain for plain in (() if above is None else above.open_spans()) if self._has_marks(plain.span)]
        if not claimed:
            return self._create_unit(ids, span, role, processor, above)
        top = claimed[-1]
        top.unit = self._create_unit(top.ids, top.span, self.scopes.role(_scope(top.span)), processor, top.above)
        self._open.end_plain(top.ids)
        self._add_parts(top.unit, top.pop_waiting(), top.ids[1])
        self._add(top.unit, span, ids, role)
        return top.unit

    def _create_unit(self, ids: Ids, root: Any, role: Role, processor: object, above: PlainSpan | None) -> ExternalUnit:
        """Add a unit with this root, whose attributes may be incomplete. ``above`` is the open plain span above the root."""
        unit = self._admit(UnitKey(*ids), root, processor, above)
        if root.parent is not None:
            unit.parent_id = root.parent[1]
        if root.attributes and root_role(attributes_of(root), _scope(root)) is _ROOT:
            unit.role = _ROOT
        if role is not _CLAIMED:
            self.scopes.found_by_content(_scope(root))
        oldest = self._open.begin(unit)
        if oldest is not None:
            self._give_up(oldest)
        return unit

    def _recognise_at_end(self, span: ReadableSpan, ids: Ids, processor: object) -> ExternalUnit | None:
        """End a plain span. Return its unit, with the waiting units as parts; None if the span is no root and below none."""
        plain = self._open.end_plain(ids)
        if plain is None:
            return None
        waiting = plain.pop_waiting()
        if (unit := plain.unit_above()) is not None:
            self._open.by_span[ids] = unit
            unit.spans.append(ids)
            self._add_parts(unit, waiting, ids[1])
            return unit
        nearest = None if plain.above is None else next(plain.above.open_spans(), None)
        if not self._has_marks(span) or self.closed or context.is_judging():
            self._await_open_span(nearest, waiting)
            return None
        if plain.decided:
            self.not_accepted[_TOO_LATE] += 1
            self._settle(waiting)
            return None
        unit = self._create_unit(ids, plain.span, _UNKNOWN, processor, nearest)
        self._add_parts(unit, waiting, ids[1])
        return unit

    def _add_parts(self, unit: ExternalUnit, parts: Sequence[ExternalUnit], parent_id: int) -> None:
        """Make ended units below the span ``parent_id`` parts of a unit with a root above them."""
        for part in parts:
            self._record_roles(part)
            part.facts = None
            unit.roles |= part.roles | {part.key.span_id: (part.parent_id, part.role or _ROOT)}
            unit.unread |= part.unread
            if part.parent_id is not None and part.parent_id != parent_id:
                unit.unread[part.parent_id] = parent_id
            if isinstance(part, FollowedUnit) and isinstance(unit, FollowedUnit):
                unit.parts.append(part)
            elif isinstance(part, FollowedUnit):
                self._event_queue.put(self, (part, Signal.DROP, (), 0), never_drop=True)

    def _is_step_of_earlier(self, span: Any, processor: object, parent_context: Context | None) -> bool:
        """Return whether a span belongs to a run that began before the processor was added; such runs are never complete."""
        if span.parent is None or span.parent.is_remote or span.parent[_IDS] in self._open.by_span:
            return False
        above: Any = trace.get_current_span(parent_context)
        if not above.is_recording() or processor not in processors_beside(above):
            return False
        # By its scope only: attributes may be later than the start.
        is_step = self.scopes.role(_scope(above)) is _CLAIMED
        self.not_accepted[_STEPS_OF_EARLIER_RUNS] += is_step
        return is_step

    def _find_shared_metrics(self, key: UnitKey, scope: str) -> frozenset[str]:
        """Return the metrics that other running scorers score on a unit, through their processors or callbacks."""
        shared: frozenset[str] = frozenset()
        if handlers.from_other_scorers(self.identity) and library_of(scope) == "langchain":
            shared = recorded_by_others(self.identity)
        for reference in self.others:
            other = reference()
            if other is None or other.closed:
                continue
            unit = other.unit_at(key)
            if unit is not None and unit.key == key:
                shared |= self.identity.share_run(other.identity)
        return shared

    def keep_log(self, record: ContentRecord) -> None:
        """Keep content from a log record until its span is read, if the span may be scored. Thread-safe."""
        unit = self._open.by_span.get(record.ids)
        if not self.closed and (unit is None or isinstance(unit, FollowedUnit)):
            self._logs.add([record])

    def unit_at(self, ids: Ids) -> ExternalUnit | None:
        """Return the open unit of a span; None if it is unknown."""
        return self._open.by_span.get(ids)

    def _admit(self, key: UnitKey, span: Any, processor: object, above: PlainSpan | None) -> ExternalUnit:
        """Return a new unit: a ``FollowedUnit`` if a metric may sample it with this root, or with an open span above it."""
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
        if session is not None and self._session_ids is not None:
            self._session_ids.record_start(session, span.start_time, shared)
        # A shared unit is kept whatever the rates are, because it is counted only for some metrics.
        may_be_sampled = bool(shared) or self._sampler.could_sample(facts)
        if not may_be_sampled and (above is None or not any(map(self._may_become_scored_root, above.open_spans()))):
            return ExternalUnit(key=key, facts=facts, open_above=above)
        self.units += 1
        return FollowedUnit(
            key=key,
            facts=facts,
            open_above=above,
            root=span,
            processor=processor,
            may_be_sampled=may_be_sampled,
            shared=shared,
            session=session,
            open={key.span_id: None},
        )

    def _may_become_scored_root(self, plain: PlainSpan) -> bool:
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

    def _await_open_span(self, plain: PlainSpan | None, units: Sequence[ExternalUnit]) -> None:
        """Make ended units wait for the nearest open plain span above them; units without such a span are settled."""
        # If one of the spans above has become the root of a unit, the ended units become its parts.
        unit_above = None if plain is None else plain.unit_above()
        if plain is not None and unit_above is not None and not unit_above.ended:
            self._add_parts(unit_above, units, plain.ids[1])
            return
        nearest = None if plain is None else next(plain.open_spans(), None)
        if nearest is None:
            self._settle(units)
            return
        for unit in units:
            self._settle(nearest.await_end(unit))
        if nearest.ended:  # on another thread, just now
            self._settle(nearest.pop_waiting())

    def _settle(self, units: Sequence[ExternalUnit]) -> None:
        """Settle units: no plain span can become their root any more."""
        for unit in units:
            unit.settled = True
            if isinstance(unit, FollowedUnit):
                unit.kept_spans.clear()
                self._event_queue.put(self, (unit, Signal.SETTLED, (), 0), never_drop=True)
            else:
                self._count_excluded(unit)

    def _count_excluded(self, unit: ExternalUnit) -> None:
        """Count the units among the spans of a unit that cannot be scored, once."""
        facts, unit.facts = unit.facts, None
        if facts is None or unit.role in (None, _ROOT):
            unit.kept_spans.clear()
        self._record_roles(unit)
        if facts is not None:
            for root_id in unit.roots():
                self._port.unit_excluded(facts_of(UnitKey(facts.key.trace_id, root_id), facts))

    def _send(self, unit: FollowedUnit, span: ReadableSpan, span_id: int, targets: Sequence[SpanProcessor]) -> bool:
        size = _SPAN_BYTES + sum([len(value) for value in attributes_of(span).values() if type(value) is str])
        if self._event_queue.put(self, (unit, span, targets, size), size):
            return bool(targets)
        unit.incomplete = True
        unit.open.pop(span_id, None)  # its end is lost
        if span_id == unit.key.span_id:
            self._give_up(unit)
        return False

    def _give_up(self, unit: ExternalUnit) -> None:
        if not isinstance(unit, FollowedUnit):
            self._count_excluded(unit)  # now, because the unit's end may never come
        elif not unit.finished:
            unit.incomplete = True
            self._event_queue.put(self, (unit, Signal.GIVE_UP, (), 0), never_drop=True)

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> None:
        """Read one ended span, or apply a signal to its unit."""
        unit, span, targets, size = event
        self._read += not unit.is_read
        unit.is_read = True
        if isinstance(span, Signal):
            if span is Signal.GIVE_UP:
                self._finish_without_end(unit, now_ns)
            elif span is Signal.DROP:
                self._release(unit)
            else:
                self._finish_if_whole(unit, now_ns)
            return
        ids: Any = span.get_span_context()
        if ids.span_id in unit.pending:  # another processor passed it on, too
            pending = unit.pending[ids.span_id]
            if pending is None or not pending.add_processors(targets):
                pass_on(span, targets)
            return
        unit.open.pop(ids.span_id, None)
        if unit.finished:
            self.late += 1
            pass_on(span, targets)
            return
        self._add_ended(unit, span, HeldSpan(span, [*targets], size) if targets else None, size, now_ns)

    def tick(self, now_ns: int) -> None:
        """Finish the units that have waited long enough, and end units with a root that is too old."""
        for unit in list(self._closing.values()):
            if now_ns >= _due_ns(unit):
                self._finish(unit, now_ns)
        while (oldest := self._open.oldest()) is not None and now_ns - oldest.started_ns >= MAX_AGE_NS:
            self._open.end(oldest, now_ns)
            if isinstance(oldest, FollowedUnit):
                self._abandon(oldest, now_ns)
            else:
                self._count_excluded(oldest)

    def next_due_ns(self) -> int | None:
        """Return the time at which the next waiting unit is due; None if no unit waits."""
        return min(map(_due_ns, self._closing.values()), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return the units with an ended root that wait for open spans."""
        return set(self._closing)

    def open_keys(self) -> set[UnitKey]:
        """Return the traces with an open unit, because only the end of a unit shows its roots."""
        units = [*self._open.running, *self._closing]
        return {UnitKey(key.trace_id, WHOLE_TRACE) for key in units}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit as it is. Return the units without an ended root. Spans that are open now are passed on later."""
        self.finish_ended(now_ns)
        running = [
            unit for unit in list(self._open.running.values()) if isinstance(unit, FollowedUnit) and not unit.finished
        ]
        for unit in running:
            self._abandon(unit, now_ns)
        return [unit.key for unit in running]

    def finish_ended(self, now_ns: int) -> None:
        """Hand on the units with an ended root, and the ended spans of all other units, for ``export_held_spans``."""
        for ids, plain in [*self._open.plain.items()]:
            if plain.ids == ids:
                self._settle([unit for unit in plain.pop_waiting() if not isinstance(unit, FollowedUnit)])
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
        counts = self.not_accepted.copy()
        counts["spans came after their unit was closed"] = self.late
        logs = self._logs.counts()
        if logs is not None:
            counts["log records with content came for no span that ended after them"] = logs.unjoined
            counts["log records with content had no room"] = logs.dropped
        notes = [f"{count:,} {reason}" for reason, count in counts.items() if count]
        return [*scope_notes(self.scopes.listed, [self.scopes]), *self.translator.notes(), *notes]

    # --- the span thread ---------------------------------------------------------------------------------------

    def _abandon(self, unit: FollowedUnit, now_ns: int) -> None:
        self._read += not unit.is_read
        unit.is_read = unit.incomplete = True
        self._finish_without_end(unit, now_ns)

    def _add_ended(
        self, unit: FollowedUnit, span: ReadableSpan, pending: HeldSpan | None, size: int, now_ns: int
    ) -> None:
        data = self._read_span(unit, span)
        unit.pending[data.span_id] = pending
        if data.span_id == unit.key.span_id:
            unit.root_ended = data, pending, size
            unit.closes_ns = now_ns + (GRACE_NS if unit.settled else PLAIN_GRACE_NS)
            self._closing[unit.key] = unit
            for part in unit.parts:
                self._join_part(unit, part)
        elif unit.handed_on:
            self._port.span_ended(unit.key, data, pending, now_ns, size_bytes=size)
        else:
            unit.early.append((data, pending, size))
            is_full = len(unit.early) >= _MOST_EARLY
            unit.is_unit = unit.is_unit or is_full
            if is_full or (unit.is_unit and unit.open_above is None):
                self._hand_on_early(unit, now_ns)
        self._finish_if_whole(unit, now_ns)

    def _finish_if_whole(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a settled unit with an ended root and no open span. A root that ends before its steps waits for the next."""
        if not unit.settled or unit.root_ended is None:
            return
        if _ends_before_steps(unit.root_ended[0]):
            unit.closes_ns = now_ns + GRACE_NS
        elif not unit.open:
            self._finish(unit, now_ns)

    def _read_span(self, unit: FollowedUnit, span: ReadableSpan) -> SpanData:
        """Return an ended span in GenAI names, without attributes if no normalizer claims it."""
        data = span_data(span)
        try:
            translated = self._logs.translate(data, self.translator)
        except Exception as error:  # noqa: BLE001  (the application's span is passed on in any case)
            log_internal_error("read a span", error)
            translated, unit.incomplete, unit.is_unit = None, True, True
        if translated is None:
            return replace(data, attributes={}, events=(), unread=unit.unread)
        unit.is_unit = unit.is_unit or role_of_operation(translated.operation) in _UNIT_ROLES
        if data.span_id != unit.key.span_id or not (unit.session or unit.unread):
            return translated
        return replace(translated, conversation_id=unit.session, unread=unit.unread)

    def _join_part(self, unit: FollowedUnit, part: FollowedUnit) -> None:
        """Move the spans of a part to its unit, unless they were handed on already."""
        if part.finished or part.handed_on or part.root_ended is None:
            return
        self._closing.pop(part.key, None)
        unit.early += [*part.early, part.root_ended]
        unit.pending.update(part.pending)
        unit.is_unit = unit.is_unit or part.is_unit
        unit.incomplete = unit.incomplete or part.incomplete
        part.finished, part.early, part.root_ended, part.root = True, [], None, None

    def _hand_on_early(self, unit: FollowedUnit, now_ns: int) -> None:
        unit.handed_on = True
        if unit.shared:
            self._port.metrics_shared(unit.key, unit.shared)
        if unit.role is RootRole.ROOT:
            self._port.unit_opened(unit.key, now_ns)
        early, unit.early = unit.early, []
        for data, pending, size in early:
            self._port.span_ended(unit.key, data, pending, now_ns, size_bytes=size)

    def _finish_without_end(self, unit: FollowedUnit, now_ns: int) -> None:
        """Finish a unit without an ended root, or with a root that was passed on unread."""
        if not unit.finished:
            root = span_data(unit.root)
            root = replace(root, end_ns=max(time_ns(), root.start_ns), attributes={}, events=())
            unit.is_unit, unit.may_be_sampled, unit.role, unit.root_ended = True, True, RootRole.ROOT, (root, None, 0)
            self._finish(unit, now_ns)

    def _finish(self, unit: FollowedUnit, now_ns: int) -> None:
        """Hand on a unit with an ended root, or count or release it."""
        assert unit.root_ended is not None
        unit.settled = True
        if not unit.may_be_sampled and not unit.handed_on:
            self._exclude(unit)
            return
        data, pending, size = unit.root_ended
        self._closing.pop(unit.key, None)
        unit.finished, unit.facts = True, None
        if not unit.is_unit:  # an agent is built, texts are embedded: the spans are passed on, uncounted
            self._release(unit)
            return
        unit.pending = {data.span_id: pending}  # another processor may pass it on later
        if not unit.handed_on:
            self._hand_on_early(unit, now_ns)
        if unit.incomplete:
            self._port.events_lost(unit.key, now_ns)
        self._port.span_ended(unit.key, data, pending, now_ns, size_bytes=size)
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.open.clear()

    def _exclude(self, unit: FollowedUnit) -> None:
        """Count a unit that could only be scored with a plain span above it as its root, which no span became."""
        facts, unit.facts = unit.facts, None
        assert unit.root_ended is not None
        spans = tuple(data for data, _, _ in (*unit.early, unit.root_ended))
        if facts is not None:
            for part in split(Unit(unit.key, spans)):
                self._port.unit_excluded(facts_of(part.key, facts))
        self._release(unit)

    def _release(self, unit: FollowedUnit) -> None:
        self._closing.pop(unit.key, None)
        unit.finished = True
        ended = [*unit.early, *([] if unit.root_ended is None else [unit.root_ended])]
        for _, pending, _ in ended:
            if pending is not None:
                pending.end()
        unit.early, unit.root_ended, unit.root = [], None, None
        unit.pending = dict.fromkeys(unit.pending)
        unit.open.clear()


def _scope(span: ReadableSpan) -> str:
    scope = span.instrumentation_scope
    return "" if scope is None else scope.name


def _facts(key: UnitKey, span: Any, session: str | None = None) -> SamplingContext:
    state = span.context.trace_state
    return SamplingContext(key, span.parent is None, state.to_header() if state else "", conversation_id=session)


def _began_later(span: Any, parent_context: Context | None) -> bool:
    """Return whether a span began after the end of its parent in this process. LangSmith creates the spans of a run, with the
    times of its steps, when the run has ended."""
    above: Any = trace.get_current_span(parent_context)
    end_ns = getattr(above, "end_time", None)
    if end_ns is None or is_step(_scope(span), span.name):
        return False
    return bool(span.start_time >= end_ns and above.get_span_context()[_IDS] == span.parent[_IDS])


def _due_ns(unit: FollowedUnit) -> int:
    """Return the time at which a unit with an ended root stops waiting for its spans."""
    awaits_step = unit.open and unit.root_ended is not None and _ends_before_steps(unit.root_ended[0])
    return unit.closes_ns + (_STEP_NS if awaits_step else 0)


def _ends_before_steps(root: SpanData) -> bool:
    """Return whether an ended root may have ended before its steps, as a run of LlamaIndex does (see `is_step`)."""
    return root.scope == semconv.LLAMA_INDEX_SCOPE and root.no_content is not None


def _is_further_run(span: Any, parent_context: Context | None) -> bool:
    above: Any = trace.get_current_span(parent_context)
    return hasattr(above, "name") and is_further_run(_scope(span), span.name, _scope(above), above.name)

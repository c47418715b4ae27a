"""OtlpSpans: spans that arrive over the wire, in any order → units: the receiver of ``spanscore serve``.

Nothing tells that a span began. So the bytes of claimed spans wait in a table until their unit is whole, and only what may
be scored is ever decoded and translated; of all others a root's bytes say whether it is a unit, and it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from spanscore import semconv
from spanscore.codec.wire import Taken, WireSpan, kept, span_data_of, trace_state_of
from spanscore.dialects.translations.registry import Translator
from spanscore.model.received import Received
from spanscore.model.score import Outcome
from spanscore.model.span import Facts, SpanData, Unit, UnitKey
from spanscore.protocols import Admission, Receiver, Recorded, Sampler
from spanscore.receivers.otlp.claims import WireClaims
from spanscore.receivers.otlp.counts import DoorCounts
from spanscore.receivers.otlp.held import Exit
from spanscore.receivers.otlp.kept import KeptSpans, key_of
from spanscore.receivers.otlp.unsampled import Sorting, UnsampledUnit, add_unsampled
from spanscore.receivers.scopes import Role, scope_notes
from spanscore.runtime.gil import yield_gil
from spanscore.runtime.inbox import Inbox
from spanscore.runtime.log import log_internal_error
from spanscore.settings.serving import WireUnits
from spanscore.units.traces import Bounds, ClosedUnit, TraceTable

__all__ = ["Exit", "Looked", "OtlpSpans", "bounds_of"]

_OURS: Final = Role.OURS


class Looked(NamedTuple):
    """What the spans of one request are to us.

    Attributes:
        taken: the request.
        sorting: of all that are not ours.
        kept: those that wait for their scores; all others are to go on now.
    """

    taken: Taken
    sorting: Sorting
    kept: Sequence[WireSpan]


class _Arrived(NamedTuple):
    """The spans of one request.

    Attributes:
        unsampled: units that are told to be so.
        spans: the others, each with whether it is claimed.
        roots: how many of them begin a unit for sure.
        traces: how many have a claimed one.
        kept: those that wait for their exit.
    """

    unsampled: Sequence[UnsampledUnit]
    spans: Sequence[tuple[WireSpan, bool]]
    roots: int
    traces: int
    kept: Sequence[WireSpan]
    exit: Exit | None


class OtlpSpans:
    """The receiver of everything that listens for OTLP.

    Args:
        inbox: the way to the span thread.
        port: where units are handed on.
        sampler: asked once per root whether the unit may be scored at all.
        admission: counts the units that are not handed on.
        bounds: of what waits.
        claims: whose spans are read.
        translator: puts them into GenAI names.
        ready: called with each request: the first chooses providers and starts the span thread.

    Attributes:
        counts: what came to the door.
        table: where spans wait for their units.
        forward: how sending on went, of a proxy: requests sent, requests failed, the last error; None where there is none.
        units: that were handed on or counted.
    """

    def __init__(
        self,
        inbox: Inbox[Receiver],
        port: Recorded,
        sampler: Sampler,
        admission: Admission,
        *,
        bounds: Bounds,
        claims: WireClaims,
        translator: Translator,
        ready: Callable[[], None],
    ) -> None:
        self._inbox = inbox
        self._port = port
        self._sampler = sampler
        self._admission = admission
        self._bounds = bounds
        self._claims = claims
        self._translator = translator
        self._ready = ready
        self._mended: Counter[str] = Counter()
        self._closed = False
        self.counts = DoorCounts()
        self.table = TraceTable(bounds, follows=self._follows, stands_alone=self._stands_alone)
        self.forward: Callable[[], tuple[int, int, str]] | None = None
        self._kept = KeptSpans()
        self._taken = self._read = self._traces_taken = self._traces_read = self.units = 0

    def reset(self) -> None:
        """Forget every span and count from zero: in a forked child, as what came in is the parent's."""
        self._mended.clear()
        self.counts.reset()
        self.table.reset()
        self._kept.reset()
        self._taken = self._read = self._traces_taken = self._traces_read = self.units = 0

    # --- the threads of who listens ----------------------------------------------------------------------------

    def overloaded(self) -> str | None:
        """Return what is full, ``bytes``, ``traces`` or ``inbox``: the next request is to be refused. None: take it."""
        if self.table.bytes >= self._bounds.bytes:
            return "bytes"
        if self.table.open + self._traces_taken - self._traces_read >= self._bounds.traces:
            return "traces"
        return None if self._inbox.admits() else "inbox"

    def take(self, taken: Taken, exit: Exit | None = None) -> Sequence[WireSpan]:
        """Take the spans of one request; return those that are kept. Does not block, but for the first one.

        Args:
            taken: the request; ``overloaded`` was asked before.
            exit: where kept spans go on to, once each, whatever happens; None = none is kept.
        """
        looked = self.look(taken, keep=exit is not None)
        self.take_in(looked, exit)
        return looked.kept

    def look(self, taken: Taken, *, keep: bool) -> Looked:
        """Return what the spans of a request are to us. Any thread; nothing is taken yet.

        Args:
            taken: the request.
            keep: whether some are to wait for their scores: claimed ones of a unit that may be scored, as far as can be told.
        """
        roles = [self._claims.role(origin) for origin, _ in taken.places]  # in their order: who comes first is heard
        sorting = Sorting(taken, self._may_begin)
        for (origin, places), role in zip(reversed(taken.places), reversed(roles), strict=True):
            if role is not _OURS:
                sorting.read(origin, places, self._claims.mark(role))
        return Looked(taken, sorting, self._to_keep(self._claimed(taken, roles)) if keep else [])

    def take_in(self, looked: Looked, exit: Exit | None) -> None:
        """Take the spans of a request that was looked at; ``exit`` is given those that are kept."""
        if self._closed:
            if exit is not None:
                for span in looked.kept:
                    exit.pass_on(span, None)
            return
        self._ready()
        taken, sorting, kept = looked
        self.counts.took(
            taken.total, taken.rejected, ours=taken.total - sorting.read_spans, unclaimed=sorting.unclaimed
        )
        self._taken += sorting.roots
        of_units = [span for span, claimed in sorting.others if claimed]
        traces = len({unit.root.trace_id for unit in sorting.unsampled} | {span.trace_id for span in of_units})
        self._traces_taken += traces  # a burst is read later, and may be many times what the table may hold
        size = sum([len(span.raw) for span in of_units])
        arrived = _Arrived(sorting.unsampled, sorting.others[::-1], sorting.roots, traces, kept, exit)
        self._inbox.put(self, arrived, size, must=True)

    def _claimed(self, taken: Taken, roles: Sequence[Role]) -> list[WireSpan]:
        claimed = list[WireSpan]()
        for (origin, places), role in zip(taken.places, roles, strict=True):
            marked = self._claims.mark(role)
            if role is not _OURS:
                claimed += [
                    kept(taken.body, place, origin)
                    for place in places
                    if marked is None or marked(taken.body, place[4], place[5]) is not None
                ]
        return claimed

    def _to_keep(self, claimed: Sequence[WireSpan]) -> list[WireSpan]:
        """Return the spans of units that may be scored: of their trace's root, or of one that may begin with them."""
        ids, by_trace, kept = {span.span_id for span in claimed}, dict[tuple[bytes, str], bool](), list[WireSpan]()
        for span in claimed:
            of_trace = span.trace_id, trace_state_of(span)
            if of_trace not in by_trace:  # by nothing else is a trace's root sampled
                by_trace[of_trace] = self._may(span, of_trace[1], is_trace_root=True)
            begins = span.parent_is_remote or (span.parent_id and span.parent_id not in ids)
            if by_trace[of_trace] or (begins and self._may(span, of_trace[1], is_trace_root=False)):
                kept.append(span)
        return kept

    def _may_begin(self, root: WireSpan, trace_state: bytes | None = None) -> bool:
        state = trace_state_of(root) if trace_state is None else str(trace_state, "utf-8", "replace")
        return self._may(root, state, is_trace_root=not root.parent_id)

    def _may(self, span: WireSpan, trace_state: str, *, is_trace_root: bool) -> bool:
        return self._sampler.may(Facts(key_of(span), is_trace_root, trace_state))

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: _Arrived, now_ns: int) -> None:
        """Read one request."""
        self._read += event.roots
        if event.exit is not None:
            self._kept.keep(event.kept, event.exit, now_ns)
        add_unsampled(self.table, event.unsampled, now_ns)
        add = self.table.add
        for span, claimed in event.spans:
            add(span, claimed=claimed, now_ns=now_ns)
        self._traces_read += event.traces

    def due(self, now_ns: int) -> None:
        """Hand on the units that are whole, and send on what waits in vain."""
        self._close_all(self.table.due(now_ns), now_ns)
        self._kept.let_overdue_go(now_ns, self.table.waiting)

    def next_due_ns(self) -> int | None:
        """Return when the next unit closes, or a kept span goes on, if nothing more comes."""
        times = (self.table.next_due_ns(), self._kept.next_due_ns())
        return min((time for time in times if time is not None), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return the units whose root is there and that wait for further spans."""
        return self.table.waiting()

    def detach(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit whose root is there; what else would have been one is counted ``shutdown``. Returns none."""
        self._close_all([_shut_down(unit) for unit in self.table.close_all(now_ns)], now_ns)
        self._kept.let_all_go()
        return []

    def unread(self) -> int:
        """Return how many roots the span thread has not seen. Any thread."""
        return self._taken - self._read

    def close(self) -> None:
        """Take no further request. Any thread."""
        self._closed = True

    def received(self) -> Received:
        """Return what came, and what waits, for ``status()``. Any thread."""
        counts, table = self.counts, self.table
        return Received(
            requests=counts.requests,
            spans=counts.spans,
            bytes=counts.bytes,
            refused=dict(counts.refused),
            rejected=dict(counts.rejected),
            ours=counts.ours,
            unclaimed=counts.unclaimed,
            open=table.open,
            waiting_for_root=table.waiting_for_root,
            orphans=table.orphans,
            late=table.late,
            duplicates=table.duplicates,
            revisions=table.revisions,
            dialects={name: (of.spans, of.without_content) for name, of in self._translator.counted().items()},
            forward=None if self.forward is None else self.forward(),
        )

    def notes(self) -> list[str]:
        """Return what must be known of spans that were not scored, for ``status()``."""
        mended = [
            f"{spans:,} of the spans that were read have {what}: it is read as its start"
            for what, spans in self._mended.copy().items()
        ]
        told = scope_notes(self._claims.inner, self._claims.unheard, where="in their process")
        return told + mended + self._translator.notes()

    def _follows(self, root: WireSpan) -> bool:
        return self._may_begin(root) and self._claims.asks(root)

    def _stands_alone(self, span: WireSpan) -> bool:
        """Whether a span whose parent never came is a unit: an agent, workflow or chain with content."""
        try:
            read = self._translator.translate(span_data_of(span), count=False)
        except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
            log_internal_error("read a span", error)
            return False
        return read is not None and read.operation in semconv.WHOLE_OPERATIONS and read.no_content is None

    def _close_all(self, closed: Sequence[ClosedUnit], now_ns: int) -> None:
        for unit in closed:
            try:
                self._close(unit, now_ns)
            except Exception as error:  # noqa: BLE001  (the other units go on)
                log_internal_error("read a unit", error)
            if self._kept:
                self._kept.let_go([unit.key, *map(key_of, unit.spans)])
            yield_gil()

    def _close(self, closed: ClosedUnit, now_ns: int) -> None:
        if not self._claims.is_unit(closed.root):
            return
        if closed.outcome is Outcome.NOT_SAMPLED:
            self.units += 1
            self._admission.record_rejected(Outcome.NOT_SAMPLED)
            return
        unit = self._read_unit(closed)
        if unit is not None:
            self.units += not unit.revision
            kept = self._kept.give([unit.key, *map(key_of, closed.spans)])
            self._port.assembled(unit, kept, now_ns, lost=closed.outcome or Outcome.INCOMPLETE)

    def _read_unit(self, closed: ClosedUnit) -> Unit | None:
        """Return the unit, None where nothing in it means anything.

        Of one that is lost only its root is read, which tells how probable it was.
        """
        complete = closed.outcome is None
        spans, means = list[SpanData](), False
        for span in closed.spans if complete else (closed.root,):
            try:
                data = span_data_of(span, self._mended)
                translated = self._translator.translate(data)
            except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
                log_internal_error("read a span", error)
                complete, means = False, True
                continue
            means = means or translated is not None
            spans.append(replace(data, attributes={}, events=()) if translated is None else translated)
        told = tuple(sorted(spans, key=lambda span: span.start_ns))
        return Unit(closed.key, told, complete, closed.revision) if means else None


def bounds_of(units: WireUnits) -> Bounds:
    """Return the bounds of a configuration: times in nanoseconds."""
    return Bounds(
        quiet_ns=int(units.quiet * 1e9),
        orphan_wait_ns=int(units.orphan_wait * 1e9),
        max_age_ns=int(units.max_age * 1e9),
        max_spans=units.max_spans,
        max_bytes=units.max_bytes,
        traces=units.traces,
        bytes=units.bytes,
        late=units.late,
    )


def _shut_down(closed: ClosedUnit) -> ClosedUnit:
    """Return a unit as the end of the scorer finds it: one of which something is missing had no time to be whole."""
    return closed._replace(outcome=Outcome.SHUTDOWN) if closed.outcome is Outcome.INCOMPLETE else closed

"""OtlpSpans: spans that arrive over the wire, in any order → units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from threading import Event
from typing import Final

from spanscore.capture.intake import Intake
from spanscore.capture.log_content import LogContent
from spanscore.capture.otlp.claims import RequestPartition, ScopeClaim, WireClaims, add_unsampled
from spanscore.capture.otlp.external_scores import ExternalScores
from spanscore.capture.otlp.requests import (
    EndpointCounts,
    ForwardTarget,
    ProxyBuffer,
    RequestClaims,
    RequestSpans,
    StreamPosition,
    UnitCopies,
    key_of,
)
from spanscore.capture.otlp.streams import Streams
from spanscore.capture.scopes import Role
from spanscore.core.codecs.otlp_request import Origin, ParsedRequest, WireSpan, kept, span_data_of, trace_state_of
from spanscore.core.codecs.otlp_scan import SpanPlace
from spanscore.core.codecs.otlp_span import ContentRecord
from spanscore.core.event_queue import yield_gil
from spanscore.core.job import ServeState, TopicState
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import RootRole, split
from spanscore.pipeline.trace_index import Bounds, ClosedUnit
from spanscore.pipeline.traces import TraceTable
from spanscore.samples.normalizers.registry import SpanNormalizers

# --- reading --------------------------------------------------------------------------------------------------------

# A closed unit, still the bytes that came → its units in GenAI names: mostly one.


def units_of(
    closed: ClosedUnit, translator: SpanNormalizers, mended: Counter[str], logs: LogContent | None = None
) -> list[Unit]:
    """Return the units of a topmost span and all below it; empty if they make none.

    If spans are missing, only the topmost one is read: its facts give the probability that the unit was chosen.

    Args:
        closed: the spans that came.
        translator: counts the spans it reads.
        mended: counts spans by what was wrong with them.
        logs: content that came in log records; None: none is read.
    """
    complete = closed.outcome is None
    spans: list[SpanData] = []
    for span in closed.spans if complete else (closed.root,):
        try:
            data = span_data_of(span, mended)
            translated = translator.translate(data) if logs is None else logs.translated(data, translator)
        except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
            log_internal_error("read a span", error)
            complete = False
            continue
        read = replace(data, attributes={}, events=()) if translated is None else translated
        if closed.unread and span is closed.root:
            unread = {
                int.from_bytes(span_id): int.from_bytes(parent_id) for span_id, parent_id in closed.unread.items()
            }
            read = replace(read, unread=unread)
        spans.append(read)
    ordered = tuple(sorted(spans, key=lambda span: span.start_ns))
    return split(Unit(closed.key, ordered, complete, closed.revision))


# --- spans ----------------------------------------------------------------------------------------------------------

# OTLP has no event for the start of a span. The bytes of claimed spans therefore wait in a table until their unit is whole.
# Only units that may be scored are decoded and normalized. For all other units the bytes of a root decide whether it is a unit
# and is counted.

_OURS: Final = Role.OURS
_ROOT: Final = RootRole.ROOT
_NOT_SAMPLED: Final = Outcome.NOT_SAMPLED
_FEW: Final = 32
"""Units that nobody scores, of which each takes microseconds."""
_LOGS_SHARE: Final = 4
"""Log records that wait for their spans may take a share of ``Bounds.bytes``, one part in this many, beside it."""


@dataclass(eq=False, repr=False)
class OtlpSpans:
    """The receiver of ``spanscore serve`` and of every other listener for OTLP.

    Attributes:
        intake: the parts to begin with.
        bounds: bounds of the waiting spans and units.
        claims: decides which spans are read.
        translator: puts spans into GenAI names; the thread that reads spans owns it.
        ready: called with each request: the first chooses providers and starts the span thread.
        metrics: names of the metrics that score units: they score the units that another process took.
        make_external: makes ``external``; None = scores of others are not read.
        counts: counts of requests and their spans.
        copies: reads the copies of units that another process took.
        logs: content that came in log records, until its spans are read.
        external: counts the scores of others.
        table: spans that came over the wire and wait for their units.
        streams: spans that were read from streams and wait for their units.
        forward: returns the requests that a proxy sent, those that failed, and the last error; None without a proxy.
        topic: returns the state of the topic that a worker reads; None without a topic.
        units: units that were handed on or counted.
    """

    intake: InitVar[Intake]
    _: KW_ONLY
    bounds: Bounds
    claims: WireClaims
    translator: SpanNormalizers
    ready: Callable[[], None]
    metrics: Collection[str] = ()
    make_external: Callable[[], ExternalScores] | None = None

    def __post_init__(self, intake: Intake) -> None:
        self._closed = False
        self.forward: Callable[[], tuple[int, int, str]] | None = None
        self.topic: Callable[[], TopicState] | None = None
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Work with these parts from now on, without a span, and count from zero."""
        self._event_queue, self._port = intake.event_queue, intake.port
        self._sampler, self._admission = intake.sampler, intake.admission
        self._mended: Counter[str] = Counter()
        self.counts = EndpointCounts()
        self.copies = UnitCopies(self.metrics)
        self.logs = LogContent(self.bounds.bytes // _LOGS_SHARE, self.bounds.orphan_wait_ns)
        self.external = None if self.make_external is None else self.make_external()
        self.table = self._table(self.bounds)
        self.streams = Streams()
        self._kept = ProxyBuffer()
        self._taken = self._read = self._traces_taken = self._traces_read = self.units = 0

    # --- the threads of who listens ----------------------------------------------------------------------------

    def overloaded(self) -> str | None:
        """Return what is full, ``bytes``, ``traces`` or ``event_queue``: the next request is to be refused. None: take it."""
        if self.table.bytes + self.streams.bytes >= self.bounds.bytes:
            return "bytes"
        if self.table.open + self.streams.open + self._traces_taken - self._traces_read >= self.bounds.traces:
            return "traces"
        return None if self._event_queue.admits() else "event_queue"

    def take(self, taken: ParsedRequest, exit: ForwardTarget | None = None) -> Sequence[WireSpan]:
        """Take the spans of one request; return those that are kept. Does not block, but for the first one.

        Args:
            taken: the request; ``overloaded`` was asked before.
            exit: where kept spans go on to, once each, whatever happens; None = none is kept.
        """
        looked = self.look(taken, keep=exit is not None)
        self.take_in(looked, exit)
        return looked.kept

    def take_logs(self, records: Iterable[ContentRecord]) -> None:
        """Keep content that came in log records until its spans are read; of traces that may be scored. Any thread."""
        if not self._closed:
            self.logs.add(
                record for record in records if self._sampler.preview_trace(record.ids[0].to_bytes(16)) is not False
            )

    def read(self, taken: ParsedRequest) -> RequestSpans | None:
        """Return what ``hand_over`` is to be given of a request that was read, and not received. None: nothing is taken."""
        return None if self._closed else self._count_arrival(self.look(taken, keep=False), None)

    def hand_over(self, read: Sequence[StreamPosition]) -> None:
        """Take requests that were read of one stream, in their order; at least one."""
        self.ready()
        self._event_queue.put(self, read, sum([message.arrived.size for message in read]), must=True)

    def then(self, work: Callable[[int], None]) -> None:
        """Have something done on the span thread, given the time, after all that was taken by now. Any thread."""
        self.ready()
        self._event_queue.put(self, work, must=True)

    def wait_until_safe(self, safe: Callable[[int, Callable[[], None]], None], timeout_s: float) -> bool:
        """Wait until ``safe`` has told that the units which what was taken makes whole are. Any thread but ours; blocks."""
        done = Event()

        def close_and_ask(now_ns: int) -> None:
            self.tick(now_ns)
            safe(now_ns, done.set)

        self.then(close_and_ask)
        self._event_queue.nudge()
        return done.wait(timeout_s)

    def begin_stream(self, name: Hashable, max_age_ns: int) -> None:
        """Read a stream from now on, whose units are no older than that. Any thread."""
        bounds = replace(self.bounds, max_age_ns=min(self.bounds.max_age_ns, max_age_ns))
        self.then(lambda now_ns: self.streams.begin(name, self._table(bounds), now_ns))

    def look(self, taken: ParsedRequest, *, keep: bool) -> RequestClaims:
        """Return what the spans of a request are to us. Any thread; nothing is taken yet.

        Args:
            taken: the request.
            keep: whether some are to wait for their scores: claimed ones of a unit that may be scored, as far as can be told.
        """
        taken, copies, private = self.copies.separate(taken)
        claims = [self.claims.of(origin) for origin, _ in taken.places]  # in their order: who comes first is heard
        sorting = RequestPartition(taken, self._drop_content)
        for (origin, places), (role, mark, mostly) in zip(reversed(taken.places), reversed(claims), strict=True):
            if role is _OURS:
                sorting.ours += len(places)
            else:
                sorting.read(origin, places, mark, mostly)
        kept = self._to_keep([*self._claim_spans(taken, claims)]) if keep else []
        if private:
            here = {*private}
            kept = [span for span in kept if span not in here]
        scores = () if self.external is None else self.external.sought(taken, claims, ours=sorting.ours)
        return RequestClaims(taken, sorting, kept, copies, private, scores)

    def take_in(self, looked: RequestClaims, exit: ForwardTarget | None) -> None:
        """Take the spans of a request that was looked at; ``exit`` is given those that are kept."""
        if self._closed:
            if exit is not None:
                for span in looked.kept:
                    exit.pass_on(span, None)
            return
        self.ready()
        arrived = self._count_arrival(looked, exit)
        self._event_queue.put(self, arrived, arrived.size, must=True)

    def _count_arrival(self, looked: RequestClaims, exit: ForwardTarget | None) -> RequestSpans:
        """Count what is taken of a request, and return it."""
        taken, sorting, kept, copies, _, scores = looked
        if scores and self.external is not None:
            self.external.read(scores)
        spans, ours = sorting.read_spans + sorting.ours + len(copies), sorting.ours
        self.counts.took(spans, taken.rejected, ours=ours, unclaimed=sorting.unclaimed)
        for scope, traces in self.claims.unread(taken):
            self.counts.leave_unread(scope, traces - sorting.traces)
        roots, beside, size = sorting.roots, sorting.beside, sorting.size
        if copies:
            copied = {span.trace_id for span in copies}
            roots, beside, size = roots + len(copied), beside | copied, size + sum([len(span.raw) for span in copies])
        self._taken += roots
        # A burst is read later, and may be many times what the table may hold.
        self._traces_taken += len(sorting.traces)
        return RequestSpans(
            sorting.unsampled, sorting.others[::-1], roots, sorting.traces, beside, kept, exit, copies, size
        )

    def _claim_spans(self, taken: ParsedRequest, claims: Sequence[ScopeClaim]) -> Iterator[WireSpan]:
        for (origin, places), (role, marked, _) in zip(taken.places, claims, strict=True):
            for place in () if role is _OURS else places:
                if marked is None or marked(taken.body, place[4], place[5]) is not None:
                    yield kept(taken.body, place, origin)

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

    def _drop_content(self, body: bytes, root: SpanPlace, origin: Origin) -> WireSpan | None:
        """Return the root of a unit that no rate would take, without its content; None if its spans are to be kept."""
        trace_id, _, parent_id, _, _, _, trace_state = root
        has_state = trace_state != b""
        may = None if has_state or parent_id else self._sampler.preview_trace(trace_id)
        if may is None:
            span = kept(body, root, origin)
            may = self._may(span, trace_state_of(span) if has_state else "", is_trace_root=not parent_id)
        return None if may else self.claims.shortened(body, root, origin)

    def _may(self, span: WireSpan, trace_state: str, *, is_trace_root: bool) -> bool:
        return self._sampler.could_sample(SamplingContext(key_of(span), is_trace_root, trace_state))

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: RequestSpans | Sequence[StreamPosition] | Callable[[int], None], now_ns: int) -> None:
        """Read one request, or some of one stream, or do what is to be done after those before."""
        if isinstance(event, RequestSpans):
            if event.exit is not None:
                self._kept.keep(event.kept, event.exit, now_ns)
            self._add(self.table, event, now_ns)
            if event.copies:
                self._take_copies(event.copies, now_ns, once=True)
        elif callable(event):
            event(now_ns)
        else:
            self._handle_read(event, now_ns)

    def _handle_read(self, read: Sequence[StreamPosition], now_ns: int) -> None:
        stream, at_ns = self.streams.read(read, now_ns)
        for _, _, arrived, noted in read:
            try:
                self._add(None if stream is None else stream.table, arrived, at_ns)
                if stream is not None:
                    if arrived.copies:
                        stream.copies.append(arrived.copies)
                    noted(arrived.traces | arrived.beside if arrived.beside else arrived.traces)
            except Exception as error:  # noqa: BLE001  (the other requests go on)
                log_internal_error("read a message", error)

    def tick(self, now_ns: int) -> None:
        """Hand on the units that are whole, and send on what waits in vain."""
        self._close_all(self.table.due(now_ns), now_ns)
        self._close_all(self.streams.due(now_ns), now_ns, is_stream=True)
        for copies in self.streams.copies():
            self._take_copies(copies, now_ns, once=False)
        self._kept.let_overdue_go(now_ns, self.table.waiting)

    def next_due_ns(self) -> int | None:
        """Return when the next unit closes, or a kept span goes on, if nothing more comes."""
        times = (self.table.next_due_ns(), self.streams.next_due_ns(), self._kept.next_due_ns())
        return min((time for time in times if time is not None), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return the units whose root is there and that wait for further spans."""
        return self.table.waiting() | self.streams.waiting()

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit whose root is there; what else would have been one is counted ``shutdown``. Returns none."""
        # A unit of which something is missing had no time to be whole.
        closed = (
            unit._replace(outcome=Outcome.SHUTDOWN) if unit.outcome is Outcome.INCOMPLETE else unit
            for unit in self.table.close_all(now_ns)
        )
        self._close_all([*closed], now_ns)
        self._kept.let_all_go()
        self.streams.at_end()
        return []

    def unread_count(self) -> int:
        """Return how many roots the span thread has not seen; also the open units once nobody waits for it. Any thread."""
        unread = self._taken - self._read
        return unread + len(self.table.waiting()) if self._event_queue.abandoned else unread

    def close(self) -> None:
        """Take no further request. Any thread."""
        self._closed = True

    def received(self) -> ServeState:
        """Return what came, and what waits, for ``status()``. Any thread."""
        counts, gathered = self.counts, self.streams.gathered(self.table)
        return ServeState(
            requests=counts.requests,
            spans=counts.spans,
            bytes=counts.bytes,
            refused=dict(counts.refused),
            rejected=dict(counts.rejected),
            ours=counts.ours,
            unclaimed=counts.unclaimed,
            unread=dict(counts.unread),
            open=gathered.open,
            waiting_for_root=gathered.waiting_for_root,
            orphans=gathered.orphans,
            late=gathered.late,
            duplicates=gathered.duplicates,
            revisions=gathered.revisions,
            dialects={name: (of.spans, of.without_content) for name, of in self.translator.counted().items()},
            forward=None if self.forward is None else self.forward(),
            topic=None if self.topic is None else self.topic(),
            external=None if self.external is None else self.external.counts(),
            logs=self.logs.counts(),
        )

    @property
    def redelivered(self) -> int:
        """Copies of units that had come before. Any thread."""
        return self.copies.again

    def notes(self) -> list[str]:
        """Return what must be known of spans that were not scored, for ``status()``."""
        mended = [
            f"{spans:,} of the spans that were read have {what}: it is read as its start"
            for what, spans in self._mended.copy().items()
        ]
        return self.claims.notes() + mended + self.translator.notes() + self.copies.notes()

    def _table(self, bounds: Bounds) -> TraceTable:
        return TraceTable(bounds, follows=self._follows, stands_alone=self.claims.stands_alone)

    def _follows(self, root: WireSpan) -> bool:
        """Whether the spans of a topmost span are kept: it may be scored, or they decide which of them are roots."""
        return self._may_be_scored(root) or self.claims.role(root) is not _ROOT

    def _may_be_scored(self, root: WireSpan) -> bool:
        return self._may(root, trace_state_of(root), is_trace_root=not root.parent_id)

    def _add(self, table: TraceTable | None, event: RequestSpans, now_ns: int) -> None:
        """Put spans into a table; None: they are read no more."""
        self._read += event.roots
        if table is not None:
            add_unsampled(table, event.unsampled, now_ns)
            for span, claimed in event.spans:
                table.add(span, claimed=claimed, now_ns=now_ns)
        self._traces_read += len(event.traces)

    def _take_copies(self, copies: Sequence[WireSpan], now_ns: int, *, once: bool) -> None:
        for unit, samples in self.copies.units(copies, once=once):
            self.units += 1
            if samples is None:
                self._port.unit_complete(unit, {}, now_ns)
            else:
                self._port.sample_submitted(unit, samples, None, sampled=True, now_ns=now_ns)
            yield_gil()

    def _close_all(self, closed: Iterable[ClosedUnit], now_ns: int, *, is_stream: bool = False) -> None:
        unsampled, is_proxy = 0, bool(self._kept)
        for number, unit in enumerate(closed):
            is_sampled = unit[2] is not _NOT_SAMPLED
            try:
                if not is_sampled:
                    unsampled += 1
                elif self._event_queue.abandoned and not is_stream:  # the next process reads the rest of a stream
                    self._admission.record_rejected(Outcome.SHUTDOWN, self.claims.roots(unit))
                else:
                    unsampled += self._close(unit, now_ns)
            except Exception as error:  # noqa: BLE001  (the other units go on)
                log_internal_error("read a unit", error)
            if is_proxy:
                self._kept.let_go([unit.key, *map(key_of, unit.spans)])
            if is_sampled or number % _FEW == 0:
                yield_gil()
        if unsampled:
            self.units += unsampled
            self._admission.record_rejected(_NOT_SAMPLED, unsampled)

    def _close(self, closed: ClosedUnit, now_ns: int) -> int:
        """Hand on the units of a topmost span; return how many there are that cannot be scored."""
        if self.claims.role(closed.root) is not _ROOT and not self._may_be_scored(closed.root):
            return self.claims.roots(closed)
        units = [] if self.claims.is_none(closed) else units_of(closed, self.translator, self._mended, self.logs)
        if closed.revision and [unit.key for unit in units] != [closed.key]:
            self.table.late += 1  # the span that came late changes which spans are roots: these have been scored
            return 0
        for unit in units:
            self.claims.found_by_content(closed.root.origin)
            self.units += not unit.revision
            kept = self._kept.give([UnitKey(span.trace_id, span.span_id) for span in unit.spans])
            lost = closed.outcome or Outcome.INCOMPLETE
            self._port.unit_complete(unit, kept, now_ns, lost=lost, reason=closed.reason)
        return 0

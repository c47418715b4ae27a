"""The receiver of OTLP spans, which gathers spans that arrive in any order into units."""

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
    AcceptedRequest,
    ClassifiedRequest,
    EndpointCounts,
    Forward,
    ProxyBuffer,
    StreamMessage,
    UnitCopies,
)
from spanscore.capture.otlp.streams import Streams
from spanscore.capture.scopes import Role
from spanscore.core.codecs.otlp_request import Origin, ParsedRequest, WireSpan, copy_span, span_data_of, trace_state_of
from spanscore.core.codecs.otlp_scan import SpanPlace
from spanscore.core.codecs.otlp_span import ContentRecord
from spanscore.core.event_queue import yield_gil
from spanscore.core.job import ServeState, TopicState
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import RootRole, split
from spanscore.pipeline.in_force import WHOLE_TRACE
from spanscore.pipeline.trace_index import Bounds, ClosedUnit, unit_key
from spanscore.pipeline.traces import TraceTable
from spanscore.samples.normalizers.registry import SpanNormalizers


def units_of(
    closed: ClosedUnit, translator: SpanNormalizers, repaired: Counter[str], logs: LogContent | None = None
) -> list[Unit]:
    """Decode a topmost span and all spans below it, and return their units: usually one, empty if they make no unit.

    If spans are missing, only the topmost span is read: the sampling probability depends on it alone.

    Args:
        translator: normalizers, which map spans to GenAI names.
        repaired: kind of a fault → number of spans in which it was repaired; this function adds to it.
        logs: content in log records; None = it is not read.
    """
    complete = closed.outcome is None
    spans: list[SpanData] = []
    for span in closed.spans if complete else (closed.root,):
        try:
            data = span_data_of(span, repaired)
            translated = translator.translate(data) if logs is None else logs.translate(data, translator)
        except Exception as error:  # noqa: BLE001  (the bytes are not a span, or a user's normalizer raises)
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
    root_id = closed.key.span_id  # the root comes first among spans that start in the same millisecond
    spans.sort(key=lambda span: (span.start_ns, span.span_id != root_id))
    return split(Unit(closed.key, tuple(spans), complete, closed.revision))


# OTLP has no event for the start of a span. The bytes of claimed spans therefore wait in a table until their unit is complete.
# Only units that may be scored are decoded and translated. Other units are counted by the bytes of their roots.

_OURS: Final = Role.OURS
_ROOT: Final = RootRole.ROOT
_NOT_SAMPLED: Final = Outcome.NOT_SAMPLED
_FEW: Final = 32
"""Number of unsampled units between two yields of the GIL; each takes microseconds."""
_LOGS_SHARE: Final = 4
"""Log records that wait for their spans may use a further quarter of ``Bounds.bytes``."""


@dataclass(eq=False, repr=False)
class OtlpSpans:
    """The receiver of ``spanscore serve`` and of every other OTLP listener.

    Attributes:
        intake: the intake to use first; ``connect`` replaces it.
        bounds: limits of waiting spans.
        claims: decides which spans are read.
        translator: normalizers, owned by the span thread, which map spans to GenAI names.
        ready: called with each request; the first call chooses providers and starts the span thread.
        metrics: names of the unit metrics, by which copies from other processes are scored.
        make_external: function that creates the counter of external scores; None = they are not read.
        copies: reader of copies of units that another process sampled.
        table: received spans that wait for the rest of their unit.
        streams: spans read from streams that wait for the rest of their unit.
        forward: function that returns a proxy's requests sent, requests failed and last error; None without a proxy.
        topic: function that returns the state of a worker's topic; None without a topic.
        units: number of units that were handed on or counted.
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
        """Use this intake from now on, forget all spans, and count from zero."""
        self._event_queue, self._port = intake.event_queue, intake.listener
        self._sampler, self._ledger = intake.sampler, intake.ledger
        self._repaired: Counter[str] = Counter()
        self.counts = EndpointCounts()
        self.copies = UnitCopies(self.metrics)
        self.logs = LogContent(self.bounds.bytes // _LOGS_SHARE, self.bounds.orphan_wait_ns)
        self.external = None if self.make_external is None else self.make_external()
        self.table = self._table(self.bounds)
        self.streams = Streams()
        self._kept = ProxyBuffer()
        self._accepted_roots = self._read_roots = self._accepted_traces = self._read_traces = self.units = 0

    def use_metrics(self, metrics: Collection[str], evaluators: Collection[tuple[str, str]]) -> None:
        """Score copies by these unit metrics from now on; external scores leave out these names and evaluator versions."""
        self.metrics = metrics
        self.copies.metrics = frozenset(metrics)
        if self.external is not None:
            self.external.own = frozenset(evaluators)

    # --- the listeners' threads --------------------------------------------------------------------------------

    def overloaded(self) -> str | None:
        """Return the full resource, ``bytes``, ``traces`` or ``event_queue``, if the next request must be refused."""
        if self.table.bytes + self.streams.bytes >= self.bounds.bytes:
            return "bytes"
        if self.table.open + self.streams.open + self._accepted_traces - self._read_traces >= self.bounds.traces:
            return "traces"
        return None if self._event_queue.admits() else "event_queue"

    def accept(self, request: ParsedRequest, exit: Forward | None = None) -> Sequence[WireSpan]:
        """Accept the spans of one request; return the kept spans. Only the first call may block.

        Args:
            request: the request; check ``overloaded`` first.
            exit: forwards each kept span exactly once; None = no span is kept.
        """
        classified = self.classify(request, keep=exit is not None)
        self.accept_classified(classified, exit)
        return classified.kept

    def accept_logs(self, records: Iterable[ContentRecord]) -> None:
        """Keep content from log records until its spans are read, for traces that may be scored. Thread-safe."""
        if not self._closed:
            self.logs.add(
                record
                for record in records
                if self._sampler.could_sample_trace(record.ids[0].to_bytes(16)) is not False
            )

    def classify_message(self, request: ParsedRequest) -> AcceptedRequest | None:
        """Return the spans of a request from a stream, for ``accept_messages``; None if the receiver is closed."""
        return None if self._closed else self._count_accepted(self.classify(request, keep=False), None)

    def accept_messages(self, messages: Sequence[StreamMessage]) -> None:
        """Accept messages of one stream, in their order; at least one."""
        self.ready()
        self._event_queue.put(self, messages, sum([message.accepted.size for message in messages]), never_drop=True)

    def run_in_order(self, work: Callable[[int], None]) -> None:
        """Call ``work`` with the monotonic time on the span thread, after all requests accepted so far. Thread-safe."""
        self.ready()
        self._event_queue.put(self, work, never_drop=True)

    def wait_until_safe(self, safe: Callable[[int, Callable[[], None]], None], timeout_s: float) -> bool:
        """Close complete units, and block until ``safe`` reports that they survive the process. Not for the span thread."""
        done = Event()

        def close_and_ask(now_ns: int) -> None:
            self.tick(now_ns)
            safe(now_ns, done.set)

        self.run_in_order(close_and_ask)
        self._event_queue.nudge()
        return done.wait(timeout_s)

    def begin_stream(self, name: Hashable, max_age_ns: int) -> None:
        """Start to read a stream; ``max_age_ns`` limits the age of its units. Thread-safe."""
        bounds = replace(self.bounds, max_age_ns=min(self.bounds.max_age_ns, max_age_ns))
        self.run_in_order(lambda now_ns: self.streams.begin(name, self._table(bounds), now_ns))

    def classify(self, request: ParsedRequest, *, keep: bool) -> ClassifiedRequest:
        """Classify the spans of a request, without accepting them. Thread-safe.

        With ``keep``, ``kept`` has the claimed spans of units that may be scored, as far as the request shows.
        """
        request, copies, private = self.copies.separate(request)
        claims = [self.claims.of(origin) for origin, _ in request.places]  # in order: of two scopes the first is read
        partition = RequestPartition(request, self._shorten_unsampled)
        for (origin, places), (role, mark, usual_mark) in zip(reversed(request.places), reversed(claims), strict=True):
            if role is _OURS:
                partition.ours += len(places)
            else:
                partition.read(origin, places, mark, usual_mark)
        kept = self._select_kept([*self._claim_spans(request, claims)]) if keep else []
        if private:
            here = {*private}
            kept = [span for span in kept if span not in here]
        scores = () if self.external is None else self.external.select_spans(request, claims, ours=partition.ours)
        return ClassifiedRequest(request, partition, kept, copies, private, scores)

    def accept_classified(self, classified: ClassifiedRequest, exit: Forward | None) -> None:
        """Accept the spans of a classified request; ``exit`` forwards its kept spans."""
        if self._closed:
            if exit is not None:
                for span in classified.kept:
                    exit(span, None)
            return
        self.ready()
        accepted = self._count_accepted(classified, exit)
        self._event_queue.put(self, accepted, accepted.size, never_drop=True)

    def _count_accepted(self, classified: ClassifiedRequest, exit: Forward | None) -> AcceptedRequest:
        """Count the spans of a request that is accepted now, and return the event for the span thread."""
        request, partition, kept, copies, _, scores = classified
        if scores and self.external is not None:
            self.external.read(scores)
        spans, ours = partition.read_spans + partition.ours + len(copies), partition.ours
        self.counts.count_spans(spans, request.rejected, ours=ours, unclaimed=partition.unclaimed)
        for scope, traces in self.claims.unread(request):
            self.counts.count_unread(scope, traces - partition.traces)
        roots, other_traces, size = partition.roots, partition.other_traces, partition.size
        if copies:
            copied = {span.trace_id for span in copies}
            other_traces = other_traces | copied
            roots += len(copied)
            size += sum([len(span.raw) for span in copies])
        self._accepted_roots += roots
        # A burst is read later, and may be many times the size of the table's limit.
        self._accepted_traces += len(partition.traces)
        return AcceptedRequest(
            partition.unsampled,
            partition.other_spans[::-1],
            roots,
            partition.traces,
            other_traces,
            kept,
            exit,
            copies,
            size,
        )

    def _claim_spans(self, request: ParsedRequest, claims: Sequence[ScopeClaim]) -> Iterator[WireSpan]:
        for (origin, places), (role, find_mark, _) in zip(request.places, claims, strict=True):
            for place in () if role is _OURS else places:
                if find_mark is None or find_mark(request.body, place[4], place[5]) is not None:
                    yield copy_span(request.body, place, origin)

    def _select_kept(self, claimed: Sequence[WireSpan]) -> list[WireSpan]:
        """Return the claimed spans of units that may be scored: the trace's root may be sampled, or the span as a root."""
        ids, by_trace, kept = {span.span_id for span in claimed}, dict[tuple[bytes, str], bool](), list[WireSpan]()
        for span in claimed:
            of_trace = span.trace_id, trace_state_of(span)
            if of_trace not in by_trace:  # only these decide the sampling of a trace's root
                by_trace[of_trace] = self._may_be_sampled(span, of_trace[1], is_trace_root=True)
            begins = span.parent_is_remote or (span.parent_id and span.parent_id not in ids)
            if by_trace[of_trace] or (begins and self._may_be_sampled(span, of_trace[1], is_trace_root=False)):
                kept.append(span)
        return kept

    def _shorten_unsampled(self, body: bytes, root: SpanPlace, origin: Origin) -> WireSpan | None:
        """Return a root without its content if no rate would sample its unit; None if the spans of the unit are needed."""
        trace_id, _, parent_id, _, _, _, trace_state = root
        has_state = trace_state != b""
        may = None if has_state or parent_id else self._sampler.could_sample_trace(trace_id)
        if may is None:
            span = copy_span(body, root, origin)
            may = self._may_be_sampled(span, trace_state_of(span) if has_state else "", is_trace_root=not parent_id)
        return None if may else self.claims.shorten_root(body, root, origin)

    def _may_be_sampled(self, span: WireSpan, trace_state: str, *, is_trace_root: bool) -> bool:
        return self._sampler.could_sample(SamplingContext(unit_key(span), is_trace_root, trace_state))

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: AcceptedRequest | Sequence[StreamMessage] | Callable[[int], None], now_ns: int) -> None:
        """Handle one event: a request, requests of a stream, or work."""
        if isinstance(event, AcceptedRequest):
            if event.exit is not None:
                self._kept.keep(event.kept, event.exit, now_ns)
            self._add(self.table, event, now_ns)
            if event.copies:
                self._hand_on_copies(event.copies, now_ns, once=True)
        elif callable(event):
            event(now_ns)
        else:
            self._handle_messages(event, now_ns)

    def _handle_messages(self, messages: Sequence[StreamMessage], now_ns: int) -> None:
        stream, stream_ns = self.streams.read(messages, now_ns)
        for _, _, accepted, on_added in messages:
            try:
                self._add(None if stream is None else stream.table, accepted, stream_ns)
                if stream is not None:
                    if accepted.copies:
                        stream.copies.append(accepted.copies)
                    on_added(accepted.traces | accepted.other_traces if accepted.other_traces else accepted.traces)
            except Exception as error:  # noqa: BLE001  (the other requests go on)
                log_internal_error("read a message", error)

    def tick(self, now_ns: int) -> None:
        """Hand on complete units, and forward kept spans that have waited for too long."""
        self._close_units(self.table.due(now_ns), now_ns)
        self._close_units(self.streams.due(now_ns), now_ns, is_stream=True)
        for copies in self.streams.copies():
            self._hand_on_copies(copies, now_ns, once=False)
        self._kept.forward_overdue(now_ns, self.table.unreturned_keys)

    def next_due_ns(self) -> int | None:
        """Return the time at which the next unit closes or the next kept span is forwarded, if no more spans come."""
        times = (self.table.next_due_ns(), self.streams.next_due_ns(), self._kept.next_due_ns())
        return min((time for time in times if time is not None), default=None)

    def in_flight(self) -> set[UnitKey]:
        """Return the units with a root that wait for further spans."""
        return self.table.unreturned_keys() | self.streams.waiting()

    def open_keys(self) -> set[UnitKey]:
        """Return the traces with spans that wait for the rest of their unit."""
        ids = (trace_id for table in (self.table, *self.streams.tables()) for trace_id in table.open_traces())
        return {UnitKey(int.from_bytes(trace_id), WHOLE_TRACE) for trace_id in ids}

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit with a root; units without a root are counted as ``shutdown``. Return no keys."""
        # A unit with missing spans had no time to become complete.
        closed = (
            unit._replace(outcome=Outcome.SHUTDOWN) if unit.outcome is Outcome.INCOMPLETE else unit
            for unit in self.table.close_all(now_ns)
        )
        self._close_units([*closed], now_ns)
        self._kept.forward_all()
        self.streams.on_shutdown()
        return []

    def unread_count(self) -> int:
        """Return the number of roots that the span thread has not read, plus the open units if it is abandoned. Thread-safe."""
        unread = self._accepted_roots - self._read_roots
        return unread + len(self.table.unreturned_keys()) if self._event_queue.abandoned else unread

    def close(self) -> None:
        """Accept no further request. Thread-safe."""
        self._closed = True

    def received(self) -> ServeState:
        """Return the counts of received and waiting spans for ``status()``. Thread-safe."""
        counts = self.counts
        return ServeState(
            requests=counts.requests,
            spans=counts.spans,
            bytes=counts.bytes,
            refused=dict(counts.refused),
            rejected=dict(counts.rejected),
            ours=counts.ours,
            unclaimed=counts.unclaimed,
            unread=dict(counts.unread),
            **self.streams.total_counts(self.table)._asdict(),
            dialects={name: (of.spans, of.without_content) for name, of in self.translator.counted().items()},
            forward=None if self.forward is None else self.forward(),
            topic=None if self.topic is None else self.topic(),
            external=None if self.external is None else self.external.counts(),
            logs=self.logs.counts(),
        )

    @property
    def redelivered(self) -> int:
        """Number of repeated copies of units. Thread-safe."""
        return self.copies.again

    def notes(self) -> list[str]:
        """Return the notes on unscored spans for ``status()``."""
        repaired = [
            f"{spans:,} of the spans that were read have {what}: it is read as its start"
            for what, spans in self._repaired.copy().items()
        ]
        return self.claims.notes() + repaired + self.translator.notes() + self.copies.notes()

    def _table(self, bounds: Bounds) -> TraceTable:
        return TraceTable(bounds, follows=self._follows, is_unit_root=self.claims.is_unit_root)

    def _follows(self, root: WireSpan) -> bool:
        """Return whether the spans below a topmost span are needed: to score the unit, or to find its roots."""
        return self._may_be_scored(root) or self.claims.role(root) is not _ROOT

    def _may_be_scored(self, root: WireSpan) -> bool:
        return self._may_be_sampled(root, trace_state_of(root), is_trace_root=not root.parent_id)

    def _add(self, table: TraceTable | None, event: AcceptedRequest, now_ns: int) -> None:
        """Add the spans of a request to a table; None = their stream is no longer read, and they are dropped."""
        self._read_roots += event.roots
        if table is not None:
            add_unsampled(table, event.unsampled, now_ns)
            for span, claimed in event.spans:
                table.add(span, claimed=claimed, now_ns=now_ns)
        self._read_traces += len(event.traces)

    def _hand_on_copies(self, copies: Sequence[WireSpan], now_ns: int, *, once: bool) -> None:
        for unit, samples in self.copies.units(copies, once=once):
            self.units += 1
            if samples is None:
                self._port.unit_complete(unit, {}, now_ns)
            else:
                self._port.sample_submitted(unit, samples, None, sampled=True, now_ns=now_ns)
            yield_gil()

    def _close_units(self, closed: Iterable[ClosedUnit], now_ns: int, *, is_stream: bool = False) -> None:
        unsampled, is_proxy = 0, bool(self._kept)
        for number, unit in enumerate(closed):
            is_sampled = unit.outcome is not _NOT_SAMPLED
            try:
                if not is_sampled:
                    unsampled += 1
                elif self._event_queue.abandoned and not is_stream:  # another process reads the rest of a stream
                    self._ledger.record_rejected(Outcome.SHUTDOWN, self.claims.roots(unit))
                else:
                    unsampled += self._close(unit, now_ns)
            except Exception as error:  # noqa: BLE001  (the other units go on)
                log_internal_error("read a unit", error)
            if is_proxy:
                self._kept.forward([unit.key, *map(unit_key, unit.spans)])
            if is_sampled or number % _FEW == 0:
                yield_gil()
        if unsampled:
            self.units += unsampled
            self._ledger.record_rejected(_NOT_SAMPLED, unsampled)

    def _close(self, closed: ClosedUnit, now_ns: int) -> int:
        """Hand on the units of a topmost span; return the number of units that cannot be scored."""
        if self.claims.role(closed.root) is not _ROOT and not self._may_be_scored(closed.root):
            return self.claims.roots(closed)
        units = [] if self.claims.has_no_unit(closed) else units_of(closed, self.translator, self._repaired, self.logs)
        whole = units
        if closed.revision and closed.outcome is not None:  # `units` has only the topmost span, even if it is no root
            whole = units_of(closed._replace(outcome=None), self.translator, Counter(), self.logs)
        if closed.revision and [unit.key for unit in whole] != [closed.key]:
            self.table.late += 1  # the late span changes which spans are roots; the old units have been scored
            return 0
        for unit in units:
            self.claims.found_by_content(closed.root.origin)
            self.units += not unit.revision
            kept = self._kept.pop([UnitKey(span.trace_id, span.span_id) for span in unit.spans])
            lost = closed.outcome or Outcome.INCOMPLETE
            self._port.unit_complete(unit, kept, now_ns, lost=lost, reason=closed.reason)
        return 0

"""Counts of OTLP requests, copies of units that other processes sampled, and spans that wait in a proxy."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

from spanscore.capture.otlp.claims import RequestPartition, UnsampledUnit
from spanscore.core.codecs.job import is_copy, units_of
from spanscore.core.codecs.otlp_request import (
    Origin,
    ParsedRequest,
    UnreadableRequest,
    WireSpan,
    copy_span,
    resource_of,
)
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.printable import printable
from spanscore.core.sample import Samples
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.decisions import keep_latest
from spanscore.pipeline.trace_index import ClosedKeys, unit_key
from spanscore.protocols import PendingSpan

OVERLOADS: Final = ("bytes", "traces", "event_queue")
"""Full resources for which a request is refused temporarily; the client sends it again."""
_MOST_UNREAD: Final = 10_000
"""Number of remembered ids of unread traces; a trace may come in several requests."""


class EndpointCounts:
    """Counts of OTLP requests since the start. Thread-safe.

    Listeners count requests and refusals; ``OtlpSpans.accept`` counts the spans of accepted requests.

    Attributes:
        requests: number of requests, including refused requests.
        bytes: total size of their bodies, uncompressed.
        refused: reason of a refusal → number of requests.
        spans: number of valid spans in accepted requests.
        rejected: reason → number of invalid spans in accepted requests.
        ours: number of accepted evaluation spans, which are never evaluated.
        unclaimed: number of accepted spans that are not claimed.
        unread: ignored scope → number of traces without any span that is read, because another scope traces the same library
            in their process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.requests = self.bytes = self.spans = self.ours = self.unclaimed = 0
        self.refused: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self._unread_traces: set[bytes] = set()

    def count_request(self, size_bytes: int) -> None:
        """Count a request, accepted or not, with the uncompressed size of its body; 0 if it is unknown."""
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes

    def refuse(self, reason: str) -> None:
        """Count a refused request. The reason has few values: ``bytes``, ``traces``, ``event_queue``, ``too_large`` …"""
        with self._lock:
            self.refused[reason] += 1

    def count_unread(self, scope: str, traces: Set[bytes]) -> None:
        """Count the traces of an ignored scope in one request.

        A trace in several requests counts once, unless there are more than 10,000 other traces in between.
        """
        with self._lock:
            self.unread[scope] += len(traces - self._unread_traces)
            if len(self._unread_traces) >= _MOST_UNREAD:
                self._unread_traces.clear()
            self._unread_traces |= traces

    def count_spans(self, spans: int, rejected: Mapping[str, int], *, ours: int, unclaimed: int) -> None:
        """Count the spans of one accepted request."""
        with self._lock:
            self.spans += spans
            if rejected:  # Counter.update is slower than the rest of this method, even without entries
                self.rejected.update(rejected)
            self.ours += ours
            self.unclaimed += unclaimed


Forward: TypeAlias = Callable[[WireSpan, Mapping[str, Any] | None], None]
"""Forwards a kept span to the proxy's backend with these attributes appended, once; never raises, does not block."""


@dataclass(frozen=True, slots=True)
class HeldWireSpan:
    """A received span that waits in a proxy for its unit's scores, and is then forwarded with them: a ``PendingSpan``."""

    span: WireSpan
    exit: Forward

    @property
    def size(self) -> int:
        """Size of the received span in bytes."""
        return len(self.span.raw)

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Forward the span with its own end time."""
        self.exit(self.span, attributes)


class ClassifiedRequest(NamedTuple):
    """The spans of one request, classified by ``OtlpSpans.classify``. No span is accepted yet.

    Attributes:
        request: the request without ``copies``.
        partition: its spans of unsampled units, and all other spans, without evaluation spans.
        kept: spans that wait for their scores; a proxy forwards all other spans now.
        copies: copies of units that another process sampled, to be scored here.
        private: all copies of units, trusted or not; a proxy forwards none of them.
        scores: spans that may have external scores.
    """

    request: ParsedRequest
    partition: RequestPartition
    kept: Sequence[WireSpan]
    copies: Sequence[WireSpan] = ()
    private: Sequence[WireSpan] = ()
    scores: Sequence[WireSpan] = ()


class AcceptedRequest(NamedTuple):
    """The spans of one accepted request, an event for the span thread.

    Attributes:
        unsampled: units that no rate would sample.
        spans: all other spans, each with whether it is claimed.
        roots: number of spans that certainly begin a unit.
        traces: ids of the traces of claimed spans.
        other_traces: ids of the traces of unclaimed spans and of copies.
        kept: spans that wait to be forwarded.
        exit: function that forwards the kept spans; None = no span is kept.
        copies: copies of units that another process sampled.
        size: total bytes of claimed spans and copies.
    """

    unsampled: Sequence[UnsampledUnit]
    spans: Sequence[tuple[WireSpan, bool]]
    roots: int
    traces: Set[bytes]
    other_traces: Set[bytes]
    kept: Sequence[WireSpan]
    exit: Forward | None
    copies: Sequence[WireSpan]
    size: int


class StreamMessage(NamedTuple):
    """A request that was read from a stream, such as a Kafka partition.

    Attributes:
        stream: name of the stream; spans of an ended stream are dropped.
        log_ns: timestamp of the message in the stream, in nanoseconds.
        accepted: the spans of the request.
        on_added: called on the span thread with the ids of the request's traces, when the spans are in their table.
    """

    stream: Hashable
    log_ns: int
    accepted: AcceptedRequest
    on_added: Callable[[Collection[bytes]], None]


_REMEMBERED: Final = 100_000
"""Number of remembered units and spans, by which repetitions are recognised: senders resend a request without a response."""
_MOST_RESOURCES: Final = 1_000
"""Number of resources with a cached result of ``_is_copy``; beyond it, all are forgotten."""
_UNTRUSTED: Final = (
    "without a token, so the units are sampled again: set serve.token_file to the token of the sending processes"
)
_NO_METRIC: Final = "which this scorer does not have: give both processes the same metrics"


class UnitCopies:
    """Reads copies of units that another process sampled. A repeated copy is not read if it is among the latest 100,000.

    A copy is complete, and waits for no further spans. The sampling decisions of the other process are kept, and no other
    metric is eligible.

    Attributes:
        metrics: names of all metrics of this scorer.
        trusted: whether the sampling decisions in copies are used: senders have a token, or write to spanscore's own topic.
        again: number of repeated copies that were left out.
        ignored: number of spans of untrusted copies.
        lost: reason → number of copies, or of metrics of copies, that cannot be scored here.
    """

    def __init__(self, metrics: Collection[str]) -> None:
        self.metrics: Set[str] = frozenset(metrics)
        self.trusted = False
        self._read_units = ClosedKeys(_REMEMBERED)
        self._copies: dict[int, bool] = {}
        self.again = self.ignored = 0
        self.lost: Counter[str] = Counter()

    def separate(self, request: ParsedRequest) -> tuple[ParsedRequest, Sequence[WireSpan], Sequence[WireSpan]]:
        """Return the request without trusted copies, the spans of trusted copies, and the spans of all copies. Thread-safe."""
        are_copies = [self._is_copy(origin) for origin, _ in request.places]
        if True not in are_copies:
            return request, (), ()
        places = list(zip(request.places, are_copies, strict=True))
        private = [copy_span(request.body, at, origin) for (origin, spans), copy in places if copy for at in spans]
        if not self.trusted:
            self.ignored += len(private)
            log_once("untrusted copies", f"copies of units came {_UNTRUSTED}")
            return request, (), private
        rest = [place for place, copy in places if not copy]
        return request._replace(places=rest), private, private

    def units(self, copies: Sequence[WireSpan], *, once: bool) -> Iterator[tuple[Unit, Samples | None]]:
        """Yield the units of copies, with their samples if these were submitted. Call on the span thread.

        With ``once``, repeated copies are left out. Messages of streams are repeated on purpose, when they are read again.
        """
        for unit, samples in units_of(copies, self._unreadable):
            ids = unit.key.trace_id.to_bytes(16), unit.key.span_id.to_bytes(8)
            if once and self._read_units.has(*ids):
                self.again += 1
                continue
            self._read_units.add(*ids)
            eligible = unit.eligible_metrics or frozenset()
            for name in sorted(eligible - self.metrics):
                self.lost[f"the metric {printable(name)}, which this scorer does not have"] += 1
                log_once(f"copies for {name}", f"copies of units came to be scored by {printable(name)}, {_NO_METRIC}")
            if eligible & self.metrics:
                yield replace(unit, eligible_metrics=eligible & self.metrics), samples

    def _unreadable(self, error: Exception) -> None:
        self.lost["unreadable spans"] += 1
        log_internal_error("read a copy of a unit", error)

    def notes(self) -> list[str]:
        """Return the notes on unscored copies for ``status()``."""
        notes = [f"{count:,} copies of units came with {reason}" for reason, count in self.lost.copy().items()]
        return notes + ([f"{self.ignored:,} spans of copies came {_UNTRUSTED}"] if self.ignored else [])

    def _is_copy(self, origin: Origin) -> bool:
        resource = hash(origin.resource)  # the hash, because the bytes may be many
        if resource not in self._copies:
            if len(self._copies) >= _MOST_RESOURCES:
                self._copies.clear()
            self._copies[resource] = False
            with suppress(UnreadableRequest):
                self._copies[resource] = is_copy(resource_of(origin))
        return self._copies[resource]


_WAIT_NS: Final = 5_000_000_000
"""Time for which a proxy's span waits for its unit to close; the root of a unit that is about to close waits longer."""


class ProxyBuffer:
    """The spans that wait in a proxy. Call on the span thread.

    Each span is forwarded once: with its unit's scores, or unchanged after 5 s.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[UnitKey, tuple[int, HeldWireSpan]] = OrderedDict()  # in order of arrival
        self._forwarded: OrderedDict[UnitKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, spans: Sequence[WireSpan], exit: Forward, now_ns: int) -> None:
        """Keep spans. A repeated span, waiting or already forwarded, is dropped."""
        for span in spans:
            key = unit_key(span)
            if key not in self._waiting and key not in self._forwarded:
                self._waiting[key] = now_ns, HeldWireSpan(span, exit)

    def pop(self, keys: Sequence[UnitKey]) -> dict[int, PendingSpan]:
        """Remove and return those of these spans that wait, by span id; all are of one trace. The caller must end them."""
        pending: dict[int, PendingSpan] = {}
        for key in keys:
            entry = self._waiting.pop(key, None)
            if entry is not None:
                pending[key.span_id] = entry[1]
                keep_latest(self._forwarded, key, None, _REMEMBERED)
        return pending

    def forward(self, keys: Sequence[UnitKey]) -> None:
        """Forward those of these spans that wait, unchanged."""
        for span in self.pop(keys).values():
            span.end()

    def forward_overdue(self, now_ns: int, closing: Callable[[], set[UnitKey]]) -> None:
        """Forward the spans that have waited for 5 s, unchanged, except the roots that ``closing`` returns.

        ``closing`` returns the keys of the units that are about to close.
        """
        if (due_ns := self.next_due_ns()) is None or now_ns < due_ns:
            return
        roots = closing()
        overdue = [key for key, _ in takewhile(lambda item: now_ns - item[1][0] >= _WAIT_NS, self._waiting.items())]
        for key in overdue:
            if key in roots:
                self._waiting[key] = now_ns, self._waiting[key][1]
                self._waiting.move_to_end(key)
        self.forward([key for key in overdue if key not in roots])

    def forward_all(self) -> None:
        """Forward all waiting spans, unchanged."""
        self.forward([*self._waiting])

    def next_due_ns(self) -> int | None:
        """Return the time at which the oldest span has waited for 5 s; None if no span waits."""
        return next((since_ns + _WAIT_NS for since_ns, _ in self._waiting.values()), None)

"""The state of OTLP requests: counts at the entry, copies from other processes, and spans that a proxy keeps."""

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

    Listeners count requests and refusals; ``OtlpSpans.take`` counts the spans of accepted requests.

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

    def came(self, size_bytes: int) -> None:
        """Count a request, accepted or not, with the uncompressed size of its body; 0 if it is unknown."""
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes

    def refuse(self, reason: str) -> None:
        """Count a refused request. The reason has few values: ``bytes``, ``traces``, ``event_queue``, ``too_large`` …"""
        with self._lock:
            self.refused[reason] += 1

    def leave_unread(self, scope: str, traces: Set[bytes]) -> None:
        """Count the traces of an ignored scope in a request, except traces with spans in the same request that are read.

        A trace counts once, unless thousands of others came in between.
        """
        with self._lock:
            self.unread[scope] += len(traces - self._unread_traces)
            if len(self._unread_traces) >= _MOST_UNREAD:
                self._unread_traces.clear()
            self._unread_traces |= traces

    def took(self, spans: int, rejected: Mapping[str, int], *, ours: int, unclaimed: int) -> None:
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


class RequestClaims(NamedTuple):
    """The spans of one request, sorted by their treatment.

    Attributes:
        sorting: all spans except those of spanscore's evaluators.
        kept: spans that wait for their scores; a proxy forwards all others now.
        copies: copies of units that another process sampled, to be scored here.
        private: all copies; a proxy forwards none of them.
        scores: spans that may have external scores.
    """

    taken: ParsedRequest
    sorting: RequestPartition
    kept: Sequence[WireSpan]
    copies: Sequence[WireSpan] = ()
    private: Sequence[WireSpan] = ()
    scores: Sequence[WireSpan] = ()


class RequestSpans(NamedTuple):
    """The spans of one request, on their way to the span thread.

    Attributes:
        spans: all other spans, each with whether it is claimed.
        roots: number of spans that certainly begin a unit.
        traces: ids of the traces of claimed spans.
        beside: ids of the traces of unclaimed spans and of copies.
        kept: spans that wait to be forwarded.
        exit: function that forwards the kept spans; None = no span is kept.
        copies: copies of units that another process sampled.
        size: total bytes of claimed spans and copies.
    """

    unsampled: Sequence[UnsampledUnit]
    spans: Sequence[tuple[WireSpan, bool]]
    roots: int
    traces: Set[bytes]
    beside: Set[bytes]
    kept: Sequence[WireSpan]
    exit: Forward | None
    copies: Sequence[WireSpan]
    size: int


class StreamPosition(NamedTuple):
    """A request that was read from a stream, and its position there.

    Attributes:
        stream: name of the stream; spans of an ended stream are dropped.
        log_ns: time of the message in the stream's log, in nanoseconds.
        noted: function of the ids of the request's traces, called on the span thread when the spans are in their table.
    """

    stream: Hashable
    log_ns: int
    arrived: RequestSpans
    noted: Callable[[Collection[bytes]], None]


_REMEMBERED: Final = 100_000
"""Number of remembered units: senders resend a copy that got no response."""
_MOST: Final = 1_000
"""Number of resources with a known result of ``_is_copy``; beyond it, all are forgotten."""
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
        again: number of repeated copies.
        ignored: number of spans of untrusted copies.
        lost: reason → number of copies, or of metrics of copies, that cannot be scored here.
    """

    def __init__(self, metrics: Collection[str]) -> None:
        self.metrics: Set[str] = frozenset(metrics)
        self.trusted = False
        self._known = ClosedKeys(_REMEMBERED)
        self._copies: dict[int, bool] = {}
        self.again = self.ignored = 0
        self.lost: Counter[str] = Counter()

    def separate(self, taken: ParsedRequest) -> tuple[ParsedRequest, Sequence[WireSpan], Sequence[WireSpan]]:
        """Return the request without trusted copies, the trusted copies, and all copies. Thread-safe.

        Copies are never forwarded to a backend.
        """
        are_copies = [self._is_copy(origin) for origin, _ in taken.places]
        if True not in are_copies:
            return taken, (), ()
        marked = list(zip(taken.places, are_copies, strict=True))
        private = [copy_span(taken.body, at, origin) for (origin, places), copy in marked if copy for at in places]
        if not self.trusted:
            self.ignored += len(private)
            log_once("untrusted copies", f"copies of units came {_UNTRUSTED}")
            return taken, (), private
        rest = [place for place, copy in marked if not copy]
        return taken._replace(places=rest), private, private

    def units(self, copies: Sequence[WireSpan], *, once: bool) -> Iterator[tuple[Unit, Samples | None]]:
        """Yield the units of copies, with samples if they were submitted. Call on the span thread.

        With ``once``, repeated copies are left out, because senders resend a copy that got no response. Streams are reread on
        purpose.
        """
        for unit, samples in units_of(copies, self._unreadable):
            ids = unit.key.trace_id.to_bytes(16), unit.key.span_id.to_bytes(8)
            if once and self._known.has(*ids):
                self.again += 1
                continue
            self._known.add(*ids)
            if (ours := self._for_us(unit)).eligible_metrics:
                yield ours, samples

    def _for_us(self, unit: Unit) -> Unit:
        """Return the unit, eligible only for those metrics that this scorer has."""
        eligible = unit.eligible_metrics or frozenset()
        for name in sorted(eligible - self.metrics):
            self.lost[f"the metric {printable(name)}, which this scorer does not have"] += 1
            log_once(f"copies for {name}", f"copies of units came to be scored by {printable(name)}, {_NO_METRIC}")
        return replace(unit, eligible_metrics=eligible & self.metrics)

    def _unreadable(self, error: Exception) -> None:
        self.lost["unreadable spans"] += 1
        log_internal_error("read a copy of a unit", error)

    def notes(self) -> list[str]:
        """Return the notes on unscored copies for ``status()``."""
        notes = [f"{times:,} copies of units came with {what}" for what, times in self.lost.copy().items()]
        return notes + ([f"{self.ignored:,} spans of copies came {_UNTRUSTED}"] if self.ignored else [])

    def _is_copy(self, origin: Origin) -> bool:
        resource = hash(origin.resource)  # the hash, because the bytes may be many
        if resource not in self._copies:
            if len(self._copies) >= _MOST:
                self._copies.clear()
            self._copies[resource] = False
            with suppress(UnreadableRequest):
                self._copies[resource] = is_copy(resource_of(origin))
        return self._copies[resource]


_EARLY_NS: Final = 5_000_000_000
"""Time for which a span waits for its unit to close; the root of a closing unit waits longer."""


class ProxyBuffer:
    """Spans that a proxy keeps, and forwards once. Call on the span thread.

    A span leaves with its unit's scores, or unchanged after 5 s unless the unit is about to close.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[UnitKey, tuple[int, HeldWireSpan]] = OrderedDict()  # in order of arrival
        self._gone: OrderedDict[UnitKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, spans: Sequence[WireSpan], exit: Forward, now_ns: int) -> None:
        """Keep spans. A repeated span, waiting or already forwarded, is dropped."""
        for span in spans:
            key = unit_key(span)
            if key not in self._waiting and key not in self._gone:
                self._waiting[key] = now_ns, HeldWireSpan(span, exit)

    def give(self, keys: Sequence[UnitKey]) -> dict[int, PendingSpan]:
        """Remove and return those of these spans that wait, by span id; all are of one trace. The caller must end them."""
        pending: dict[int, PendingSpan] = {}
        for key in keys:
            entry = self._waiting.pop(key, None)
            if entry is not None:
                pending[key.span_id] = entry[1]
                keep_latest(self._gone, key, None, _REMEMBERED)
        return pending

    def forward(self, keys: Sequence[UnitKey]) -> None:
        """Forward those of these spans that wait, unchanged."""
        for span in self.give(keys).values():
            span.end()

    def forward_overdue(self, now_ns: int, closing: Callable[[], set[UnitKey]]) -> None:
        """Forward the spans that have waited for 5 s, unchanged; the roots of units that are about to close keep waiting."""
        if (due_ns := self.next_due_ns()) is None or now_ns < due_ns:
            return
        stay = closing()
        waiting = takewhile(lambda held: now_ns - held[1][0] >= _EARLY_NS, self._waiting.items())
        overdue = [key for key, _ in waiting]
        for key in overdue:
            if key in stay:
                self._waiting[key] = now_ns, self._waiting[key][1]
                self._waiting.move_to_end(key)
        self.forward([key for key in overdue if key not in stay])

    def forward_all(self) -> None:
        """Forward all waiting spans, unchanged."""
        self.forward([*self._waiting])

    def next_due_ns(self) -> int | None:
        """Return the time at which the oldest span has waited for 5 s; None if no span waits."""
        return next((since_ns + _EARLY_NS for since_ns, _ in self._waiting.values()), None)

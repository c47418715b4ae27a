"""OTLP requests: counts at the entry, copies from other processes, and spans that a proxy keeps."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import takewhile
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol

from spanscore.capture.otlp.claims import RequestPartition, UnsampledUnit
from spanscore.core.codecs.job import is_copy, units_of
from spanscore.core.codecs.otlp_request import Origin, ParsedRequest, UnreadableRequest, WireSpan, kept, resource_of
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.printable import printable
from spanscore.core.sample import Samples
from spanscore.core.span import Unit, UnitKey
from spanscore.pipeline.trace_index import ClosedKeys
from spanscore.protocols import PendingSpan

# --- counts ---------------------------------------------------------------------------------------------------------

OVERLOADS: Final = ("bytes", "traces", "event_queue")
"""What may be full, so that a request is refused and is to come again."""
_MOST_UNREAD: Final = 10_000
"""Ids of unread traces that are remembered, as a trace may come in several requests."""


class EndpointCounts:
    """Counts of the requests that came over the wire since the start. Any thread.

    Listeners count requests and refusals; ``OtlpSpans.take`` counts the spans of the requests that are taken.

    Attributes:
        requests: that came, refused ones included.
        bytes: of their bodies, without compression.
        refused: why a request was refused → how many.
        spans: valid ones that were taken.
        rejected: why a span of a request that was taken is not valid → how many.
        ours: of the spans, evaluations: they are never evaluated.
        unclaimed: of the spans, those that nobody claims.
        unread: scope → traces without any span that is read, as another scope traces the same library in their process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.requests = self.bytes = self.spans = self.ours = self.unclaimed = 0
        self.refused: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self._unread_traces: set[bytes] = set()

    def came(self, size_bytes: int) -> None:
        """Count a request, whatever comes of it.

        Args:
            size_bytes: of its body, without compression; 0 where that is not known.
        """
        with self._lock:
            self.requests += 1
            self.bytes += size_bytes

    def refuse(self, reason: str) -> None:
        """Count a request that is refused, by a reason of few: ``bytes``, ``traces``, ``event_queue``, ``too_large`` …"""
        with self._lock:
            self.refused[reason] += 1

    def leave_unread(self, scope: str, traces: Set[bytes]) -> None:
        """Count traces of a request with spans of an ignored scope; each once, unless thousands came in between.

        Args:
            scope: the ignored scope.
            traces: ids of its traces, without traces of which the same request has spans that are read.
        """
        with self._lock:
            self.unread[scope] += len(traces - self._unread_traces)
            if len(self._unread_traces) >= _MOST_UNREAD:
                self._unread_traces.clear()
            self._unread_traces |= traces

    def took(self, spans: int, rejected: Mapping[str, int], *, ours: int, unclaimed: int) -> None:
        """Count the spans of one request."""
        with self._lock:
            self.spans += spans
            if rejected:  # a counter that is told nothing takes longer than all else here
                self.rejected.update(rejected)
            self.ours += ours
            self.unclaimed += unclaimed


# --- held -----------------------------------------------------------------------------------------------------------


class ForwardTarget(Protocol):
    """Where a span that was kept goes on to: the proxy's own way to its backend."""

    def pass_on(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
        """Send it on, with these attributes appended to its own. Called once per kept span; never raises, does not block."""


@dataclass(frozen=True, slots=True)
class HeldWireSpan:
    """A span that waits in a proxy for its unit's scores, and goes on with them: a ``PendingSpan``.

    Attributes:
        span: the span as it came.
        exit: the way to the backend of the proxy that keeps it.
    """

    span: WireSpan
    exit: ForwardTarget

    @property
    def size(self) -> int:
        """Bytes held: those that came."""
        return len(self.span.raw)

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Send it on; its end time is its own."""
        self.exit.pass_on(self.span, attributes)


# --- arrived --------------------------------------------------------------------------------------------------------


class RequestClaims(NamedTuple):
    """What the spans of one request are to us.

    Attributes:
        taken: the request.
        sorting: of all that are not ours.
        kept: those that wait for their scores; all others are to go on now.
        copies: of units that another process took, to be scored here.
        private: copies of any kind, which go nowhere.
        scores: spans that may hold scores of others.
    """

    taken: ParsedRequest
    sorting: RequestPartition
    kept: Sequence[WireSpan]
    copies: Sequence[WireSpan] = ()
    private: Sequence[WireSpan] = ()
    scores: Sequence[WireSpan] = ()


class RequestSpans(NamedTuple):
    """The spans of one request.

    Attributes:
        unsampled: units that are told to be so.
        spans: the others, each with whether it is claimed.
        roots: how many of them begin a unit for sure.
        traces: of claimed ones.
        beside: traces of unclaimed ones and of copies.
        kept: those that wait for their exit.
        copies: of units that another process took.
        size: bytes of claimed ones, and of copies.
    """

    unsampled: Sequence[UnsampledUnit]
    spans: Sequence[tuple[WireSpan, bool]]
    roots: int
    traces: Set[bytes]
    beside: Set[bytes]
    kept: Sequence[WireSpan]
    exit: ForwardTarget | None
    copies: Sequence[WireSpan]
    size: int


class StreamPosition(NamedTuple):
    """Where a request was read, and not received.

    Attributes:
        stream: which; spans of one that has ended are left.
        log_ns: what its log says when it was written, nanoseconds.
        arrived: its spans.
        noted: called on the span thread with the traces of its spans, when these are where they belong.
    """

    stream: Hashable
    log_ns: int
    arrived: RequestSpans
    noted: Callable[[Collection[bytes]], None]


# --- copies ---------------------------------------------------------------------------------------------------------

_REMEMBERED: Final = 100_000
"""Units that were taken: whoever had no answer sends a copy again."""
_MOST: Final = 1_000
"""Resources of which it is known whether they are copies'; then all are forgotten."""
_UNTRUSTED: Final = (
    "without a token, so that the dice are thrown again: give serve.token_file, of the same token as elsewhere"
)
_NO_METRIC: Final = "which this scorer does not have: give both processes the same metrics"


class UnitCopies:
    """Reads copies of units that another process took, each once.

    A copy is whole: nothing of it is waited for. The decisions of the other process stand, and no other metric is eligible.

    Args:
        metrics: names of all that can be scored here.

    Attributes:
        trusted: whether what a copy says was decided is believed: who may send has a token, or writes to a topic of ours.
        again: copies that had come before.
        ignored: spans of copies that were not believed.
        lost: what was wrong → copies, or metrics of copies, that cannot be scored here.
    """

    def __init__(self, metrics: Collection[str]) -> None:
        self._metrics = frozenset(metrics)
        self.trusted = False
        self._known = ClosedKeys(_REMEMBERED)
        self._copies: dict[int, bool] = {}
        self.again = self.ignored = 0
        self.lost: Counter[str] = Counter()

    def separate(self, taken: ParsedRequest) -> tuple[ParsedRequest, Sequence[WireSpan], Sequence[WireSpan]]:
        """Return a request without the copies that are trusted, these copies, and all copies. Any thread.

        None of the copies ever goes on to a backend.
        """
        are_copies = [self._is_copy(origin) for origin, _ in taken.places]
        if True not in are_copies:
            return taken, (), ()
        marked = list(zip(taken.places, are_copies, strict=True))
        private = [kept(taken.body, at, origin) for (origin, places), copy in marked if copy for at in places]
        if not self.trusted:
            self.ignored += len(private)
            log_once("untrusted copies", f"copies of units came {_UNTRUSTED}")
            return taken, (), private
        rest = [place for place, copy in marked if not copy]
        return taken._replace(places=rest), private, private

    def units(self, copies: Sequence[WireSpan], *, once: bool) -> Iterator[tuple[Unit, Samples | None]]:
        """Yield the units of copies, and samples where some were submitted. Span thread.

        Args:
            once: leave out those that have come before: who had no answer sends again. What is read is read again on purpose.
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
        """Return a unit that is eligible for those metrics alone that there are here."""
        eligible = unit.eligible_metrics or frozenset()
        for name in sorted(eligible - self._metrics):
            self.lost[f"the metric {printable(name)}, which this scorer does not have"] += 1
            log_once(f"copies for {name}", f"copies of units came to be scored by {printable(name)}, {_NO_METRIC}")
        return replace(unit, eligible_metrics=eligible & self._metrics)

    def _unreadable(self, error: Exception) -> None:
        self.lost["what cannot be read"] += 1
        log_internal_error("read a copy of a unit", error)

    def notes(self) -> list[str]:
        """Return what must be known of copies that were not scored, for ``status()``."""
        notes = [f"{times:,} copies of units came with {what}" for what, times in self.lost.copy().items()]
        return notes + ([f"{self.ignored:,} spans of copies came {_UNTRUSTED}"] if self.ignored else [])

    def _is_copy(self, origin: Origin) -> bool:
        resource = hash(origin.resource)  # not the bytes, which may be many
        is_copy = self._copies.get(resource)
        if is_copy is None:
            if len(self._copies) >= _MOST:
                self._copies.clear()
            is_copy = self._copies[resource] = _says_copy(origin)
        return is_copy


def _says_copy(origin: Origin) -> bool:
    try:
        return is_copy(resource_of(origin))
    except UnreadableRequest:
        return False


# --- kept -----------------------------------------------------------------------------------------------------------

_EARLY_NS: Final = 5_000_000_000
"""How long a span waits for its unit to close, unless it is the root of one that is about to."""


class ProxyBuffer:
    """Spans that a proxy keeps: each goes on exactly once, with its unit's scores or after five seconds. Span thread."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[UnitKey, tuple[int, HeldWireSpan]] = OrderedDict()  # by since when
        self._gone: OrderedDict[UnitKey, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, spans: Sequence[WireSpan], exit: ForwardTarget, now_ns: int) -> None:
        """Keep spans; a copy of one that waits, or has gone on, goes nowhere."""
        for span in spans:
            key = key_of(span)
            if key not in self._waiting and key not in self._gone:
                self._waiting[key] = now_ns, HeldWireSpan(span, exit)

    def give(self, keys: Sequence[UnitKey]) -> dict[int, PendingSpan]:
        """Return those that wait of these spans of one trace, by span id: who gets them ends them."""
        pending: dict[int, PendingSpan] = {}
        for key in keys:
            entry = self._waiting.pop(key, None)
            if entry is not None:
                pending[key.span_id] = entry[1]
                self._note_gone(key)
        return pending

    def let_go(self, keys: Sequence[UnitKey]) -> None:
        """Send on what waits of these, as it is."""
        for span in self.give(keys).values():
            span.end()

    def let_overdue_go(self, now_ns: int, closing: Callable[[], set[UnitKey]]) -> None:
        """Send on what has waited for five seconds.

        Args:
            now_ns: the time.
            closing: roots of units that are about to close: they wait on.
        """
        if (due_ns := self.next_due_ns()) is None or now_ns < due_ns:
            return
        stay = closing()
        waiting = takewhile(lambda held: now_ns - held[1][0] >= _EARLY_NS, self._waiting.items())
        overdue = [key for key, _ in waiting]
        for key in overdue:
            if key in stay:
                self._waiting[key] = now_ns, self._waiting[key][1]
                self._waiting.move_to_end(key)
        self.let_go([key for key in overdue if key not in stay])

    def let_all_go(self) -> None:
        """Send on everything, as it is."""
        self.let_go([*self._waiting])

    def next_due_ns(self) -> int | None:
        """Return when the oldest has waited for five seconds; None where none waits."""
        return next((since_ns + _EARLY_NS for since_ns, _ in self._waiting.values()), None)

    def _note_gone(self, key: UnitKey) -> None:
        self._gone[key] = None
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


def key_of(span: WireSpan) -> UnitKey:
    """Return the ids of a span, as those of a unit that it were the root of."""
    return UnitKey(int.from_bytes(span.trace_id), int.from_bytes(span.span_id))

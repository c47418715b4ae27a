"""Joins content from log records to the spans that it belongs to, by trace id and span id."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from spanscore.core.codecs.otlp_span import ContentRecord, Event
from spanscore.core.event_queue import steady_ns
from spanscore.core.job import LogRecords
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.registry import SpanNormalizers

_MOST_SCOPES: Final = 100
_NOT_JOINED: Final = NoContent(
    "content is in log records, which had not arrived when the span's unit was closed",
    "send log records as soon as spans (OTEL_BLRP_SCHEDULE_DELAY of the traced application), or make units wait for longer"
    " (units.idle_timeout); or put the content on the spans",
)


@dataclass(eq=False, repr=False)
class LogContent:
    """Keeps records until their span is read, for a limited time and in limited memory. Thread-safe.

    Attributes:
        most_bytes: size of all waiting records; the oldest are dropped first.
        keep_ns: time in nanoseconds for which a record waits; may be changed.
        clock: monotonic clock, nanoseconds; may be changed.
    """

    most_bytes: int
    keep_ns: int
    clock: Callable[[], int] = steady_ns

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._waiting: OrderedDict[tuple[int, int], tuple[int, list[ContentRecord]]] = OrderedDict()
        self._scopes: set[str] = set()
        self._bytes = self._joined = self._given_up = self._no_room = self._waits = 0

    def forget_all(self) -> None:
        """Forget the waiting records without counting them, because the same records will be added again."""
        with self._lock:
            self._waiting.clear()
            self._bytes = self._waits = 0

    def add(self, records: Iterable[ContentRecord]) -> None:
        """Keep records for their spans."""
        now_ns = self.clock()
        with self._lock:
            self._forget_overdue(now_ns)
            for record in records:
                if len(self._scopes) < _MOST_SCOPES:
                    self._scopes.add(record.scope)
                self._waiting.setdefault(record.ids, (now_ns, []))[1].append(record)
                self._waits += 1
                self._bytes += record.size
            while self._bytes > self.most_bytes:
                self._no_room += self._forget()

    def translated(self, span: SpanData, translator: SpanNormalizers) -> SpanData | None:
        """Return a span in GenAI names, read together with its content from log records."""
        if events := self.take((span.trace_id, span.span_id)):
            span = replace(span, events=(*span.events, *events))
        read = translator.translate(span)
        if read is None or read.no_content is None or span.scope not in self._scopes:
            return read
        return replace(read, no_content=_NOT_JOINED)

    @property
    def filled(self) -> float:
        """Share of the memory limit that records occupy, 0 to 1."""
        return self._bytes / self.most_bytes

    def take(self, ids: tuple[int, int]) -> Sequence[Event]:
        """Remove and return the content of a span, in order of arrival."""
        if not self._waiting:
            return ()
        with self._lock:
            entry = self._waiting.pop(ids, None)
            if entry is None:
                return ()
            self._joined += self._leave(entry[1])
        return [record.event for record in entry[1]]

    def counts(self) -> LogRecords | None:
        """Return the counts of records; None before the first record."""
        with self._lock:
            self._forget_overdue(self.clock())
            counts = LogRecords(self._joined, self._waits, self._given_up, self._no_room)
        return counts if any(counts) else None

    def _forget_overdue(self, now_ns: int) -> None:
        while self._waiting and now_ns - next(iter(self._waiting.values()))[0] > self.keep_ns:
            self._given_up += self._forget()

    def _forget(self) -> int:
        return self._leave(self._waiting.popitem(last=False)[1][1])

    def _leave(self, records: Sequence[ContentRecord]) -> int:
        self._waits -= len(records)
        self._bytes -= sum(record.size for record in records)
        return len(records)

"""Joins content in log records to the spans of the same trace id and span id."""

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
    """Keeps log records until their span is read, for a limited time and in limited memory. Thread-safe.

    Attributes:
        most_bytes: maximum size of all waiting records; above it, the oldest are dropped.
        keep_ns: time in nanoseconds for which a record waits.
        clock: monotonic clock, nanoseconds.
    """

    most_bytes: int
    keep_ns: int
    clock: Callable[[], int] = steady_ns

    def __post_init__(self) -> None:
        self._lock = Lock()
        # (trace id, span id) → (arrival of the first record, records)
        self._records: OrderedDict[tuple[int, int], tuple[int, list[ContentRecord]]] = OrderedDict()
        self._scopes: set[str] = set()
        self._bytes = self._joined = self._overdue = self._no_room = self._waiting = 0

    def forget_all(self) -> None:
        """Forget the waiting records without counting them, because the same records will be added again."""
        with self._lock:
            self._records.clear()
            self._bytes = self._waiting = 0

    def add(self, records: Iterable[ContentRecord]) -> None:
        """Keep records until their spans are read."""
        now_ns = self.clock()
        with self._lock:
            self._drop_overdue(now_ns)
            for record in records:
                if len(self._scopes) < _MOST_SCOPES:
                    self._scopes.add(record.scope)
                self._records.setdefault(record.ids, (now_ns, []))[1].append(record)
                self._waiting += 1
                self._bytes += record.size
            while self._bytes > self.most_bytes:
                self._no_room += self._drop_oldest()

    def translate(self, span: SpanData, translator: SpanNormalizers) -> SpanData | None:
        """Return a span in GenAI names with the content of its log records; None if no normalizer claims it."""
        if events := self.take((span.trace_id, span.span_id)):
            span = replace(span, events=(*span.events, *events))
        translated = translator.translate(span)
        if translated is None or translated.no_content is None or span.scope not in self._scopes:
            return translated
        return replace(translated, no_content=_NOT_JOINED)

    @property
    def filled(self) -> float:
        """Share of the memory limit that records occupy, 0 to 1."""
        return self._bytes / self.most_bytes

    def take(self, ids: tuple[int, int]) -> Sequence[Event]:
        """Remove and return the content of a span, in order of arrival."""
        if not self._records:
            return ()
        with self._lock:
            entry = self._records.pop(ids, None)
            if entry is None:
                return ()
            _, records = entry
            self._joined += self._uncount(records)
        return [record.event for record in records]

    def counts(self) -> LogRecords | None:
        """Return the numbers of joined, waiting, overdue and dropped records; None before the first record."""
        with self._lock:
            self._drop_overdue(self.clock())
            counts = LogRecords(self._joined, self._waiting, self._overdue, self._no_room)
        return counts if any(counts) else None

    def _drop_overdue(self, now_ns: int) -> None:
        while self._records and now_ns - next(iter(self._records.values()))[0] > self.keep_ns:
            self._overdue += self._drop_oldest()

    def _drop_oldest(self) -> int:
        _, (_, records) = self._records.popitem(last=False)
        return self._uncount(records)

    def _uncount(self, records: Sequence[ContentRecord]) -> int:
        self._waiting -= len(records)
        self._bytes -= sum(record.size for record in records)
        return len(records)

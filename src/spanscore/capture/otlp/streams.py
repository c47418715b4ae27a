"""The open units of each stream, such as a Kafka partition, with a clock per stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from spanscore.capture.otlp.requests import StreamMessage
from spanscore.config.units import Units
from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.core.span import UnitKey
from spanscore.pipeline.trace_index import Bounds, ClosedUnit
from spanscore.pipeline.traces import TraceTable


class StreamClock:
    """The clock of one stream, by which the stream's units age. Use it from one thread.

    A stream is read in bursts, and is paused in between. By the monotonic clock, its units would close before the rest of
    their spans is read. The stream's clock is at most as fast as the monotonic clock:

    - While the stream is read to its end, the clock runs.
    - While messages are left to read, the clock runs at most to the newest message timestamp that was read.
    - While the stream is not read, the clock stops.

    Message timestamps are compared only with other timestamps of the same stream, so a wrong clock of another computer cannot
    close a unit early. The parameter ``steady_ns`` is the present monotonic time in nanoseconds.
    """

    def __init__(self, steady_ns: int) -> None:
        # Sections of two kinds alternate: from the end of the stream to the next message, and from that message to the end.
        self._base_ns = steady_ns  # the stream's time at the beginning of the section
        self._ran_ns = 0  # time for which the clock ran in the section, up to ``_since_ns``
        self._since_ns = steady_ns  # monotonic time of the last start or stop
        self._is_stopped = False
        self._at_end = True
        self._first_ns = self._last_ns = 0  # oldest and newest message timestamp of the section

    def now_ns(self, steady_ns: int) -> int:
        """Return the stream's time in nanoseconds, which never decreases."""
        ran_ns, limit_ns = self._ran(steady_ns), self._last_ns - self._first_ns
        return self._base_ns + (ran_ns if self._at_end or ran_ns < limit_ns else limit_ns)

    def monotonic_ns_at(self, stream_ns: int) -> int | None:
        """Return the monotonic time at which the clock will show ``stream_ns`` if nothing more is read; None = never."""
        ahead_ns = stream_ns - self._base_ns
        if ahead_ns <= self._ran_ns and self._is_stopped:
            return self._since_ns
        if self._is_stopped or not (self._at_end or ahead_ns <= self._last_ns - self._first_ns):
            return None
        return self._since_ns + ahead_ns - self._ran_ns

    def read(self, log_ns: int, steady_ns: int) -> None:
        """Record that a message was read; ``log_ns`` is its timestamp in ns."""
        self.go(steady_ns)
        if self._at_end:
            self._begin_section(steady_ns)
            self._at_end, self._first_ns, self._last_ns = False, log_ns, log_ns
        self._last_ns = max(self._last_ns, log_ns)

    def reach_end(self, steady_ns: int) -> None:
        """Record that the stream has no further messages for now."""
        self.go(steady_ns)
        if not self._at_end:
            self._begin_section(steady_ns)
            self._at_end = True

    def stop(self, steady_ns: int) -> None:
        """Stop the clock, because the stream is not read until ``go``."""
        self._ran_ns, self._since_ns, self._is_stopped = self._ran(steady_ns), steady_ns, True

    def go(self, steady_ns: int) -> None:
        """Restart the clock, because the stream is read again."""
        if self._is_stopped:
            self._since_ns, self._is_stopped = steady_ns, False

    def _ran(self, steady_ns: int) -> int:
        if self._is_stopped or steady_ns < self._since_ns:
            return self._ran_ns
        return self._ran_ns + steady_ns - self._since_ns

    def _begin_section(self, steady_ns: int) -> None:
        self._base_ns, self._ran_ns, self._since_ns = self.now_ns(steady_ns), 0, steady_ns


_NO_LIMIT = 1_000_000_000


class TableCounts(NamedTuple):
    """The sums of the counters of ``TraceTable`` over several tables."""

    open: int = 0
    waiting_for_root: int = 0
    orphans: int = 0
    late: int = 0
    duplicates: int = 0
    revisions: int = 0

    @classmethod
    def of(cls, *counted: TraceTable | TableCounts) -> TableCounts:
        """Return the sums over tables and earlier sums."""
        return cls(*(sum([getattr(each, name) for each in counted]) for name in cls._fields))


class OpenStream(NamedTuple):
    """The open units of one stream.

    Attributes:
        table: spans that wait for the rest of their unit.
        clock: clock by which the units age.
        copies: copies of units that another process sampled (``remote_scoring``), one entry per request. Each waits until the
            queue has a free place.
    """

    table: TraceTable
    clock: StreamClock
    copies: deque[Sequence[WireSpan]]

    def holds(self, trace_id: bytes) -> bool:
        """Return whether the trace has open spans or copies."""
        if self.table.is_open(trace_id):
            return True
        return bool(self.copies) and any(span.trace_id == trace_id for spans in self.copies for span in spans)


class Streams:
    """The streams that are being read, such as the partitions of a topic.

    Call the methods on the span thread; ``bytes``, ``open`` and ``total_counts`` on any thread. If another process takes over a
    partition, its open units are forgotten without an outcome, because the other process reads them again.

    Attributes:
        free_places: function that returns the number of units that may be passed to the queue now; by default unlimited.
        on_shutdown: called twice by the shutdown of the scorer: before and after the wait for units that are being scored.
    """

    def __init__(self) -> None:
        self.free_places: Callable[[], int] = lambda: _NO_LIMIT
        self.on_shutdown: Callable[[], None] = lambda: None
        self._streams: dict[Hashable, OpenStream] = {}
        self._counts_of_ended = TableCounts()

    @property
    def bytes(self) -> int:
        """Size of the waiting spans in all tables. Thread-safe."""
        return sum([table.bytes for table in self.tables()]) if self._streams else 0

    @property
    def open(self) -> int:
        """Number of open traces in all tables. Thread-safe."""
        return sum([table.open for table in self.tables()]) if self._streams else 0

    def begin(self, name: Hashable, table: TraceTable, steady_ns: int) -> None:
        """Start to read a stream at a monotonic time; an earlier stream of this name is forgotten."""
        self._streams[name] = OpenStream(table, StreamClock(steady_ns), deque())

    def end(self, name: Hashable) -> int:
        """Forget a stream. Return the number of its open traces."""
        stream = self._streams.pop(name, None)
        if stream is None:
            return 0
        counts = TableCounts.of(stream.table, self._counts_of_ended)
        self._counts_of_ended = counts._replace(open=0, waiting_for_root=0)
        return stream.table.open + len(stream.copies)

    def get(self, name: Hashable) -> OpenStream | None:
        """Return a stream; None if it is not being read."""
        return self._streams.get(name)

    def name_of(self, key: UnitKey) -> Hashable:
        """Return the name of the stream from which a unit was read; None if no stream remembers its trace."""
        trace_id = key.trace_id.to_bytes(16)
        return next((name for name, stream in self._streams.items() if stream.table.has_trace(trace_id)), None)

    def read(self, messages: Sequence[StreamMessage], steady_ns: int) -> tuple[OpenStream | None, int]:
        """Advance the clock of the stream of these messages. Return the stream and its time.

        ``steady_ns`` is the monotonic time. The result is (None, ``steady_ns``) if the stream is no longer read.
        """
        stream = self._streams.get(messages[0].stream)
        if stream is None:
            return None, steady_ns
        # After the end of the stream, the first message begins a section; then the newest timestamp moves the clock's limit.
        stream.clock.read(messages[0].log_ns, steady_ns)
        stream.clock.read(max([message.log_ns for message in messages]), steady_ns)
        return stream, stream.clock.now_ns(steady_ns)

    def total_counts(self, table: TraceTable) -> TableCounts:
        """Return the sums over all streams, including ended streams, and one other table. Thread-safe."""
        return TableCounts.of(table, *self.tables(), self._counts_of_ended)

    def waiting(self) -> set[UnitKey]:
        """Return the keys of units with a root that were not passed to the queue yet."""
        return {key for table in self.tables() for key in table.unreturned_keys()}

    def due(self, steady_ns: int) -> Iterator[ClosedUnit]:
        """Yield complete units while ``free_places`` allows. The caller passes each to the queue before it takes the next."""
        for table, clock, _ in [*self._streams.values()]:
            yield from table.due(clock.now_ns(steady_ns), max(0, self.free_places()))

    def copies(self) -> Iterator[Sequence[WireSpan]]:
        """Yield the copies of each request while ``free_places`` allows.

        The caller passes each to the queue before it takes the next.
        """
        for stream in [*self._streams.values()]:
            while stream.copies and self.free_places() > 0:
                yield stream.copies.popleft()

    def next_due_ns(self) -> int | None:
        """Return the monotonic time of the next work, 0 = now; None if no unit waits or ``free_places`` is 0."""
        if self.free_places() <= 0:
            return None
        if any(stream.copies for stream in self._streams.values()):
            return 0
        due = ((clock, table.next_due_ns()) for table, clock, _ in self._streams.values())
        times = (clock.monotonic_ns_at(at_ns) for clock, at_ns in due if at_ns is not None)
        return min((time for time in times if time is not None), default=None)

    def tables(self) -> list[TraceTable]:
        """Return the table of each stream."""
        return [stream.table for stream in [*self._streams.values()]]


def trace_bounds(units: Units) -> Bounds:
    """Return the limits of a table for the configuration ``units``, with times in nanoseconds."""
    return Bounds(
        quiet_ns=int(units.idle_timeout * 1e9),
        orphan_wait_ns=int(units.orphan_wait * 1e9),
        max_age_ns=int(units.max_age * 1e9),
        max_spans=units.max_spans,
        max_bytes=units.max_bytes,
        traces=units.traces,
        bytes=units.bytes,
        late=units.late,
    )

"""Reads units from streams, such as the partitions of a topic; each stream has a clock of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple, Self

from spanscore.capture.otlp.requests import StreamPosition
from spanscore.config.units import Units
from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.core.span import UnitKey
from spanscore.pipeline.trace_index import Bounds, ClosedUnit
from spanscore.pipeline.traces import TraceTable

# --- stream clock ---------------------------------------------------------------------------------------------------

# A stream is read in bursts, and stops while other streams wait. By the wall clock its units would close before their rest is
# read. The stream's clock runs at most as fast as the wall clock, and only while the stream is read:
#
#     read to its end           runs
#     behind: more to read      runs, at most to the newest time in the log that was read
#     not read (paused, away)   stops
#
# Only times of one log are compared with each other, never two clocks: a wrong clock closes no unit early.


class StreamClock:
    """The clock of one stream, by which its units age. It is never ahead of the messages that were read. For one thread.

    Every method takes the monotonic time in nanoseconds.
    """

    def __init__(self, steady_ns: int) -> None:
        self._base_ns = self._since_ns = steady_ns
        self._ran_ns = 0
        self._stands = False
        self._at_end = True
        self._first_ns = self._last_ns = 0

    def now_ns(self, steady_ns: int) -> int:
        """Return the stream's time in nanoseconds; it never decreases."""
        ran, most = self._ran(steady_ns), self._last_ns - self._first_ns
        return self._base_ns + (ran if self._at_end or ran < most else most)

    def steady_ns(self, stream_ns: int) -> int | None:
        """Return the monotonic time at which the clock will show ``stream_ns`` if nothing more is read; None = never."""
        ahead_ns = stream_ns - self._base_ns
        if ahead_ns <= self._ran_ns and self._stands:
            return self._since_ns
        if self._stands or not (self._at_end or ahead_ns <= self._last_ns - self._first_ns):
            return None
        return self._since_ns + ahead_ns - self._ran_ns

    def read(self, log_ns: int, steady_ns: int) -> None:
        """Record that a message was read; ``log_ns`` is its time in the log."""
        self.go(steady_ns)
        if self._at_end:
            self._begin(steady_ns)
            self._at_end, self._first_ns, self._last_ns = False, log_ns, log_ns
        self._last_ns = max(self._last_ns, log_ns)

    def reach_end(self, steady_ns: int) -> None:
        """Record that the stream has no further messages for now."""
        self.go(steady_ns)
        if not self._at_end:
            self._begin(steady_ns)
            self._at_end = True

    def stand(self, steady_ns: int) -> None:
        """Stop the clock: the stream is not read until further notice."""
        self._ran_ns, self._since_ns, self._stands = self._ran(steady_ns), steady_ns, True

    def go(self, steady_ns: int) -> None:
        """Restart the clock: the stream is read again."""
        if self._stands:
            self._since_ns, self._stands = steady_ns, False

    def _ran(self, steady_ns: int) -> int:
        if self._stands or steady_ns < self._since_ns:
            return self._ran_ns
        return self._ran_ns + steady_ns - self._since_ns

    def _begin(self, steady_ns: int) -> None:
        self._base_ns, self._ran_ns, self._since_ns = self.now_ns(steady_ns), 0, steady_ns


# --- streams --------------------------------------------------------------------------------------------------------

_NO_LIMIT = 1_000_000_000


class TableCounts(NamedTuple):
    """The sums of the counters of ``TraceTable`` over several tables."""

    bytes: int = 0
    open: int = 0
    waiting_for_root: int = 0
    orphans: int = 0
    late: int = 0
    duplicates: int = 0
    revisions: int = 0

    @classmethod
    def of(cls, table: TraceTable) -> Self:
        """Return the counts of one table."""
        return cls(*(getattr(table, name) for name in cls._fields))

    def plus(self, other: Self) -> Self:
        """Return the sum of both counts."""
        return type(self)(*map(add, self, other))


class OpenStream(NamedTuple):
    """The open units of one stream.

    Attributes:
        table: spans of open units.
        clock: clock of the stream.
        copies: copies of units that another process sampled, by request. They wait only for room in the queue.
    """

    table: TraceTable
    clock: StreamClock
    copies: deque[Sequence[WireSpan]]

    def holds(self, trace_id: bytes) -> bool:
        """Return whether the trace has open spans or copies."""
        if self.table.holds(trace_id):
            return True
        return bool(self.copies) and any(span.trace_id == trace_id for spans in self.copies for span in spans)


class Streams:
    """The streams that are being read, such as the partitions of a topic. Span thread, except the numbers.

    If a stream is taken away, its open units are forgotten and not counted, because another process can read the stream again.

    Attributes:
        room: function that returns the number of units that may be handed on now; by default there is always room.
        at_end: function that is called when the scorer ends: before it waits for units in scoring, and again after the wait.
    """

    def __init__(self) -> None:
        self.room: Callable[[], int] = lambda: _NO_LIMIT
        self.at_end: Callable[[], None] = lambda: None
        self._streams: dict[Hashable, OpenStream] = {}
        self._gone = TableCounts()

    @property
    def bytes(self) -> int:
        """Size of the waiting spans in all tables. Any thread."""
        return sum([table.bytes for table in self._tables()]) if self._streams else 0

    @property
    def open(self) -> int:
        """Number of open traces in all tables. Any thread."""
        return sum([table.open for table in self._tables()]) if self._streams else 0

    def begin(self, name: Hashable, table: TraceTable, now_ns: int) -> None:
        """Start to read a stream; an earlier stream of this name is forgotten."""
        self._streams[name] = OpenStream(table, StreamClock(now_ns), deque())

    def end(self, name: Hashable) -> int:
        """Forget a stream. Return the number of its open traces."""
        stream = self._streams.pop(name, None)
        if stream is None:
            return 0
        counted = TableCounts.of(stream.table)
        self._gone = self._gone.plus(counted._replace(bytes=0, open=0, waiting_for_root=0))
        return counted.open + len(stream.copies)

    def get(self, name: Hashable) -> OpenStream | None:
        """Return a stream; None if it is not being read."""
        return self._streams.get(name)

    def of(self, key: UnitKey) -> Hashable:
        """Return the name of the stream from which a unit was read; None if no stream remembers its trace."""
        trace_id = key.trace_id.to_bytes(16)
        return next((name for name, stream in self._streams.items() if stream.table.knows(trace_id)), None)

    def read(self, read: Sequence[StreamPosition], now_ns: int) -> tuple[OpenStream | None, int]:
        """Return the stream of these messages, which are in their order, and its time; None if the stream is no longer read."""
        stream = self._streams.get(read[0].stream)
        if stream is None:
            return None, now_ns
        stream.clock.read(read[0].log_ns, now_ns)
        stream.clock.read(max([message.log_ns for message in read]), now_ns)
        return stream, stream.clock.now_ns(now_ns)

    def gathered(self, table: TraceTable) -> TableCounts:
        """Return the counts of all streams, ended ones included, and of one other table. Any thread."""
        return reduce(TableCounts.plus, (TableCounts.of(each) for each in (table, *self._tables())), self._gone)

    def waiting(self) -> set[UnitKey]:
        """Return the units with a root that were not handed on yet."""
        return {key for table in self._tables() for key in table.waiting()}

    def due(self, now_ns: int) -> Iterator[ClosedUnit]:
        """Yield complete units while there is room. Hand each on before requesting the next."""
        for table, clock, _ in [*self._streams.values()]:
            yield from table.due(clock.now_ns(now_ns), max(0, self.room()))

    def copies(self) -> Iterator[Sequence[WireSpan]]:
        """Yield the copies of one request after another while there is room. Hand each on before requesting the next."""
        for stream in [*self._streams.values()]:
            while stream.copies and self.room() > 0:
                yield stream.copies.popleft()

    def next_due_ns(self) -> int | None:
        """Return the time of the next work, by the caller's clock; None if no unit waits or there is no room."""
        if self.room() <= 0:
            return None
        if any(stream.copies for stream in self._streams.values()):
            return 0
        due = ((clock, table.next_due_ns()) for table, clock, _ in self._streams.values())
        times = (clock.steady_ns(at_ns) for clock, at_ns in due if at_ns is not None)
        return min((time for time in times if time is not None), default=None)

    def _tables(self) -> list[TraceTable]:
        return [stream.table for stream in [*self._streams.values()]]


def bounds_of(units: Units) -> Bounds:
    """Return the limits in a configuration, times in nanoseconds."""
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

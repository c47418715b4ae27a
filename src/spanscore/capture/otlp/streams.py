"""Streams such as the partitions of a topic → units, by a clock of each stream."""

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

# A stream is read in bursts and stands still while others wait, so by the wall clock its units would close before the rest
# of them is read. Its own clock runs as fast as ours at most, and only while the stream is read:
#
#     read to its end           runs
#     behind: more is there     runs, but not further than the times that its log has given what was read
#     not read (paused, away)   stands
#
# No two clocks are compared, only times of one log with each other: one that is wrong closes nothing early.


class StreamClock:
    """The time by which units of one stream grow old, never ahead of what was read. One thread's.

    Every method takes the steady time, nanoseconds.
    """

    def __init__(self, steady_ns: int) -> None:
        self._base_ns = self._since_ns = steady_ns
        self._ran_ns = 0
        self._stands = False
        self._at_end = True
        self._first_ns = self._last_ns = 0

    def now_ns(self, steady_ns: int) -> int:
        """Return the stream's time; never less than before."""
        ran, most = self._ran(steady_ns), self._last_ns - self._first_ns
        return self._base_ns + (ran if self._at_end or ran < most else most)

    def steady_ns(self, stream_ns: int) -> int | None:
        """Return when, if nothing more is read, it will be that time here; None = never."""
        ahead_ns = stream_ns - self._base_ns
        if ahead_ns <= self._ran_ns and self._stands:
            return self._since_ns
        if self._stands or not (self._at_end or ahead_ns <= self._last_ns - self._first_ns):
            return None
        return self._since_ns + ahead_ns - self._ran_ns

    def read(self, log_ns: int, steady_ns: int) -> None:
        """Note that something was read to which the log has given that time."""
        self.go(steady_ns)
        if self._at_end:
            self._begin(steady_ns)
            self._at_end, self._first_ns, self._last_ns = False, log_ns, log_ns
        self._last_ns = max(self._last_ns, log_ns)

    def reach_end(self, steady_ns: int) -> None:
        """Note that there is nothing more to be read."""
        self.go(steady_ns)
        if not self._at_end:
            self._begin(steady_ns)
            self._at_end = True

    def stand(self, steady_ns: int) -> None:
        """Note that it is not read until further notice."""
        self._ran_ns, self._since_ns, self._stands = self._ran(steady_ns), steady_ns, True

    def go(self, steady_ns: int) -> None:
        """Note that it is read again."""
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
    """What tables hold and have counted, as ``TraceTable`` tells it."""

    bytes: int = 0
    open: int = 0
    waiting_for_root: int = 0
    orphans: int = 0
    late: int = 0
    duplicates: int = 0
    revisions: int = 0

    @classmethod
    def of(cls, table: TraceTable) -> Self:
        """Return that of one table."""
        return cls(*(getattr(table, name) for name in cls._fields))

    def plus(self, other: Self) -> Self:
        """Return that of both."""
        return type(self)(*map(add, self, other))


class OpenStream(NamedTuple):
    """What is open of one stream.

    Attributes:
        copies: those of units that another process took, by request; they wait for room, and for nothing else.
    """

    table: TraceTable
    clock: StreamClock
    copies: deque[Sequence[WireSpan]]

    def holds(self, trace_id: bytes) -> bool:
        """Whether something of a trace is to come."""
        if self.table.holds(trace_id):
            return True
        return bool(self.copies) and any(span.trace_id == trace_id for spans in self.copies for span in spans)


class Streams:
    """The streams that are being read, such as the partitions of a topic. Span thread, but for the numbers.

    Another process can read a stream again, so a stream that is given up is forgotten with all that is open of it, uncounted.

    Attributes:
        room: how many units may be handed on now; there are always some that may, where nobody sets it.
        at_end: called when the scorer ends: before it waits for what is being scored, and again when it waits no more.
    """

    def __init__(self) -> None:
        self.room: Callable[[], int] = lambda: _NO_LIMIT
        self.at_end: Callable[[], None] = lambda: None
        self._streams: dict[Hashable, OpenStream] = {}
        self._gone = TableCounts()

    @property
    def bytes(self) -> int:
        """Of the spans that wait in all tables. Any thread."""
        return sum([table.bytes for table in self._tables()]) if self._streams else 0

    @property
    def open(self) -> int:
        """Traces of all tables. Any thread."""
        return sum([table.open for table in self._tables()]) if self._streams else 0

    def begin(self, name: Hashable, table: TraceTable, now_ns: int) -> None:
        """Read a stream from now on; what was known of one of its name is forgotten."""
        self._streams[name] = OpenStream(table, StreamClock(now_ns), deque())

    def end(self, name: Hashable) -> int:
        """Forget a stream; return how many traces were open."""
        stream = self._streams.pop(name, None)
        if stream is None:
            return 0
        counted = TableCounts.of(stream.table)
        self._gone = self._gone.plus(counted._replace(bytes=0, open=0, waiting_for_root=0))
        return counted.open + len(stream.copies)

    def get(self, name: Hashable) -> OpenStream | None:
        """Return a stream; None where it is not read."""
        return self._streams.get(name)

    def of(self, key: UnitKey) -> Hashable:
        """Return the name of the stream from which a unit was read; None if no stream remembers its trace."""
        trace_id = key.trace_id.to_bytes(16)
        return next((name for name, stream in self._streams.items() if stream.table.knows(trace_id)), None)

    def read(self, read: Sequence[StreamPosition], now_ns: int) -> tuple[OpenStream | None, int]:
        """Return the stream of which these were read, in their order, and its time; None where it is read no more."""
        stream = self._streams.get(read[0].stream)
        if stream is None:
            return None, now_ns
        stream.clock.read(read[0].log_ns, now_ns)
        stream.clock.read(max([message.log_ns for message in read]), now_ns)
        return stream, stream.clock.now_ns(now_ns)

    def gathered(self, table: TraceTable) -> TableCounts:
        """Return what all streams, gone ones too, and one other table hold and have counted. Any thread."""
        return reduce(TableCounts.plus, (TableCounts.of(each) for each in (table, *self._tables())), self._gone)

    def waiting(self) -> set[UnitKey]:
        """Return the units whose root is there and that were not handed on."""
        return {key for table in self._tables() for key in table.waiting()}

    def due(self, now_ns: int) -> Iterator[ClosedUnit]:
        """Yield the units that are over, as long as there is room: each is to be handed on before the next is asked for."""
        for table, clock, _ in [*self._streams.values()]:
            yield from table.due(clock.now_ns(now_ns), max(0, self.room()))

    def copies(self) -> Iterator[Sequence[WireSpan]]:
        """Yield the copies of one request after another, likewise."""
        for stream in [*self._streams.values()]:
            while stream.copies and self.room() > 0:
                yield stream.copies.popleft()

    def next_due_ns(self) -> int | None:
        """Return when there is something to do, by the caller's clock; None while nothing waits, or while there is no room."""
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
    """Return the bounds of a configuration: times in nanoseconds."""
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

"""Topic: the partitions that a worker reads, between who reads messages and the scorer: what is taken, settled, handed on.

    read ─▶ taken apart ─▶ OtlpSpans, a stream for each partition ─▶ units ─▶ settled ─▶ spans exported ─▶ committed
                                                                     ├ in a spool: durable ──────────────▶ committed
                                                                     └ the partition goes: handed over, uncommitted

It knows nothing of Kafka: offsets are numbers that grow. One thread reads and calls it; what is open is looked at on the span
thread, to which the offsets belong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, Literal, NamedTuple, Self

from spanscore.capture.otlp.requests import DoorCounts, StreamRead
from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.core.codecs.otlp_request import Taken, UnreadableRequest, taken_apart
from spanscore.core.event_queue import steady_ns
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.protocols import DurableQueue
from spanscore.service.offsets import PartitionOffsets
from spanscore.wiring.build import Line

__all__ = ["Left", "Topic", "read_message"]

_ROOM: Final = 2
"""Reading goes on when half of the queue is free again."""
_TOGETHER: Final = 64
"""Messages that are handed over as one: a millisecond of the span thread, which gives way in between."""
_CALL_S: Final = 10.0
"""For the span thread to look at what is open: milliseconds, unless an exporter of a user blocks it."""
_NO_TRACES: Final[Collection[bytes]] = frozenset()


class Left(NamedTuple):
    """What a partition is left at.

    Attributes:
        offset: up to which all is settled; None = nothing was read of it.
        beyond: settled offsets behind that, ascending.
    """

    offset: int | None
    beyond: Collection[int]

    @classmethod
    def of(cls, offsets: PartitionOffsets, is_open: Callable[[bytes], bool]) -> Self:
        """Return what a partition is left at, if ``is_open`` says of a trace whether something of it is to come."""
        return cls(offsets.advance(is_open), offsets.settled_beyond(is_open))


def read_message(counts: DoorCounts, value: bytes | None, most_bytes: int) -> Taken | None:
    """Return the spans of a message, and count it; None if it is empty, larger than ``most_bytes``, or no request."""
    if not value:
        return None
    counts.came(len(value))
    try:
        if len(value) <= most_bytes:
            return taken_apart(value)
        counts.refuse("too_large")
    except UnreadableRequest:
        counts.refuse("unreadable")
    return None


class Topic:
    """What one worker reads of a topic. The reader's thread, where nothing else is said.

    Args:
        line: of the scorer.
        spans: its receiver.
        most_bytes: of a message; a larger one is passed.
        max_open_age_s: how old a unit becomes at most.
        by_conversation: whether all turns of a conversation are in one partition; else they may be in any.

    Attributes:
        offsets: partition → its offsets, which are the span thread's but for ``oldest_ns``.
        dropped: traces that were open when their partition went, and that whoever has it reads again.
    """

    def __init__(
        self, line: Line, spans: OtlpSpans, *, most_bytes: int, max_open_age_s: float, by_conversation: bool = False
    ) -> None:
        self._line = line
        self._spans = spans
        self._outlives = line.queue.is_durable if isinstance(line.queue, DurableQueue) else _ends_with_us
        self._most_bytes = most_bytes
        self._max_age_ns = int(max_open_age_s * 1e9)
        self._full = False
        self._read: list[StreamRead] = []  # of one partition, to be handed over
        self.offsets: dict[int, PartitionOffsets] = {}
        self._told: Mapping[int, int] = {}
        self._open_at_end: Mapping[int, Collection[bytes]] | None = None
        self._left: dict[int, Left] = {}
        self._flushed: Future[bool] = Future()
        self.dropped = 0
        self._by_conversation = by_conversation
        self._taken_over: dict[int, int] = {}  # partition of which nothing was read yet → since when; the span thread's
        spans.streams.room, spans.streams.at_end = self._room, self._ending
        if by_conversation:
            line.sessions.stream_of = spans.streams.of

    def begin(self, partition: int, *, is_taken_over: bool = False) -> None:
        """Read a partition from now on.

        Args:
            partition: its number.
            is_taken_over: whether others may have read the partition before.
        """
        self.hand_over()
        self._spans.begin_stream(partition, self._max_age_ns)
        self._then(lambda now_ns: self._begin(partition, now_ns, is_taken_over))

    def take(self, partition: int, offset: int, log_ns: int | None, value: bytes | None) -> None:
        """Take a message of a partition that is read. Never raises for what is in it: what cannot be read is counted.

        Args:
            log_ns: when the broker says that it was written; None = it does not.
            value: its body; None = it has none, or was settled by another worker.
        """
        at_ns = steady_ns() if log_ns is None else log_ns
        taken = read_message(self._spans.counts, value, self._most_bytes)
        if taken is None:
            self._then(lambda _: self._note(partition, offset, at_ns, _NO_TRACES))
            return
        arrived = self._spans.read(taken)
        if arrived is not None:
            self._gather(StreamRead(partition, at_ns, arrived, partial(self._note, partition, offset, at_ns)))

    def share(self, why: str) -> None:
        """Note why turns of any conversation may go to other workers; empty = they do not."""
        self._then(lambda now_ns: self._line.sessions.table.share(why, now_ns))

    def hand_over(self) -> None:
        """Hand over what was taken; ``take`` leaves messages of which nobody scores anything for their neighbours."""
        read, self._read = self._read, []
        if read:
            self._spans.hand_over(read)

    def _gather(self, read: StreamRead) -> None:
        if self._read and self._read[0].stream != read.stream:
            self.hand_over()
        self._read.append(read)
        is_heavy = read.arrived.spans or read.arrived.copies
        if is_heavy or len(self._read) >= _TOGETHER:
            self.hand_over()

    def _then(self, work: Callable[[int], None]) -> None:
        self.hand_over()
        self._spans.then(work)

    def set_clock(self, partition: int, what: Literal["reach_end", "stand", "go"]) -> None:
        """Note that a partition was read to its end, is not read, so that nothing of it grows old, or is read again."""

        def tell(now_ns: int) -> None:
            if (stream := self._spans.streams.get(partition)) is not None:
                getattr(stream.clock, what)(now_ns)

        self._then(tell)

    def pressure(self) -> str:
        """Return what there is too much of, so that nothing more is to be read; empty = nothing."""
        full = self._spans.overloaded()
        if full is not None:
            return full
        queue = self._line.queue
        least = queue.capacity // _ROOM if self._full else 1
        self._full = queue.capacity - len(queue) < least or not self._line.lanes.room()
        return "queue" if self._full else ""

    def settled_offsets(self) -> Future[Mapping[int, int]]:
        """Ask up to where each partition is settled, with all its scores exported. Does not block.

        The answer is empty where that has not changed, or where they could not be exported: nothing is to be committed.
        """
        told: Future[Mapping[int, int]] = Future()
        self._line.event_queue.post(lambda: self._tell_settled(told))
        return told

    def not_committed(self, settled: Mapping[int, int]) -> None:
        """Have these told again by ``settled_offsets``."""
        self._line.event_queue.post(lambda: self._told_again(settled))

    @property
    def is_over(self) -> bool:
        """Whether the scorer has begun to end: what was open is forgotten by then, and would look settled. Any thread."""
        return self._open_at_end is not None

    def at_work(self, partitions: Collection[int]) -> bool:
        """Whether a unit of these is being scored, or is on its way out. Blocks."""
        if self.is_over:
            return False
        keys = list[UnitKey]()
        self._on_span_thread(lambda: keys.extend(self._keys_of(partitions)))
        return bool(keys)

    def leave(self, partitions: Collection[int]) -> Mapping[int, Left]:
        """Read these no more: forget what is open, hand over what is being scored. Blocks.

        Returns:
            What they are left at; empty where that is not known, or where scores could not be exported.
        """
        left = dict[int, Left]()
        if self.is_over:
            return left
        self._on_span_thread(lambda: left.update(self._leave(partitions)))
        return left

    def left_at_end(self) -> Mapping[int, Left]:
        """Return what each was left at, when the scorer has ended; empty where its scores were not exported. Any thread."""
        return self._left if self._flushed.done() and _came_through(self._flushed) else {}

    def _on_span_thread(self, work: Callable[[], None]) -> None:
        self._line.span_thread.call(work, _CALL_S)

    # --- the span thread -----------------------------------------------------------------------------------------

    def _begin(self, partition: int, now_ns: int, is_taken_over: bool) -> None:
        self.offsets[partition] = PartitionOffsets()
        if is_taken_over:
            self._taken_over[partition] = now_ns

    def _note(self, partition: int, offset: int, log_ns: int, traces: Collection[bytes]) -> None:
        if partition in self._taken_over:  # what others read was written before this message, and before they left
            since_ns = min(log_ns, self._taken_over.pop(partition))
            self._line.sessions.table.take_over(self._stream(partition), since_ns)
        if (offsets := self.offsets.get(partition)) is not None:
            offsets.read(offset, traces, log_ns)

    def _stream(self, partition: int) -> int | None:
        return partition if self._by_conversation else None

    def _room(self) -> int:
        return min(self._line.lanes.room(), self._line.queue.capacity - len(self._line.queue))

    def _tell_settled(self, told: Future[Mapping[int, int]]) -> None:
        at_work, found = self._traces_at_work(), dict[int, int]()
        for partition, offsets in self.offsets.items():
            offset = offsets.advance(self._is_open(partition, at_work))
            if offset is not None and self._told.get(partition) != offset:
                found[partition] = offset
        if not found:
            told.set_result({})
            return

        def answer(flushed: Future[bool]) -> None:
            through = _came_through(flushed)
            self._told = {**self._told, **found} if through else self._told
            told.set_result(found if through else {})

        self._line.providers.start_flush_of_spans().add_done_callback(answer)

    def _told_again(self, settled: Mapping[int, int]) -> None:
        self._told = {one: offset for one, offset in self._told.items() if settled.get(one) != offset}

    def _leave(self, partitions: Collection[int]) -> Mapping[int, Left]:
        if self.is_over:
            return {}
        at_work = self._traces_at_work()
        left = {
            partition: Left.of(self.offsets[partition], self._is_open(partition, at_work))
            for partition in partitions
            if partition in self.offsets
        }
        self._line.units.give_up(self._keys_of(partitions), steady_ns(), Outcome.DELEGATED)
        for partition in partitions:
            self.dropped += self._spans.streams.end(partition)
            self.offsets.pop(partition, None)
            self._taken_over.pop(partition, None)
            if self._by_conversation:
                self._line.sessions.table.leave(partition)
        self._told = {one: offset for one, offset in self._told.items() if one in self.offsets}
        return left

    def _ending(self) -> None:
        """Forget what is open, as nothing more is read; called again, hand over what is at work, as nobody waits for it."""
        waited = self._open_at_end is not None
        if self._open_at_end is None:
            self._open_at_end = {
                partition: [*filter(self._is_open(partition, ()), offsets.traces())]
                for partition, offsets in self.offsets.items()
            }
            for partition in self.offsets:
                self.dropped += self._spans.streams.end(partition)
        at_work = self._traces_at_work()
        for partition, offsets in self.offsets.items():
            self._left[partition] = Left.of(offsets, at_work.union(self._open_at_end.get(partition, ())).__contains__)
        if waited:
            self._line.units.give_up(self._keys_of(self.offsets), steady_ns(), Outcome.DELEGATED)
            self._flushed = self._line.providers.start_flush_of_spans()

    def _is_open(self, partition: int, at_work: Collection[bytes]) -> Callable[[bytes], bool]:
        """Return what says whether something of a trace is to come, or at work."""
        stream = self._spans.streams.get(partition)
        if stream is None:
            return at_work.__contains__
        holds = stream.holds
        return lambda trace: trace in at_work or holds(trace)

    def _traces_at_work(self) -> set[bytes]:
        return {key.trace_id.to_bytes(16) for key in self._line.units.waited_for(self._outlives)}

    def _keys_of(self, partitions: Collection[int]) -> list[UnitKey]:
        read = [self.offsets[partition] for partition in partitions if partition in self.offsets]
        traces = {trace for offsets in read for trace in offsets.traces()}
        keys = [key for key in self._line.units.in_flight if key.trace_id.to_bytes(16) in traces]
        return [key for key in keys if not self._outlives(key)]  # of what does, nothing is lost with the partition


def _ends_with_us(_: UnitKey) -> bool:
    """Say of each unit that waits in memory that it does."""
    return False


def _came_through(flushed: Future[bool]) -> bool:
    return not flushed.cancelled() and flushed.exception() is None and flushed.result()

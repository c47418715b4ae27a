"""The partitions of a topic that a worker reads, and the offset up to which all messages of a partition are settled.

    read ─▶ parsed ─▶ OtlpSpans, a stream for each partition ─▶ units ─▶ settled ─▶ spans exported ─▶ committed
                                                                ├ in a spool: durable ──────────────▶ committed
                                                                └ partition revoked: handed over, uncommitted

This module does not depend on Kafka: offsets are increasing numbers. One thread reads and calls the topic; open traces are
looked up on the span thread, which owns the offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass
from functools import partial
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, Self

from spanscore.capture.otlp.requests import EndpointCounts, StreamMessage
from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.core.codecs.otlp_request import ParsedRequest, UnreadableRequest, parse_request
from spanscore.core.event_queue import steady_ns
from spanscore.core.score import Outcome
from spanscore.core.span import UnitKey
from spanscore.protocols import DurableQueue, Metric
from spanscore.wiring.build import Pipeline

_MOST_CHARACTERS: Final = 3_000
"""Maximum length of a text of ranges: brokers accept 4,096 bytes of metadata. The messages of omitted ranges are read again."""
_MOST_OFFSETS: Final = 1_000_000
"""Maximum number of offsets in a text of ranges, because any member of the group may have written the text."""


class PartitionOffsets:
    """The messages of one partition that were read, in order, and may be unsettled. Owned by one thread.

    A message is settled when no trace of it is open any more. The offset of the oldest unsettled message is committed: after
    a crash the next process reads from that offset, and loses no message. If a partition is handed over in an orderly way, the
    metadata of the commit list the later settled messages, as in Confluent's Parallel Consumer, so that these are not scored
    twice.

    Attributes:
        position: offset after the last message that was read; None = no message was read.
    """

    def __init__(self) -> None:
        self._open: deque[tuple[int, Collection[bytes], int]] = deque()
        self.position: int | None = None

    def __len__(self) -> int:
        """Number of messages that may be unsettled."""
        return len(self._open)

    @property
    def oldest_ns(self) -> int | None:
        """Time at which the oldest unsettled message was written, Unix ns; None = all are settled. Thread-safe."""
        try:
            return self._open[0][2]
        except IndexError:
            return None

    def read(self, offset: int, traces: Collection[bytes], log_ns: int) -> None:
        """Record a message with spans of these traces, written at ``log_ns``; offsets increase, and may have gaps.

        A message without traces is settled together with the messages before it.
        """
        self._open.append((offset, traces, log_ns))
        self.position = offset + 1

    def advance(self, is_open: Callable[[bytes], bool]) -> int | None:
        """Drop settled messages at the front, and return the offset that may be committed; None = no message was read.

        ``is_open`` returns whether spans or scores of a trace are pending. Each message is dropped once, and only the first
        remaining one is checked again: O(1) per read message.
        """
        waiting = self._open
        while waiting and not any(map(is_open, waiting[0][1])):
            waiting.popleft()
        return waiting[0][0] if waiting else self.position

    def settled_beyond(self, is_open: Callable[[bytes], bool]) -> list[int]:
        """Return the offsets of settled messages after the one to commit, in their order."""
        return [offset for offset, traces, _ in self._open if not any(map(is_open, traces))]

    def traces(self) -> set[bytes]:
        """Return the traces of all unsettled messages."""
        return {trace for _, traces, _ in self._open for trace in traces}


def ranges_of(offsets: Collection[int], base: int) -> str:
    """Return ascending offsets relative to a base, as ``0-4,7``; if there are too many, only the first."""
    runs = list[tuple[int, int]]()
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], offset
        else:
            runs.append((offset, offset))
    text = ",".join(f"{first - base}-{last - base}" if first < last else f"{first - base}" for first, last in runs)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS].rpartition(",")[0]


def ranges_in(text: str, base: int) -> set[int]:
    """Return the offsets in a text from ``ranges_of``; an empty set for any other text."""
    offsets = set[int]()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not last)):
            return set()
        if len(offsets) + int(last or first) - int(first) >= _MOST_OFFSETS:
            return set()
        offsets.update(range(base + int(first), base + int(last or first) + 1))
    return offsets


_KIND: Final = "spanscore"
_VERSION: Final = "1"


class CommitNote(NamedTuple):
    """The metadata of a commit, for the next worker of a partition: ``spanscore 1 <configuration> <ranges>``.

    Attributes:
        configuration: fingerprint of the metrics that read the partition; empty = unknown.
        settled: settled offsets after the committed offset.
    """

    configuration: str
    settled: Collection[int] = ()

    def text(self, offset: int) -> str:
        """Return the metadata of a commit of that offset, less than 4,096 bytes."""
        return f"{_KIND} {_VERSION} {self.configuration} {ranges_of(self.settled, offset)}"

    @classmethod
    def of(cls, text: str | None, offset: int) -> Self:
        """Return the note in a commit's metadata; an empty note for metadata of another kind or version."""
        words = (text or "").split(" ")
        if len(words) != len(cls._fields) + 2 or words[:2] != [_KIND, _VERSION]:
            return cls("")
        return cls(words[2], ranges_in(words[3], offset))


def fingerprint_of(metrics: Iterable[Metric]) -> str:
    """Return 8 hex digits from names and versions; they differ between configurations with different scores."""
    versions = sorted(f"{metric.name} {metric.version}" for metric in metrics)
    return blake2b("\n".join(versions).encode(), digest_size=4).hexdigest()


_FREE_SHARE: Final = 0.5
"""Share of the queue that must be free before reading resumes."""
_BATCH: Final = 64
"""Maximum number of messages that are handed over together. The span thread reads them in a millisecond, without a break."""
_CALL_S: Final = 10.0
"""Timeout of a call on the span thread, in s. The call takes milliseconds unless a user's exporter blocks the thread."""


class PartitionEnd(NamedTuple):
    """The final offsets of a revoked partition.

    Attributes:
        offset: offset up to which all messages are settled; None = no message was read.
        beyond: settled offsets after that, ascending.
    """

    offset: int | None
    beyond: Collection[int]

    @classmethod
    def of(cls, offsets: PartitionOffsets, is_open: Callable[[bytes], bool]) -> Self:
        """Return the end of a partition; ``is_open``: returns whether spans or scores of a trace are pending."""
        return cls(offsets.advance(is_open), offsets.settled_beyond(is_open))


def read_message(counts: EndpointCounts, value: bytes | None, most_bytes: int) -> ParsedRequest | None:
    """Return the spans of a message, and count it; None if it is empty, larger than ``most_bytes``, or not a request."""
    if not value:
        return None
    counts.count_request(len(value))
    try:
        if len(value) <= most_bytes:
            return parse_request(value)
        counts.refuse("too_large")
    except UnreadableRequest:
        counts.refuse("unreadable")
    return None


@dataclass(eq=False, repr=False)
class Topic:
    """The messages of a topic that one worker reads. For the reader's thread, unless a method names another thread.

    Attributes:
        pipeline: pipeline of the scorer.
        spans: receiver of the scorer.
        most_bytes: longest accepted message, in bytes; larger messages are skipped.
        max_open_age_s: age of the oldest unit, in s, at which reading pauses.
        by_conversation: whether all turns of a conversation are in one partition; otherwise a turn may be in any partition.
        offsets: partition → its offsets, owned by the span thread except for ``oldest_ns``.
        dropped: number of traces that were open at the revocation of their partition; the next worker reads them again.
    """

    pipeline: Pipeline
    spans: OtlpSpans
    _: KW_ONLY
    most_bytes: int
    max_open_age_s: float
    by_conversation: bool = False

    def __post_init__(self) -> None:
        queue, streams = self.pipeline.queue, self.spans.streams
        self._is_durable = queue.is_durable if isinstance(queue, DurableQueue) else lambda key: False
        self._is_full = False
        self._batch: list[StreamMessage] = []  # messages of one partition that are not handed over yet
        self.offsets: dict[int, PartitionOffsets] = {}
        self._reported: Mapping[int, int] = {}  # partition → the offset that settled_offsets returned last
        self._open_at_end: Mapping[int, Collection[bytes]] | None = None
        """Partition → traces that were open, and dropped, when the scorer began to end; None = it has not begun to end."""
        self._final_ends: dict[int, PartitionEnd] = {}
        self._last_flush: Future[bool] = Future()
        self.dropped = 0
        self._taken_over: dict[int, int] = {}  # partition without a read message → its start; owned by the span thread
        streams.free_places, streams.on_shutdown = self._free_places, self._on_shutdown
        if self.by_conversation:
            self.pipeline.sessions.stream_of = streams.name_of

    def begin(self, partition: int, *, is_taken_over: bool = False) -> None:
        """Start to read a partition; ``is_taken_over``: other workers may have read the partition before."""
        self.hand_over()
        self.spans.begin_stream(partition, int(self.max_open_age_s * 1e9))
        self._post(lambda now_ns: self._begin(partition, now_ns, is_taken_over))

    def take(self, partition: int, offset: int, log_ns: int | None, value: bytes | None) -> None:
        """Accept a message of a partition. A message that cannot be parsed is counted, and raises no error.

        Args:
            log_ns: time of the message by its broker; None = unknown.
            value: body; None if the message has no body, or another worker has settled it.
        """
        at_ns = steady_ns() if log_ns is None else log_ns
        request = read_message(self.spans.counts, value, self.most_bytes)
        if request is None:
            self._post(lambda _: self._record(partition, offset, at_ns, ()))
            return
        arrived = self.spans.classify_message(request)
        if arrived is None:
            return
        if self._batch and self._batch[0].stream != partition:
            self.hand_over()
        self._batch.append(StreamMessage(partition, at_ns, arrived, partial(self._record, partition, offset, at_ns)))
        may_be_scored = arrived.spans or arrived.copies
        if may_be_scored or len(self._batch) >= _BATCH:
            self.hand_over()

    def set_shared(self, reason: str) -> None:
        """Record why turns of a conversation may reach other workers; empty = they do not."""
        self._post(lambda now_ns: self.pipeline.sessions.table.mark_shared(reason, now_ns))

    def hand_over(self) -> None:
        """Hand over the accepted messages. ``take`` keeps messages without scored spans until further messages arrive."""
        batch, self._batch = self._batch, []
        if batch:
            self.spans.accept_messages(batch)

    def _post(self, work: Callable[[int], None]) -> None:
        """Run work with the time on the span thread, after the messages that were accepted before."""
        self.hand_over()
        self.spans.run_in_order(work)

    def set_clock(self, partition: int, what: Literal["reach_end", "stop", "go"]) -> None:
        """Record that a partition was read to its end (``reach_end``), or stop or restart the clock of its units."""

        def set_on_span_thread(now_ns: int) -> None:
            if (stream := self.spans.streams.get(partition)) is not None:
                getattr(stream.clock, what)(now_ns)

        self._post(set_on_span_thread)

    def pressure(self) -> str:
        """Return the reason why reading must pause; empty if it may continue."""
        overload = self.spans.overloaded()
        if overload is not None:
            return overload
        queue = self.pipeline.queue
        least_free = int(queue.capacity * _FREE_SHARE) if self._is_full else 1
        self._is_full = queue.capacity - len(queue) < least_free or not self.pipeline.account_quotas.room()
        return "queue" if self._is_full else ""

    def settled_offsets(self) -> Future[Mapping[int, int]]:
        """Request the offset up to which each partition is settled, with all its scores exported. Does not block.

        The result is empty if no offset has changed, or if scores could not be exported, so that no commit is due.
        """
        answer: Future[Mapping[int, int]] = Future()
        self.pipeline.event_queue.post(lambda: self._report_settled(answer))
        return answer

    def commit_failed(self, settled: Mapping[int, int]) -> None:
        """Let ``settled_offsets`` return these offsets again."""

        def forget() -> None:
            self._reported = dict(self._reported.items() - settled.items())

        self.pipeline.event_queue.post(forget)

    def is_busy(self, partitions: Collection[int]) -> bool:
        """Return whether a unit of these partitions is being scored or exported. Blocks."""
        if self._open_at_end is not None:  # open traces were dropped, and would look settled
            return False
        keys = list[UnitKey]()
        self.pipeline.span_thread.call(lambda: keys.extend(self._keys_of(partitions)), _CALL_S)
        return bool(keys)

    def leave(self, partitions: Collection[int]) -> Mapping[int, PartitionEnd]:
        """Leave partitions: drop open traces, and hand over units in scoring. Blocks.

        Returns:
            Their ends; empty if they are unknown.
        """
        left = dict[int, PartitionEnd]()
        if self._open_at_end is not None:  # open traces were dropped, and would look settled
            return left
        self.pipeline.span_thread.call(lambda: left.update(self._leave(partitions)), _CALL_S)
        return left

    def final_ends(self) -> Mapping[int, PartitionEnd]:
        """Return the end of each partition after the end of the scorer; empty if its scores were not exported. Thread-safe."""
        return self._final_ends if self._last_flush.done() and _was_exported(self._last_flush) else {}

    # --- the span thread -----------------------------------------------------------------------------------------

    def _begin(self, partition: int, now_ns: int, is_taken_over: bool) -> None:
        self.offsets[partition] = PartitionOffsets()
        if is_taken_over:
            self._taken_over[partition] = now_ns

    def _record(self, partition: int, offset: int, log_ns: int, traces: Collection[bytes]) -> None:
        if partition in self._taken_over:  # other workers read earlier messages
            since_ns = min(log_ns, self._taken_over.pop(partition))
            self.pipeline.sessions.table.mark_read_elsewhere(partition if self.by_conversation else None, since_ns)
        if (offsets := self.offsets.get(partition)) is not None:
            offsets.read(offset, traces, log_ns)

    def _free_places(self) -> int:
        return min(self.pipeline.account_quotas.room(), self.pipeline.queue.capacity - len(self.pipeline.queue))

    def _report_settled(self, answer: Future[Mapping[int, int]]) -> None:
        in_scoring, settled = self._traces_in_scoring(), dict[int, int]()
        for partition, offsets in self.offsets.items():
            offset = offsets.advance(self._is_open(partition, in_scoring))
            if offset is not None and self._reported.get(partition) != offset:
                settled[partition] = offset
        if not settled:
            answer.set_result({})
            return

        def answer_after(flushed: Future[bool]) -> None:
            is_exported = _was_exported(flushed)
            self._reported = {**self._reported, **settled} if is_exported else self._reported
            answer.set_result(settled if is_exported else {})

        self.pipeline.providers.start_flush_of_spans().add_done_callback(answer_after)

    def _leave(self, partitions: Collection[int]) -> Mapping[int, PartitionEnd]:
        if self._open_at_end is not None:  # open traces were dropped, and would look settled
            return {}
        in_scoring = self._traces_in_scoring()
        left = {
            partition: PartitionEnd.of(self.offsets[partition], self._is_open(partition, in_scoring))
            for partition in partitions
            if partition in self.offsets
        }
        self.pipeline.units.give_up(self._keys_of(partitions), steady_ns(), Outcome.DELEGATED)
        for partition in partitions:
            self.dropped += self.spans.streams.end(partition)
            self.offsets.pop(partition, None)
            self._taken_over.pop(partition, None)
            if self.by_conversation:
                self.pipeline.sessions.table.mark_moved(partition)
        self._reported = {
            partition: offset for partition, offset in self._reported.items() if partition in self.offsets
        }
        return left

    def _on_shutdown(self) -> None:
        """Drop open traces at the first call, after the end of reading. At the second, after the drain, hand over the units."""
        is_drained = self._open_at_end is not None
        if self._open_at_end is None:
            self._open_at_end = {
                partition: [*filter(self._is_open(partition, ()), offsets.traces())]
                for partition, offsets in self.offsets.items()
            }
            for partition in self.offsets:
                self.dropped += self.spans.streams.end(partition)
        in_scoring = self._traces_in_scoring()
        for partition, offsets in self.offsets.items():
            unsettled = in_scoring.union(self._open_at_end.get(partition, ()))
            self._final_ends[partition] = PartitionEnd.of(offsets, unsettled.__contains__)
        if is_drained:
            self.pipeline.units.give_up(self._keys_of(self.offsets), steady_ns(), Outcome.DELEGATED)
            self._last_flush = self.pipeline.providers.start_flush_of_spans()

    def _is_open(self, partition: int, in_scoring: Collection[bytes]) -> Callable[[bytes], bool]:
        """Return a predicate for a trace: whether spans or scores of it are pending."""
        stream = self.spans.streams.get(partition)
        if stream is None:
            return in_scoring.__contains__
        return lambda trace: trace in in_scoring or stream.holds(trace)

    def _traces_in_scoring(self) -> set[bytes]:
        return {key.trace_id.to_bytes(16) for key in self.pipeline.units.unexported_units(self._is_durable)}

    def _keys_of(self, partitions: Collection[int]) -> list[UnitKey]:
        read = [self.offsets[partition] for partition in partitions if partition in self.offsets]
        traces = {trace for offsets in read for trace in offsets.traces()}
        keys = [key for key in self.pipeline.units.hold.in_flight if key.trace_id.to_bytes(16) in traces]
        return [key for key in keys if not self._is_durable(key)]  # other units survive the loss of the partition


def _was_exported(flushed: Future[bool]) -> bool:
    return not flushed.cancelled() and flushed.exception() is None and flushed.result()

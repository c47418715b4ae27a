"""Copies messages of a Kafka topic to another topic, keyed by conversation, for ``spanscore worker --rekey``.

    read ─▶ waits by trace ─(the trace is quiet)─▶ its conversation is the key ─▶ written ─▶ acknowledged ─▶ committed

The spans of a trace wait for each other, because any span may name the conversation. Spans are written unchanged, with the
times of their messages. Rejected messages are written again every second.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Final, Literal, NamedTuple

from spanscore import semconv
from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.capture.otlp.streams import StreamClock, trace_bounds
from spanscore.config.tree import Configuration
from spanscore.core.codecs.otlp_request import WireSpan, parse_request, request_of, span_data_of
from spanscore.core.codecs.text import as_text
from spanscore.core.event_queue import steady_ns
from spanscore.core.log import log_internal_error
from spanscore.durable.confluent_kafka_carrier import KafkaCarrier
from spanscore.service.kafka_topic import PartitionEnd, PartitionOffsets, read_message

_REMEMBERED: Final = 100_000
"""Number of traces whose key is remembered, for late spans."""
_CLOSE_S: Final = 5.0
"""Time for the brokers to acknowledge the last messages, in s."""
_MESSAGE_BYTES: Final = 400
"""Memory of a waiting message besides its body."""
_MS: Final = 1_000_000


class _Message(NamedTuple):
    """The spans of one trace in one message."""

    trace_id: bytes
    partition: int
    at_ns: int  # time of reading, by the clock of the partition
    written_ms: int  # time of the message; 0 = unknown
    has_root: bool  # a span of it has no parent in its process
    body: bytes  # the spans as an OTLP request


class RekeyedTopic:
    """The messages of a topic on their way to another topic: replaces ``Topic``, with the same methods, in a copying worker.

    The methods are for the reader's thread, unless a method names another thread.

    Args:
        carrier: writes to the other topic.
        spans: a receiver without units. Its normalizers find the conversation, and ``/status`` has its counts.
        settings: a trace is quiet after ``units.idle_timeout``, a trace without a root after ``units.orphan_wait``.

    Attributes:
        offsets: partition → its offsets; any thread may read ``oldest_ns``.
        dropped: number of traces that waited at the revocation of their partition; the next reader writes them.
    """

    def __init__(self, carrier: KafkaCarrier, spans: OtlpSpans, settings: Configuration) -> None:
        assert settings.kafka is not None
        self._carrier, self._spans, self._bounds = carrier, spans, trace_bounds(settings.units)
        self._most_bytes, self._max_age_ns = settings.serve.limits.inflated, int(settings.kafka.max_open_age * 1e9)
        self._clocks: dict[int, StreamClock] = {}
        self._waiting: dict[bytes, list[_Message]] = defaultdict(list)
        self._unanswered: Counter[bytes] = Counter()  # trace → number of written messages without an acknowledgement
        self._answers: deque[tuple[_Message, str | None]] = deque()  # from the carrier's thread
        self._keys: dict[bytes, str] = {}
        self._bytes = self._sent = self._refused = self.dropped = 0
        self.offsets: dict[int, PartitionOffsets] = {}
        spans.forward = lambda: (self._sent, self._refused, carrier.state())

    def begin(self, partition: int, *, is_taken_over: bool = False) -> None:
        """Start to read a partition; earlier readers of the partition make no difference."""
        self.offsets[partition], self._clocks[partition] = PartitionOffsets(), StreamClock(steady_ns())

    def take(self, partition: int, offset: int, log_ns: int | None, value: bytes | None) -> None:
        """Accept a message. A message that cannot be parsed is counted, and raises no error."""
        now_ns, clock = steady_ns(), self._clocks[partition]
        at_ns = now_ns if log_ns is None else log_ns
        clock.read(at_ns, now_ns)
        request = read_message(self._spans.counts, value, self._most_bytes)
        traces = defaultdict[bytes, list[WireSpan]](list)
        for span in () if request is None else request.spans:
            traces[span.trace_id].append(span)
        for trace_id, spans in traces.items():
            body = value if value and len(traces) == 1 else request_of((span.origin, span.raw) for span in spans)
            has_root = any(not span.parent_id or span.parent_is_remote for span in spans)
            self._wait(_Message(trace_id, partition, clock.now_ns(now_ns), (log_ns or 0) // _MS, has_root, body))
        self.offsets[partition].read(offset, traces.keys(), at_ns)

    def hand_over(self) -> None:
        """Note the messages that the brokers have acknowledged or rejected."""
        while self._answers:
            message, reason = self._answers.popleft()
            self._bytes -= len(message.body) + _MESSAGE_BYTES
            self._unanswered[message.trace_id] -= 1
            if not self._unanswered[message.trace_id]:
                del self._unanswered[message.trace_id]
            self._sent, self._refused = self._sent + (reason is None), self._refused + (reason is not None)
            if reason is not None and message.partition in self._clocks:
                self._wait(message)

    def set_clock(self, partition: int, what: Literal["reach_end", "stop", "go"]) -> None:
        """Note that a partition was read to its end, is not read, or is read again."""
        getattr(self._clocks[partition], what)(steady_ns())

    def pressure(self) -> str:
        """Return ``bytes`` if too many spans wait to read more; otherwise an empty text."""
        return "bytes" if self._bytes >= self._bounds.bytes or len(self._waiting) >= self._bounds.traces else ""

    def settled_offsets(self) -> Future[Mapping[int, int]]:
        """Write the quiet traces, and return the offset up to which each partition is settled."""
        now_ns = {partition: clock.now_ns(steady_ns()) for partition, clock in self._clocks.items()}
        for trace_id, messages in [*self._waiting.items()]:
            at_ns, has_root = now_ns[messages[-1].partition], any(message.has_root for message in messages)
            wait_ns = self._bounds.quiet_ns if has_root else self._bounds.orphan_wait_ns
            if at_ns - messages[-1].at_ns >= wait_ns or at_ns - messages[0].at_ns >= self._max_age_ns:
                self._write(trace_id)
        settled = ((partition, offsets.advance(self._is_open)) for partition, offsets in self.offsets.items())
        answer = Future[Mapping[int, int]]()
        answer.set_result({partition: offset for partition, offset in settled if offset is not None})
        return answer

    def commit_failed(self, settled: Mapping[int, int]) -> None:
        """Do nothing, because ``settled_offsets`` returns every offset each time."""

    def is_busy(self, partitions: Collection[int]) -> bool:
        """Return whether a message of these partitions has no acknowledgement yet."""
        self.hand_over()
        return any(trace in self._unanswered for partition in partitions for trace in self.offsets[partition].traces())

    def leave(self, partitions: Collection[int]) -> Mapping[int, PartitionEnd]:
        """Leave partitions: drop their waiting messages, which are read again, and return their ends."""
        self.hand_over()
        left = {partition: PartitionEnd.of(self.offsets[partition], self._is_open) for partition in partitions}
        for partition in partitions:
            del self.offsets[partition], self._clocks[partition]
        waiting, self._waiting = self._waiting, defaultdict(list)
        for message in chain.from_iterable(waiting.values()):
            self._bytes -= len(message.body) + _MESSAGE_BYTES
            if message.partition in self._clocks:
                self._wait(message)
        self.dropped += len(waiting) - len(self._waiting)
        return left

    def final_ends(self) -> Mapping[int, PartitionEnd]:
        """Wait for the brokers, some seconds at most, and return the end of each partition. Call on the main thread."""
        self._carrier.close(_CLOSE_S)
        self.hand_over()
        return {partition: PartitionEnd.of(offsets, self._is_open) for partition, offsets in self.offsets.items()}

    def _is_open(self, trace_id: bytes) -> bool:
        return trace_id in self._waiting or trace_id in self._unanswered

    def _wait(self, message: _Message) -> None:
        self._waiting[message.trace_id].append(message)
        self._bytes += len(message.body) + _MESSAGE_BYTES

    def _write(self, trace_id: bytes) -> None:
        messages = self._waiting.pop(trace_id)
        if trace_id not in self._keys:
            if len(self._keys) >= _REMEMBERED:
                self._keys.clear()
            spans = [span for message in messages for span in parse_request(message.body).spans]
            spans.sort(key=lambda span: bool(span.parent_id))  # the topmost span first
            self._keys[trace_id] = next(filter(None, map(self._conversation, spans)), trace_id.hex())
        for message in messages:
            self._unanswered[trace_id] += 1
            on_delivery = partial(self._on_delivery, message)
            self._carrier.produce(self._keys[trace_id], message.body, on_delivery, message.written_ms)

    def _on_delivery(self, message: _Message, reason: str | None) -> None:
        self._answers.append((message, reason))

    def _conversation(self, span: WireSpan) -> str:
        try:
            read = self._spans.translator.translate(span_data_of(span))
        except Exception as error:  # noqa: BLE001  (its bytes are no span, or a user's translation raises)
            log_internal_error("read a span", error)
            return ""
        return as_text((read and read.attributes.get(semconv.CONVERSATION_ID)) or "")

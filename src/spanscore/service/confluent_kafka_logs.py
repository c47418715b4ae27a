"""Reads the log records of a second Kafka topic, which have the content of the spans that a worker reads.

A *log partition* is a partition of the topic with log records; a *span partition* is an assigned partition of the topic with
spans. Log messages have other keys than span messages, or no key, so the records of a trace may be in any log partition. Each
worker therefore reads all log partitions, outside its group, and commits no offsets. The two topics are aligned by the
timestamps of their messages:

    log partition   ──────────────────●──▶ paused if it is too far ahead of the slowest span partition (``_AHEAD_NS``)
                                           and the memory for records is half full
    span partition  ──────●──▶ a message waits until all log partitions are read to ``units.idle_timeout`` after its
                               timestamp, or to their end

A newly assigned span partition may start with older spans. If the records of these spans are no longer kept, all log partitions
are read again from ``units.orphan_wait`` before the partition's first message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from math import inf
from threading import Event
from time import monotonic, time_ns
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.capture.otlp.streams import StreamClock
from spanscore.config.durable import KafkaSettings
from spanscore.config.tree import Configuration
from spanscore.core.codecs.otlp_span import MAY_HOLD_CONTENT, content_in_logs
from spanscore.core.event_queue import steady_ns
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.threads import start_daemon
from spanscore.errors import SourceUnavailable
from spanscore.service.confluent_kafka_member import (
    ASK_S,
    NS_PER_MS,
    KafkaMessage,
    consumer_config,
    problem_of,
)

_AT_ONCE: Final = 10
"""Messages of one poll; log partitions are paused only between polls. A message has up to 1 MB of records."""
_POLL_S: Final = 0.1
_LIST_S: Final = 10.0
"""Seconds between two requests for the number of log partitions, because a topic may grow."""
_FRESH_S: Final = 0.5
"""Seconds for which ``_covered_ns`` is valid."""
_AHEAD_NS: Final = 5_000_000_000
"""Lead over the spans and ``units.idle_timeout``, in ns. Paused log partitions are resumed at this lead; log partitions are
paused above twice this lead."""
_FILLED: Final = 0.5
"""Filled share of the memory for records up to which no log partition is paused."""
_AGAIN_S: Final = 1.0
"""Seconds of pause after a failure."""


class LogsTopic:
    """Reads ``kafka.logs_topic`` on a separate thread; without a name it does nothing.

    Args:
        name: name of the topic; None = no topic is read.
        settings: a configuration with the section ``kafka``.
        spans: receiver of the spans, which keeps the records until their spans are read.
        at_end: called with a span partition after its last message was passed on.

    Attributes:
        fault: reason why log partitions are not read; empty if they are read.
        waiting: span partition → messages that wait for records; None in the list marks the end of the partition.
    """

    def __init__(
        self, name: str | None, settings: Configuration, spans: OtlpSpans, at_end: Callable[[int], None]
    ) -> None:
        assert settings.kafka is not None
        self.name = name
        self.fault = ""
        self._kafka: KafkaSettings = settings.kafka.model_copy(update={"topic": self.name or ""})
        self._spans = spans
        self._most_bytes = settings.serve.limits.inflated
        self._quiet_ns = int(settings.units.idle_timeout * 1e9)
        self._wait_ns = int(settings.units.orphan_wait * 1e9)
        self._at_end = at_end
        self._stopping = Event()
        self.waiting: dict[int, deque[KafkaMessage | None]] = {}
        self._newest: dict[int, int] = {}  # span partition → timestamp of the latest message that was passed on
        self._ended: set[int] = set()  # span partitions that are read to their end
        self._read: dict[int, tuple[int, int]] = {}  # log partition → timestamp up to which it was read, next offset
        self._read_to_end: set[int] = set()  # log partitions
        self._paused: set[int] = set()  # log partitions
        self._restarts = deque[int]()  # timestamps from which all log partitions must be read again
        self._restarted_ns = 0  # timestamp from which they were last read again
        self._until_ns = -inf  # timestamp up to which the spans need records
        self._covered_ns = -inf  # timestamp up to which all records have been read; −inf = unknown
        self._listed_s = self._covered_s = 0.0  # monotonic times: log partitions listed; _covered_ns updated
        self._must_check_ends = True  # whether an error occurred since the end offsets were requested
        self._clock = StreamClock(steady_ns())
        if self.name is not None:
            # The receiver keeps records for twice ``units.orphan_wait``, by a clock that stops while spans are unread.
            spans.logs.keep_ns, spans.logs.clock = 2 * self._wait_ns, lambda: self._clock.now_ns(steady_ns())

    # --- called on the thread that polls span partitions ---------------------------------------------------------

    def start(self) -> None:
        """Start to read all log partitions from twice ``units.orphan_wait`` before now. Does not block.

        Raises:
            SourceUnavailable: no thread can be started.
        """
        if self.name is None:
            return
        self._restarts.append(time_ns() - 2 * self._wait_ns)
        if start_daemon(self._run, "spanscore-kafka-logs") is None:
            raise SourceUnavailable("kafka: no thread can be started to read logs: is the limit of processes reached?")

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()

    def yield_ready(self, messages: Iterator[KafkaMessage], pressure: str) -> Iterator[KafkaMessage]:
        """Yield the messages of span partitions whose records have been read; other messages wait, in the order of offsets.

        While there is ``pressure``, a reason why span partitions are not read, waiting messages keep waiting.
        """
        if self.name is None:
            yield from messages
            return
        for partition in () if pressure else [*self.waiting]:
            yield from self._release(partition)
        for message in messages:
            if message.partition not in self._newest:
                from_ns = (message.written_ns or 0) - self._wait_ns
                self._newest[message.partition] = from_ns
                if from_ns < self._kept_from_ns():  # the records of its first spans are no longer kept
                    self._restarts.append(from_ns)
            if message.partition in self.waiting or not self._has_records(message.written_ns or 0):
                self.waiting.setdefault(message.partition, deque()).append(message)
            else:
                yield self._record_newest(message)

    def note_end(self, partition: int) -> None:
        """Record that a span partition was fetched to its end."""
        if partition in self.waiting:
            self.waiting[partition].append(None)
        else:
            self._ended.add(partition)
            self._at_end(partition)

    def forget(self, partitions: Collection[int], *, fetched_again: bool = False) -> None:
        """Forget the waiting messages of span partitions. With ``fetched_again`` the positions of the partitions are kept."""
        for partition in partitions:
            self.waiting.pop(partition, None)
            if not fetched_again:
                self._newest.pop(partition, None)
                self._ended.discard(partition)

    def request_records(self, pressure: str) -> Set[int]:
        """Set the timestamp up to which records are needed; return the span partitions with a clock that must stop."""
        if self.name is None:
            return frozenset()
        behind = [
            self._progress_ns(partition)
            for partition in self._newest
            if pressure or partition in self.waiting or partition not in self._ended
        ]
        self._until_ns = min(behind) + self._quiet_ns if behind else inf
        (self._clock.stop if behind else self._clock.go)(steady_ns())  # no record expires while its span is unread
        return {
            partition
            for partition, newest_ns in self._newest.items()
            if not self._has_records(newest_ns) or (partition in self.waiting and partition in self._ended)
        }

    def _has_records(self, spans_ns: int) -> bool:
        """Return whether all records have been read that the spans of a message with this timestamp may need."""
        is_known = not self._restarts and monotonic() < self._covered_s + _FRESH_S
        return is_known and spans_ns + self._quiet_ns <= self._covered_ns

    def _progress_ns(self, partition: int) -> int:
        """Return the timestamp up to which messages of a span partition were passed on."""
        waiting = self.waiting.get(partition)
        first = waiting[0] if waiting else None
        return self._newest[partition] if first is None else first.written_ns or 0

    def _release(self, partition: int) -> Iterator[KafkaMessage]:
        waiting = self.waiting[partition]
        while waiting and ((message := waiting[0]) is None or self._has_records(message.written_ns or 0)):
            waiting.popleft()
            if message is not None:
                yield self._record_newest(message)
        if not waiting:
            self.waiting.pop(partition, None)
            if message is None:
                self.note_end(partition)

    def _record_newest(self, message: KafkaMessage) -> KafkaMessage:
        self._newest[message.partition] = message.written_ns or 0
        self._ended.discard(message.partition)
        return message

    def _kept_from_ns(self) -> int:
        """Return the timestamp of the oldest record that the receiver keeps for an unread span."""
        newest_ns = max((time_ns for time_ns, _ in [*self._read.values()]), default=0)
        return min([*self._restarts], default=max(self._restarted_ns, newest_ns - 2 * self._wait_ns))

    # --- the thread that polls log partitions ---------------------------------------------------------------------

    def _run(self) -> None:
        # The client requires the name of a group, which is never joined.
        consumer = Consumer({**consumer_config(self._kafka), "error_cb": self._record_error})
        while not self._stopping.is_set():
            try:
                self._poll_once(consumer)
            except KafkaException as error:  # no broker answers
                self._covered_ns = -inf
                self._record_error(error.args[0])
                self._stopping.wait(_AGAIN_S)
            except Exception as error:  # noqa: BLE001  (the next poll may succeed; the rest of the messages is read again)
                log_internal_error("read log records", error)
                self._restarts.append(self._kept_from_ns())
                self._stopping.wait(_AGAIN_S)
        consumer.close()

    def _poll_once(self, consumer: Consumer) -> None:
        if self._restarts or monotonic() > self._listed_s + _LIST_S:
            self._update_assignment(consumer)
        for message in consumer.consume(_AT_ONCE, _POLL_S):
            self._handle_message(message)
        if self._must_check_ends:  # while the client was disconnected, the log partitions may have grown
            ends = self._request_ends(consumer, self._read)
            self._read_to_end = {number for number, (_, offset) in self._read.items() if offset >= ends[number]}
            self._must_check_ends, self.fault = False, self.fault if not self._read else ""
        self._pause_and_resume(consumer)

    def _update_assignment(self, consumer: Consumer) -> None:
        """Assign all log partitions again if their number changed or ``_restarts`` has a timestamp, then from that timestamp.

        New log partitions are read from their beginning.
        """
        topic = consumer.list_topics(self._kafka.topic, timeout=ASK_S).topics[self._kafka.topic]
        if topic.error is not None:
            self._record_error(topic.error)
            self._stopping.wait(_AGAIN_S)
            return
        self._listed_s, self.fault = monotonic(), ""
        begins = [*self._restarts]
        if not begins and self._read.keys() == topic.partitions.keys():
            return
        ends = self._request_ends(consumer, topic.partitions)
        read = {partition: self._read.get(partition, (0, 0)) for partition in ends}
        if begins:
            self._restarted_ns = max(0, min(begins))
            read = self._request_offsets(consumer, self._restarted_ns, ends)
            self._spans.logs.forget_all()  # the kept records are read again
        self._covered_ns, self._paused, self._read = -inf, set(), read
        self._read_to_end = {partition for partition, end in ends.items() if read[partition][1] >= end}
        topic_name = self._kafka.topic
        consumer.assign([TopicPartition(topic_name, number, offset) for number, (_, offset) in read.items()])
        consumer.resume(self._make_places(read))  # a paused partition stays paused after a new assignment
        for _ in begins:
            self._restarts.popleft()

    def _request_offsets(self, consumer: Consumer, at_ns: int, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return log partition → ``at_ns``, and the offset of its first message from that timestamp on. Blocks."""
        places = dict[int, tuple[int, int]]()
        for place in consumer.offsets_for_times(self._make_places(ends, at_ns // NS_PER_MS), timeout=ASK_S):
            if place.error is not None:
                raise KafkaException(place.error)
            places[place.partition] = at_ns, place.offset if place.offset >= 0 else ends[place.partition]
        return places

    def _handle_message(self, message: Message) -> None:
        error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
        if error is not None and error.name() != "_PARTITION_EOF":
            self._record_error(error)
            return
        if partition is None or offset is None or partition not in self._read:
            return
        if error is not None:  # at the end; the last entry may be a transaction marker
            self._read[partition] = self._read[partition][0], max(offset, self._read[partition][1])
            self._read_to_end.add(partition)
            return
        self._read[partition] = message.timestamp()[1] * NS_PER_MS, offset + 1
        self._read_to_end.discard(partition)
        if value and any(mark in value for mark in MAY_HOLD_CONTENT):
            self._take_records(value)

    def _take_records(self, value: bytes) -> None:
        counts = self._spans.counts
        counts.count_request(len(value))
        if len(value) > self._most_bytes:
            counts.refuse("too_large")
            return
        try:
            self._spans.accept_logs(content_in_logs(value))
        except Exception:  # noqa: BLE001  (bytes of anybody)
            counts.refuse("unreadable")

    def _pause_and_resume(self, consumer: Consumer) -> None:
        """Pause log partitions that are too far ahead, resume others, and set ``_covered_ns``."""
        until_ns = self._until_ns + _AHEAD_NS
        most_ns = until_ns + _AHEAD_NS if self._spans.logs.filled > _FILLED else inf
        far = {partition for partition, (newest_ns, _) in self._read.items() if newest_ns > most_ns} - self._paused
        near = {partition for partition in self._paused if self._read[partition][0] <= until_ns}
        if far:
            consumer.pause(self._make_places(far))
        if near:
            consumer.resume(self._make_places(near))
        self._paused = (self._paused | far) - near
        unread = self._read.keys() - (self._read_to_end - self._paused)
        self._covered_ns = min((self._read[partition][0] for partition in unread), default=inf if self._read else -inf)
        self._covered_s = monotonic()

    def _record_error(self, error: KafkaError) -> None:
        self._must_check_ends = True
        problem = problem_of(error, self._kafka)
        if problem.text:
            self.fault = problem.text
            log_once(f"kafka logs {problem.kind}", problem.text)

    def _request_ends(self, consumer: Consumer, partitions: Collection[int]) -> dict[int, int]:
        """Return the end offsets of log partitions, as the brokers report them. Blocks."""
        places = self._make_places(partitions)
        return {place.partition: consumer.get_watermark_offsets(place, timeout=ASK_S)[1] for place in places}

    def _make_places(self, partitions: Collection[int], offset: int = 0) -> list[TopicPartition]:
        return [TopicPartition(self._kafka.topic, partition, offset) for partition in partitions]

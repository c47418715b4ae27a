"""Reads the log records of a second Kafka topic, which have the content of the spans that a worker reads.

Messages of logs have other keys than those of spans, or no key, so a trace's records may be in any partition. Each worker
reads all of them, outside its group, and commits nothing. Both topics are aligned by the times of their messages:

    records ───────────────────●──────────▶ paused if many wait, and this far ahead of the slowest partition of spans
    spans   ────────●──▶ a message waits until records are read for ``units.idle_timeout`` beyond it, or to their end

A partition that another worker has read, or this one before a crash, starts with older spans. Records are then read again,
from ``units.orphan_wait`` before these spans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from math import inf
from threading import Event
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.capture.otlp.streams import StreamClock
from spanscore.config.durable import KafkaSettings, confluent_config
from spanscore.config.tree import Configuration
from spanscore.core.codecs.otlp_span import MAY_HOLD_CONTENT, content_in_logs
from spanscore.core.event_queue import steady_ns
from spanscore.core.log import log_internal_error, log_once
from spanscore.core.threads import start_daemon
from spanscore.errors import SourceUnavailable
from spanscore.service.confluent_kafka_member import PREFETCH, KafkaMessage, trouble_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_AT_ONCE: Final = 10
"""Messages of one read, after which partitions may be paused. The Collector writes up to 1 MB of records per message."""
_POLL_S: Final = 0.1
_ASK_S: Final = 2.0
"""Timeout of one request to a broker, in s."""
_LOOK_S: Final = 10.0
"""Seconds between two counts of the partitions, because a topic may grow."""
_FRESH_S: Final = 0.5
"""Seconds for which the known end of the records is valid."""
_AHEAD_NS: Final = 5_000_000_000
"""Time, in ns, up to which records are read ahead of the spans; twice that before partitions are paused."""
_FILLED: Final = 0.5
"""Filled share of the room for records up to which reading ahead is unlimited."""
_AGAIN_S: Final = 1.0
"""Seconds of pause after a failure."""
_MS: Final = 1_000_000
_NO_PARTITIONS: Final[Set[int]] = frozenset()


class LogsTopic:
    """Reads ``kafka.logs_topic`` on a thread of its own; without a name it does nothing.

    Args:
        name: name of the topic; None = no topic is read.
        settings: a configuration with the section ``kafka``.
        spans: receiver of the spans, which keeps the records until their spans are read.
        at_end: called with a partition of spans after its last message was passed on.

    Attributes:
        name: name of the topic.
        wrong: reason for which records are not read; empty = they are read.
        waiting: partition of spans → messages that wait for records; None marks the end behind them.
    """

    def __init__(
        self, name: str | None, settings: Configuration, spans: OtlpSpans, at_end: Callable[[int], None]
    ) -> None:
        assert settings.kafka is not None
        self.name = name
        self.wrong = ""
        self._kafka: KafkaSettings = settings.kafka.model_copy(update={"topic": self.name or ""})
        self._spans = spans
        self._most_bytes = settings.serve.limits.inflated
        self._quiet_ns = int(settings.units.idle_timeout * 1e9)
        self._wait_ns = int(settings.units.orphan_wait * 1e9)
        self._at_end = at_end
        self._over = Event()
        self.waiting: dict[int, deque[KafkaMessage | None]] = {}
        # Spans, by partition: time of the latest message that was passed on; partitions that are read to their end.
        self._newest: dict[int, int] = {}
        self._ended: set[int] = set()
        # Records, by partition: time of the latest message, and the next offset; partitions that are read to their end.
        self._read: dict[int, tuple[int, int]] = {}
        self._read_to_end: set[int] = set()
        self._paused: set[int] = set()
        self._begin = deque[int]()  # times from which records must be read again
        self._begun_ns = 0
        self._until_ns = self._covered_ns = -inf
        self._looked_s = self._covered_s = 0.0
        self._in_doubt = True
        self._clock = StreamClock(steady_ns())
        if self.name is not None:
            spans.logs.wait_by(2 * self._wait_ns, lambda: self._clock.now_ns(steady_ns()))

    # --- the thread that polls spans -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start to read, from two ``units.orphan_wait`` before now. Does not block.

        Raises:
            SourceUnavailable: no thread can be started.
        """
        if self.name is None:
            return
        self._begin.append(time_ns() - 2 * self._wait_ns)
        if start_daemon(self._run, "spanscore-kafka-logs") is None:
            raise SourceUnavailable("kafka: no thread can be started to read logs: is the limit of processes reached?")

    def stop(self) -> None:
        """Stop reading."""
        self._over.set()

    def in_step(self, messages: Iterator[KafkaMessage], pressure: str) -> Iterator[KafkaMessage]:
        """Yield messages of spans whose records have been read; the others wait, in the order of their partition.

        Args:
            messages: the fetched messages.
            pressure: reason for which spans must not be read, so that messages keep waiting; empty = they are read.
        """
        if self.name is None:
            yield from messages
            return
        for partition in () if pressure else [*self.waiting]:
            yield from self._released(partition)
        for message in messages:
            if message.partition not in self._newest:
                self._begin_partition(message)
            if message.partition in self.waiting or not self._has_records(message.written_ns or 0):
                self.waiting.setdefault(message.partition, deque()).append(message)
            else:
                yield self._handed_on(message)

    def note_end(self, partition: int) -> None:
        """Note that a partition of spans was fetched to its end."""
        if partition in self.waiting:
            self.waiting[partition].append(None)
        else:
            self._ended.add(partition)
            self._at_end(partition)

    def forget(self, partitions: Collection[int], *, fetched_again: bool = False) -> None:
        """Forget the waiting messages of partitions of spans. If they are only fetched again, the partitions stay assigned."""
        for partition in partitions:
            self.waiting.pop(partition, None)
            if not fetched_again:
                self._newest.pop(partition, None)
                self._ended.discard(partition)

    def align(self, pressure: str) -> Set[int]:
        """Request records as far as the spans need; return the partitions of spans whose clock must stop.

        Args:
            pressure: reason for which spans are not read; empty = they are read.
        """
        if self.name is None:
            return _NO_PARTITIONS
        behind = [
            self._place_ns(partition)
            for partition in self._newest
            if pressure or partition in self.waiting or partition not in self._ended
        ]
        self._until_ns = min(behind) + self._quiet_ns if behind else inf
        (self._clock.stand if behind else self._clock.go)(steady_ns())  # no record expires while its span is unread
        return {
            partition
            for partition, newest_ns in self._newest.items()
            if not self._has_records(newest_ns) or (partition in self.waiting and partition in self._ended)
        }

    def _has_records(self, spans_ns: int) -> bool:
        """Return whether all records that spans of that time may need have been read."""
        is_known = not self._begin and monotonic() < self._covered_s + _FRESH_S
        return is_known and spans_ns + self._quiet_ns <= self._covered_ns

    def _place_ns(self, partition: int) -> int:
        """Return the time up to which spans of a partition were passed on."""
        waiting = self.waiting.get(partition)
        first = waiting[0] if waiting else None
        return self._newest[partition] if first is None else first.written_ns or 0

    def _released(self, partition: int) -> Iterator[KafkaMessage]:
        waiting = self.waiting[partition]
        while waiting and ((message := waiting[0]) is None or self._has_records(message.written_ns or 0)):
            waiting.popleft()
            if message is not None:
                yield self._handed_on(message)
        if not waiting:
            self.waiting.pop(partition, None)
            if message is None:
                self.note_end(partition)

    def _handed_on(self, message: KafkaMessage) -> KafkaMessage:
        self._newest[message.partition] = message.written_ns or 0
        self._ended.discard(message.partition)
        return message

    def _begin_partition(self, message: KafkaMessage) -> None:
        """Request records again if those of a partition's first spans are no longer kept."""
        from_ns = (message.written_ns or 0) - self._wait_ns
        self._newest[message.partition] = from_ns
        if from_ns < self._kept_from_ns():
            self._begin.append(from_ns)

    def _kept_from_ns(self) -> int:
        """Return the time of the oldest record that the receiver keeps for an unread span."""
        newest_ns = max((time_ns for time_ns, _ in [*self._read.values()]), default=0)
        return min([*self._begin], default=max(self._begun_ns, newest_ns - 2 * self._wait_ns))

    # --- the thread that polls records ---------------------------------------------------------------------------

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        consumer = Consumer(
            {
                **confluent_config(self._kafka),
                "group.id": self._kafka.group,  # the client requires a name; the group is never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                **PREFETCH,
                "error_cb": self._failed,
            }
        )
        while not self._over.is_set():
            try:
                self._turn(consumer)
            except KafkaException as error:  # no broker answers
                self._covered_ns = -inf
                self._failed(error.args[0])
                self._over.wait(_AGAIN_S)
            except Exception as error:  # noqa: BLE001  (the next turn may do; what is left of a batch is read again)
                log_internal_error("read log records", error)
                self._begin.append(self._kept_from_ns())
                self._over.wait(_AGAIN_S)
        consumer.close()

    def _turn(self, consumer: Consumer) -> None:
        if self._begin or monotonic() > self._looked_s + _LOOK_S:
            self._look(consumer)
        for message in consumer.consume(_AT_ONCE, _POLL_S):
            self._take(message)
        if self._in_doubt:  # a disconnected client gets no new records
            ends = self._ends(consumer, self._read)
            self._read_to_end = {one for one, (_, offset) in self._read.items() if offset >= ends[one]}
            self._in_doubt, self.wrong = False, self.wrong if not self._read else ""
        self._pace(consumer)

    def _look(self, consumer: Consumer) -> None:
        """Read all partitions from a time on, if one is set; read new partitions from their beginning."""
        found = consumer.list_topics(self._kafka.topic, timeout=_ASK_S).topics[self._kafka.topic]
        if found.error is not None:
            self._failed(found.error)
            self._over.wait(_AGAIN_S)
            return
        self._looked_s, self.wrong = monotonic(), ""
        begins = [*self._begin]
        if not begins and self._read.keys() == found.partitions.keys():
            return
        ends = self._ends(consumer, found.partitions)
        read = {partition: self._read.get(partition, (0, 0)) for partition in ends}
        if begins:
            self._begun_ns = max(0, min(begins))
            read = self._places_at(consumer, self._begun_ns, ends)
            self._spans.logs.let_all_go()  # the waiting records are read again
        self._covered_ns, self._paused, self._read = -inf, set(), read
        self._read_to_end = {one for one, end in ends.items() if read[one][1] >= end}
        consumer.assign([place for one, (_, offset) in read.items() for place in self._at([one], offset)])
        consumer.resume(self._at(read))  # a paused partition stays paused after a new assignment
        for _ in begins:
            self._begin.popleft()

    def _places_at(self, consumer: Consumer, at_ns: int, ends: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return partition → a time, and the offset of its first message from that time on. Blocks."""
        from confluent_kafka import KafkaException

        places = dict[int, tuple[int, int]]()
        for place in consumer.offsets_for_times(self._at(ends, at_ns // _MS), timeout=_ASK_S):
            if place.error is not None:
                raise KafkaException(place.error)
            places[place.partition] = at_ns, place.offset if place.offset >= 0 else ends[place.partition]
        return places

    def _take(self, message: Message) -> None:
        error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
        if error is not None and error.name() != "_PARTITION_EOF":
            self._failed(error)
            return
        if partition is None or offset is None or partition not in self._read:
            return
        if error is not None:  # at the end; the last entry may be a transaction marker
            self._read[partition] = self._read[partition][0], max(offset, self._read[partition][1])
            self._read_to_end.add(partition)
            return
        self._read[partition] = message.timestamp()[1] * _MS, offset + 1
        self._read_to_end.discard(partition)
        if value and any(mark in value for mark in MAY_HOLD_CONTENT):
            self._keep(value)

    def _keep(self, value: bytes) -> None:
        counts = self._spans.counts
        counts.came(len(value))
        if len(value) > self._most_bytes:
            counts.refuse("too_large")
            return
        try:
            self._spans.take_logs(content_in_logs(value))
        except Exception:  # noqa: BLE001  (bytes of anybody)
            counts.refuse("unreadable")

    def _pace(self, consumer: Consumer) -> None:
        """Pause partitions that are far ahead of the spans; note the time up to which all records are read."""
        until_ns = self._until_ns + _AHEAD_NS
        most_ns = until_ns + _AHEAD_NS if self._spans.logs.filled > _FILLED else inf
        far = {one for one, (newest_ns, _) in self._read.items() if newest_ns > most_ns} - self._paused
        near = {one for one in self._paused if self._read[one][0] <= until_ns}
        if far:
            consumer.pause(self._at(far))
        if near:
            consumer.resume(self._at(near))
        self._paused = (self._paused | far) - near
        unread = self._read.keys() - (self._read_to_end - self._paused)
        self._covered_ns = min((self._read[one][0] for one in unread), default=inf if self._read else -inf)
        self._covered_s = monotonic()

    def _failed(self, error: KafkaError) -> None:
        self._in_doubt = True
        trouble = trouble_of(error, self._kafka)
        if trouble.text:
            self.wrong = trouble.text
            log_once(f"kafka logs {trouble.kind}", trouble.text)

    def _ends(self, consumer: Consumer, partitions: Collection[int]) -> dict[int, int]:
        """Request the end offsets of partitions from the brokers. Blocks."""
        places = self._at(partitions)
        return {one.partition: consumer.get_watermark_offsets(one, timeout=_ASK_S)[1] for one in places}

    def _at(self, partitions: Collection[int], offset: int = 0) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._kafka.topic, one, offset) for one in partitions]

"""One consumer of a Kafka group, on librdkafka: messages, offsets, and errors translated into problems for the operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spanscore.config.durable import KafkaSettings, ValueInFile, confluent_config
from spanscore.core.printable import format_duration
from spanscore.errors import ConfigurationError, SourceUnavailable
from spanscore.service.kafka_topic import CommitNote

if TYPE_CHECKING:
    from spanscore.service.kafka_source import KafkaSource

_AT_ONCE: Final = 500
_POLL_S: Final = 0.1
ASK_S: Final = 2.0
"""Timeout of one request to a broker, in s."""
PREFETCH: Final[Mapping[str, int]] = {"queued.max.messages.kbytes": 16_384, "fetch.queue.backoff.ms": 20}
"""Limit in kB of fetched and unread messages, and the pause of fetching above that limit, in ms.

librdkafka's default pause is a second: with that pause, a backlog of 20 kB messages was read at 1,400 a second.
"""
NS_PER_MS: Final = 1_000_000
_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "consumer": {"group.protocol": "consumer"},
    "classic": {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
}


Kind: TypeAlias = Literal["end", "unreachable", "refused", "missing", "unsupported", "transient"]


class KafkaProblem(NamedTuple):
    """A translated error of the client.

    Attributes:
        kind: ``end``: ``partition`` was read to its end. ``unreachable``: no broker answers. ``refused``: the brokers refuse
            access. ``missing``: there is no such topic. ``unsupported``: the broker has no group of this protocol.
            ``transient``: any other error, from which librdkafka recovers.
        text: text for the operator; empty if there is nothing to report.
    """

    kind: Kind
    text: str = ""
    partition: int | None = None


class KafkaMessage(NamedTuple):
    """One message of the topic.

    Attributes:
        written_ns: time from its producer or its broker, Unix ns; None if neither gives a time.
        has_key: whether the message has a key, which keeps it in one partition with others of that key.
        value: body; None if the message has no body.
    """

    partition: int
    offset: int
    written_ns: int | None
    has_key: bool
    value: bytes | None


def consumer_config(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the client's configuration of a consumer that commits only on request and reports the end of each partition."""
    return {
        **confluent_config(kafka),
        "group.id": kafka.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        **PREFETCH,
    }


class GroupMember:
    """One consumer of a group. Owned by the polling thread from the first poll on.

    Args:
        kafka: names of the topic and the group.
        source: object with ``on_…`` methods, which are called on the polling thread.

    Attributes:
        protocol: protocol of the group.
        partitions_total: number of partitions of the topic; 0 = unknown.

    Raises:
        ConfigurationError: name, password or certificate authorities cannot be read.
    """

    def __init__(self, kafka: KafkaSettings, source: KafkaSource) -> None:
        self._kafka = kafka
        self._source = source
        self._config: dict[str, Any] = {
            **consumer_config(kafka),
            "topic.metadata.refresh.interval.ms": 10_000,  # the longest time until a new or grown topic is found
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }
        self.protocol = "consumer"
        self.partitions_total = 0
        self._refused = ""
        self._consumer = self._make_consumer()

    def join(self, wait_s: float) -> None:
        """Find the brokers, and subscribe to the topic. Blocks.

        Raises:
            SourceUnavailable: no broker answers within that time, or they refuse access.
        """
        until = monotonic() + wait_s
        while not self.look_for_topic():
            self._consumer.poll(0)  # so that errors are reported
            if self._refused or monotonic() >= until:
                at = f"{', '.join(self._kafka.brokers)}: no broker answers, {format_duration(wait_s)} after the start"
                raise SourceUnavailable(f"kafka: {self._refused or at}")
        self._subscribe()

    def look_for_topic(self) -> bool:
        """Request the number of partitions from a broker. Returns False if no broker answers. Blocks.

        Do not call it in a callback: it consumes client state (2.16) that the next callback of the same poll needs, which then
        aborts.
        """
        try:
            topic = self._consumer.list_topics(self._kafka.topic, timeout=ASK_S).topics[self._kafka.topic]
        except KafkaException:
            return False
        if topic.error is None:
            self.partitions_total = len(topic.partitions)
        else:
            self._on_error(topic.error)
        return True

    def messages(self) -> Iterator[KafkaMessage]:
        """Yield the available messages in order; without messages, wait briefly. Calls the source in between."""
        for message in self._consumer.consume(_AT_ONCE, _POLL_S):
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                self._source.on_problem(problem_of(error, self._kafka)._replace(partition=partition))
            elif partition is not None and offset is not None:
                kind, written_ms = message.timestamp()
                written_ns = written_ms * NS_PER_MS if kind else None
                yield KafkaMessage(partition, offset, written_ns, message.key() is not None, message.value())

    def commit(self, notes: Mapping[int, tuple[int, CommitNote]]) -> None:
        """Commit offsets; ``on_committed`` is called with the result. Does not block.

        Waiting for the result would stop the polling until a broker answers, possibly for hours. The client reports the result
        before a partition is revoked, or the group is left.
        """
        offsets = [self._place(partition, offset, note.text(offset)) for partition, (offset, note) in notes.items()]
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._on_commit(error.args[0], offsets)

    def seek(self, partition: int, offset: int) -> None:
        """Fetch a partition from an offset on; a partition that this member has lost is ignored."""
        with suppress(KafkaException):
            self._consumer.seek(self._place(partition, offset))

    def pause(self, partitions: Iterable[int]) -> None:
        """Stop fetching these partitions."""
        self._consumer.pause([self._place(partition) for partition in partitions])

    def resume(self, partitions: Iterable[int]) -> None:
        """Fetch these partitions again."""
        self._consumer.resume([self._place(partition) for partition in partitions])

    def end_offset(self, partition: int, *, cached: bool) -> int | None:
        """Return the offset after a partition's last message; None = unknown.

        A ``cached`` offset is that in the last answer with messages, which is current while messages arrive. Otherwise a broker
        is asked, which blocks.
        """
        ends = self._ends(partition, cached=cached)
        return ends[1] if ends is not None and ends[1] >= 0 else None

    def oldest_offset(self, partition: int) -> int:
        """Request the offset of a partition's oldest message; 0 if no broker answers. Blocks."""
        ends = self._ends(partition, cached=False)
        return 0 if ends is None else ends[0]

    def _ends(self, partition: int, *, cached: bool) -> tuple[int, int] | None:
        try:
            return self._consumer.get_watermark_offsets(self._place(partition), timeout=ASK_S, cached=cached)
        except KafkaException:
            return None

    def go_classic(self) -> None:
        """Join by the classic protocol, which every broker has."""
        self._consumer.close()
        self.protocol = "classic"
        self._consumer = self._make_consumer()
        self._subscribe()

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _make_consumer(self) -> Consumer:
        try:
            return Consumer({**self._config, **_GROUPS[self.protocol]})
        except KafkaException as error:
            text = error.args[0].str()
            for name, value in self._kafka.client.items():
                text = text.replace(self._config[name], "…") if isinstance(value, ValueInFile) else text
            raise ConfigurationError(f"kafka.client is refused by the client library: {text}") from None

    def _subscribe(self) -> None:
        source = self._source
        self._consumer.subscribe(
            [self._kafka.topic],
            on_assign=self._on_assign,
            on_revoke=lambda _, partitions: source.on_revoked([revoked.partition for revoked in partitions]),
            on_lost=lambda _, partitions: source.on_lost([lost.partition for lost in partitions]),
        )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        begun = partitions
        with suppress(KafkaException):  # they start at the group's offsets, without the notes
            begun = consumer.committed(partitions, timeout=ASK_S)
        notes = dict[int, tuple[int | None, CommitNote]]()
        for place in begun:
            offset = place.offset if place.offset >= 0 else None
            notes[place.partition] = offset, CommitNote.of(place.metadata, offset or 0)
        consumer.incremental_assign(begun)
        self._source.on_assigned(notes)

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        is_done = error is None and not any(place.error for place in offsets)
        self._source.on_committed({place.partition: place.offset for place in offsets}, is_done)

    def _on_error(self, error: KafkaError) -> None:
        problem = problem_of(error, self._kafka)
        self._refused = problem.text if problem.kind == "refused" else self._refused
        self._source.on_problem(problem)

    def _place(self, partition: int, offset: int | None = None, note: str = "") -> TopicPartition:
        if offset is None:
            return TopicPartition(self._kafka.topic, partition)
        return TopicPartition(self._kafka.topic, partition, offset, note)


def problem_of(error: KafkaError, kafka: KafkaSettings) -> KafkaProblem:
    """Return the meaning of an error, with the names from the configuration."""
    code, message = error.name(), error.str()
    if code == "_FATAL":  # only the text names the error
        if "not supported" in message:
            return KafkaProblem("unsupported")
        return KafkaProblem("refused", f"the group {kafka.group} cannot be joined: {message}")
    kind, text = _PROBLEMS.get(code, ("transient", ""))
    return KafkaProblem(
        kind, text.format(brokers=", ".join(kafka.brokers), topic=kafka.topic, group=kafka.group, code=code)
    )


_LOGIN: Final = "the brokers refuse name, password, token or certificate (kafka.security, kafka.client)"
_MISSING: Final = "there is no topic {topic}; it is read as soon as there is one"
_PROBLEMS: Final[Mapping[str, tuple[Kind, str]]] = {
    "_PARTITION_EOF": ("end", ""),
    "_ALL_BROKERS_DOWN": ("unreachable", "no broker of {brokers} answers"),
    "UNKNOWN_TOPIC_OR_PART": ("missing", _MISSING),
    "_UNKNOWN_TOPIC": ("missing", _MISSING),
    "TOPIC_AUTHORIZATION_FAILED": ("refused", "the brokers do not let us read the topic {topic} ({code})"),
    "GROUP_AUTHORIZATION_FAILED": ("refused", "the brokers do not let us join the group {group} ({code})"),
    "_AUTHENTICATION": ("refused", _LOGIN),
    "SASL_AUTHENTICATION_FAILED": ("refused", _LOGIN),
}
"""Name of an error → kind and text of the problem."""

"""Applications' messages on a topic: traces of agents, in several messages each, keyed like the Collector's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers.kafka import Kafka
from tests.service.agents import agent_run, requests_of


class Sent(NamedTuple):
    """A message, and whether it holds the root of its trace."""

    trace: str
    body: bytes
    has_root: bool


def traces(number: int, *, messages: int = 1, seed: int = 1) -> list[Sent]:
    """Return traces of four spans in so many messages each, children before their root, interleaved."""
    random = Random(seed)
    ends = [4 * part // messages for part in range(messages + 1)]
    sent = list[Sent]()
    for _ in range(number):
        spans = agent_run(random)
        bodies = [requests_of(spans[::-1][first:last], 4)[0] for first, last in pairwise(ends)]
        sent += [Sent(spans[0].trace_id.hex(), body, body is bodies[-1]) for body in bodies]
    return [
        message for block in _blocks(sent, 20 * messages) for message in sorted(block, key=lambda one: one.has_root)
    ]


def send(kafka: Kafka, topic: str, messages: Sequence[Sent] | Sequence[bytes], **configuration: Any) -> None:
    """Write messages to a topic, and wait until they are there."""
    producer = Producer({"bootstrap.servers": kafka.brokers, "partitioner": "fnv1a", "log_level": 0, **configuration})
    for message in messages:
        key, body = (message.trace, message.body) if isinstance(message, Sent) else ("none", message)
        producer.produce(topic, body, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def committed(kafka: Kafka, topic: str, partitions: int, group: str = "spanscore") -> int:
    """Return how many messages a group has committed, of all partitions."""
    asking = Consumer({"bootstrap.servers": kafka.brokers, "group.id": group, "log_level": 0})
    try:
        asked = asking.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=30)
        return sum(max(0, one.offset) for one in asked)
    finally:
        asking.close()


def agents_without_root() -> bytes:
    """Return an agent's span without its parent, which is in the same process and never comes."""
    spans = agent_run(Random(5))
    spans[0].parent_span_id = b"12345678"
    return requests_of(spans, len(spans))[0]


def _blocks(sent: list[Sent], size: int) -> list[list[Sent]]:
    numbered = groupby(enumerate(sent), key=lambda pair: pair[0] // size)
    return [[message for _, message in block] for _, block in numbered]

"""``spanscore worker --rekey``: a topic keyed by trace becomes one keyed by conversation, without loss."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.kafka.applications import committed, send, traces
from tests.kafka.conversations import rounds, say, turn
from tests.kafka.test_conversations import assert_adds_up, scores_of, talking
from tests.kafka.test_workers import number, scores, working_process
from tests.kafka.worker import Worker, configured, working
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.process import Serving

from spanscore.config.reading import read_settings
from spanscore.core.codecs.otlp_request import parse_request, request_of
from spanscore.service.kafka_source import KafkaSource

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]

NAMES = [f"talk-{number}" for number in range(30)]


class Written(NamedTuple):
    """A message as it is on a topic."""

    key: str
    body: bytes
    partition: int
    written_ms: int


@contextmanager
def rekeying(file: Path, to: str) -> Iterator[KafkaSource]:
    """Yield a process that reads a topic and writes it to another one."""
    worker = Worker(file)
    source = KafkaSource(worker.scorer, read_settings(file).settings, to)
    try:
        source.start(30)
        yield source
    finally:
        source.pause()
        worker.scorer.shutdown(10)
        source.commit()


def rekeying_process(file: Path, to: str) -> Serving:
    return Serving(file, "--rekey", to, command="worker")


def written(kafka: Kafka, topic: str, partitions: int = 2) -> list[Written]:
    """Return the messages on a topic, by partition and offset."""
    reading = Consumer({"bootstrap.servers": kafka.brokers, "group.id": "none", "log_level": 0})
    places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    try:
        reading.assign(places)
        there = sum(reading.get_watermark_offsets(place, 30)[1] for place in places)
        messages = reading.consume(there, 30) if there else []
        return [Written(str(one.key(), "utf-8"), one.value(), one.partition(), one.timestamp()[1]) for one in messages]
    finally:
        reading.close()


def until_committed(kafka: Kafka, topic: str, messages: int, partitions: int = 2) -> None:
    asked = lambda: committed(kafka, topic, partitions, f"{topic}-workers") == messages  # noqa: E731
    poll(asked, deadline_s=60, what=f"{messages} commits of {topic}")


def keyed(kafka: Kafka, topic: str, partitions: int = 2) -> str:
    kafka.create(name := f"{topic}-keyed", partitions)
    return name


def assert_processes_add_up(workers: Sequence[Serving], metric: str) -> None:
    """In each worker eligible is the sum of the outcomes, once it has drained."""
    for worker in workers:
        worker.process.terminate()
    assert [worker.ended() for worker in workers] == [0] * len(workers)
    for worker in workers:
        eligible, ended = worker.until(rf"{metric}: eligible ([\d,]+)(.*)").groups()
        assert number(eligible) == sum(map(number, re.findall(r"\b\w+ ([\d,]+)", ended)))


def test_messages_leave_as_they_came_with_the_conversation_or_else_the_trace_as_their_key(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    to, turns, others = keyed(kafka, topic), [turn("talk", at, messages=2) for at in (1, 2)], traces(3, messages=2)
    say(kafka, topic, turns)
    send(kafka, topic, others)

    with rekeying(configured(tmp_path, kafka, topic), to):
        until_committed(kafka, topic, 10)

    expected = [("talk", body) for one in turns for body in one.bodies] + [(one.trace, one.body) for one in others]
    came = written(kafka, to)
    assert sorted((one.key, one.body) for one in came) == sorted(expected)
    assert len({one.partition for one in came if one.key == "talk"}) == 1
    assert sorted(one.written_ms for one in came) == sorted(one.written_ms for one in written(kafka, topic))


def test_a_message_without_a_key_is_written_by_trace(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    to, turns = keyed(kafka, topic), [turn(name, 1, messages=2) for name in ("one", "two")]
    spans = [[*chain.from_iterable(parse_request(one.bodies[at]).spans for one in turns)] for at in (0, 1)]
    producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
    for partition, of_both in enumerate(spans):
        producer.produce(topic, request_of((span.origin, span.raw) for span in of_both), partition=partition)
    assert producer.flush(60) == 0

    with rekeying(configured(tmp_path, kafka, topic), to):
        until_committed(kafka, topic, 2)

    came = {
        (one.key, span.trace_id.hex(), span.span_id)
        for one in written(kafka, to)
        for span in parse_request(one.body).spans
    }
    trace_of = {one.trace: one.conversation for one in turns}
    assert came == {
        (trace_of[span.trace_id.hex()], span.trace_id.hex(), span.span_id) for span in chain.from_iterable(spans)
    }


def test_nothing_is_committed_before_the_brokers_have_what_came_of_it(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    kafka.create(f"{topic}-small", 2, max_message_bytes="100")
    to, file, sent = keyed(kafka, topic), configured(tmp_path, kafka, topic), traces(5)
    send(kafka, topic, sent)

    with rekeying(file, f"{topic}-small") as source:
        poll(lambda: "too large" in source.unready(), deadline_s=60, what=f"a refusal; {source.unready()}")
    assert committed(kafka, topic, 2, f"{topic}-workers") == 0
    with rekeying(file, to):
        until_committed(kafka, topic, 5)

    assert {one.body for one in written(kafka, to)} == {one.body for one in sent}


@pytest.mark.parametrize("rekey", ["otlp_spans", "other"])
def test_a_topic_that_is_read_or_none_is_a_fault_of_the_command(kafka: Kafka, tmp_path: Path, rekey: str) -> None:
    file = configured(tmp_path, kafka, "otlp_spans")
    if rekey == "other":
        file.write_text("metrics: [exact_match]\nspool: {path: spool.db}\n")

    with rekeying_process(file, rekey) as forwarder:
        assert forwarder.ended() == 2


def test_thirty_conversations_over_three_workers_are_thirty_scores(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("by-trace", 3)
    kafka.create("by-conversation", 6)
    forward = configured(tmp_path, kafka, "by-trace", "forward.yaml")
    file = talking(tmp_path, kafka, "by-conversation", kafka={"key": "conversation"})
    with working(file) as first, working(file) as second, working(file) as third, rekeying(forward, "by-conversation"):
        workers = [first, second, third]
        for worker in workers:
            worker.until(lambda worker=worker: len(worker.source.state().partitions) == 2, "two partitions each")
        for turns in rounds(["before"], 4, pause_s=1):  # new ones may belong to another worker
            say(kafka, "by-trace", turns)
        for turns in rounds(NAMES, 4, pause_s=0.3):
            say(kafka, "by-trace", turns)
        poll(lambda: {*NAMES} <= {*scores_of(*workers)}, deadline_s=60, what="every conversation")

        assert_adds_up(*workers)
        assert sum(worker.eligible for worker in workers) == len(["before", *NAMES])
    assert {name: scores for name, scores in scores_of(*workers).items() if name in NAMES} == dict.fromkeys(NAMES, 1)


def test_kill_9_of_a_forwarder_loses_no_trace(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("killed", 3)
    kafka.create("killed-keyed", 6)
    sent = traces(2_000, messages=3)
    forward = configured(tmp_path, kafka, "killed", "forward.yaml")
    file = configured(tmp_path, kafka, "killed-keyed", spool={"path": str(tmp_path / "spool.db")})
    with OtlpReceiver() as backend, ExitStack() as stack:
        workers = [stack.enter_context(working_process(file, backend)) for _ in range(2)]
        for kill in range(3):
            forwarder = stack.enter_context(rekeying_process(forward, "killed-keyed"))
            forwarder.until("kafka: topic killed")
            send(kafka, "killed", sent[2_000 * kill : 2_000 * (kill + 1)])
            written_before = len(written(kafka, "killed-keyed", 6))
            poll(
                lambda before=written_before: len(written(kafka, "killed-keyed", 6)) > before,
                deadline_s=60,
                what="messages",
            )
            forwarder.process.kill()
        forwarder = stack.enter_context(rekeying_process(forward, "killed-keyed"))
        until_committed(kafka, "killed", 6_000, 3)
        poll(lambda: len({one.trace_id for one in scores(backend)}) == 2_000, deadline_s=60, what="every trace")
        until_committed(kafka, "killed-keyed", len(written(kafka, "killed-keyed", 6)), 6)
        assert_processes_add_up(workers, "answered")

    assert {one.trace_id for one in scores(backend)} == {int(one.trace, 16) for one in sent}
    assert len({one.span_id for one in scores(backend)}) == 2_000

"""Copies go to a topic, each is answered for once, and no other process has to be there for the host to go on."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from random import Random
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from tests.servers.kafka import PASSWORD, READER, Kafka
from tests.servers.server import free_port

pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, Producer

from spanscore.core.span import UnitKey
from spanscore.durable.confluent_kafka_carrier import KafkaCarrier
from spanscore.durable.rows import UnitCopy

MOCKED = {"test.mock.num.brokers": 1, "log_level": 0}
"""A broker inside of librdkafka."""
IDS = [rng.getrandbits(128) | 1 for rng in [Random(7)] for _ in range(1_000)]
ANSWER_WITHIN_S = 60.0


def copy(trace_id: int, request: bytes = b"spans") -> UnitCopy:
    return UnitCopy(UnitKey(trace_id, 1), 0, request)


@contextmanager
def carrying(topic: str, **config: Any) -> Iterator[tuple[KafkaCarrier, SimpleQueue[str | None]]]:
    """Yield a carrier and its reports."""
    carrier = KafkaCarrier({name.replace("_", "."): value for name, value in config.items()} | {"log_level": 0}, topic)
    yield carrier, SimpleQueue()
    carrier.close(0.0)


def clients() -> set[int]:
    return {id(client) for client in gc.get_objects() if isinstance(client, Producer)}


def test_each_copy_is_answered_for_once() -> None:
    reported: list[str | None] = []
    carrier = KafkaCarrier(MOCKED, "otlp_spans")

    for trace_id in IDS:
        carrier.send(copy(trace_id), reported.append)
    carrier.close(ANSWER_WITHIN_S)

    assert reported == [None] * len(IDS)
    assert carrier.state() == ""


def test_while_no_broker_answers_a_copy_waits_and_the_end_does_not() -> None:
    reported: list[str | None] = []
    carrier = KafkaCarrier({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0}, "otlp_spans")

    carrier.send(copy(1), reported.append)
    carrier.close(0.2)

    assert reported == []


def test_a_carrier_that_carries_nothing_ends_at_once() -> None:
    carrier = KafkaCarrier({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, "otlp_spans")

    carrier.close(ANSWER_WITHIN_S)

    assert carrier.state() == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_carries_its_own_and_the_parent_goes_on() -> None:
    answers: SimpleQueue[str | None] = SimpleQueue()
    carrier = KafkaCarrier(MOCKED, "otlp_spans")
    carrier.send(copy(1), answers.put)
    # glibc resets no lock of getaddrinfo at a fork: a child forked within it resolves no name.
    first = answers.get(timeout=ANSWER_WITHIN_S)

    if not (child := os.fork()):
        signal.alarm(int(ANSWER_WITHIN_S))  # a child that hangs would hold the pipes of the test's servers
        mine: list[str | None] = []
        carrier = KafkaCarrier(MOCKED, "otlp_spans")
        gc.collect()  # the client of the parent must not be destroyed here
        carrier.send(copy(2), mine.append)
        carrier.close(ANSWER_WITHIN_S)
        os._exit(0 if mine == [None] else 1)
    carrier.send(copy(3), answers.put)
    carrier.close(ANSWER_WITHIN_S)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [first, answers.get(timeout=ANSWER_WITHIN_S)] == [None, None]


def test_a_closed_carrier_leaves_no_client_to_the_garbage_collector() -> None:
    """A client that a forked child collects waits for threads that only its parent has."""
    before = clients()
    carrier = KafkaCarrier(MOCKED, "otlp_spans")
    carrier.send(copy(1), lambda _: None)
    late: list[str | None] = []

    carrier.close(ANSWER_WITHIN_S)
    carrier.send(copy(2), late.append)

    assert late == ["this process ends"]
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while left := clients() - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.server
def test_copies_wait_for_a_broker_that_is_away_and_arrive(kafka: Kafka) -> None:
    kafka.create("away", 1)
    with carrying("away", bootstrap_servers=kafka.brokers, reconnect_backoff_max_ms=500) as (carrier, results):
        carrier.send(copy(1), results.put)
        before = results.get(timeout=ANSWER_WITHIN_S)
        kafka.stop()
        carrier.send(copy(2), results.put)
        waits = results.empty()
        kafka.start()

        assert (before, waits, results.get(timeout=ANSWER_WITHIN_S), carrier.state()) == (None, True, None, "")


@pytest.mark.server
def test_what_the_topic_will_never_take_is_reported_by_its_reason(kafka: Kafka) -> None:
    kafka.create("small", 1, max_message_bytes="10000")
    here = {"bootstrap_servers": kafka.brokers, "topic_metadata_propagation_max_ms": 1000}
    with carrying("small", **here) as (carrier, results):
        carrier.send(copy(1, os.urandom(20_000)), results.put)
        assert results.get(timeout=ANSWER_WITHIN_S) == "too large for the topic"
    with carrying("missing", **here) as (carrier, results):
        carrier.send(copy(1), results.put)
        assert results.get(timeout=ANSWER_WITHIN_S) == "there is no such topic"


@pytest.mark.server
def test_a_writer_without_permission_is_reported(kafka: Kafka) -> None:
    kafka.create("read_only", 1)
    kafka.allow("READ", topic="read_only")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": READER}
    here = {"bootstrap_servers": kafka.with_password, **login}
    with carrying("read_only", **here, sasl_password=PASSWORD) as (carrier, results):
        carrier.send(copy(1), results.put)

        assert results.get(timeout=ANSWER_WITHIN_S) == "no permission to write to the topic"


class TheseIds(IdGenerator):
    """Gives each trace the next of the ids."""

    def __init__(self) -> None:
        self._ids, self._rng = iter(IDS), Random(8)

    def generate_trace_id(self) -> int:
        return next(self._ids)

    def generate_span_id(self) -> int:
        return self._rng.getrandbits(64) | 1


@pytest.mark.server
def test_a_thousand_traces_stand_where_the_collector_puts_them(
    kafka: Kafka, collector: ModuleType, tmp_path: Path
) -> None:
    for topic in ("ours", "collectors"):
        kafka.create(topic, 12)
    with carrying("ours", bootstrap_servers=kafka.brokers) as (carrier, results):
        for trace_id in IDS:
            carrier.send(copy(trace_id), results.put)
        _through_the_collector(collector, tmp_path, kafka)

        ours, collectors = (_places(kafka, topic) for topic in ("ours", "collectors"))

    assert ours == collectors
    assert {*ours} == {f"{trace_id:032x}".encode() for trace_id in IDS}
    assert {*ours.values()} == set(range(12))


def _through_the_collector(collector: ModuleType, folder: Path, kafka: Kafka) -> None:
    port = free_port()
    traces = "{topic: collectors, encoding: otlp_proto}"
    (config := folder / "kafka.yaml").write_text(
        f"receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}\n"
        f"exporters: {{kafka: {{brokers: ['{kafka.brokers}'], partition_traces_by_id: true, traces: {traces}}}}}\n"
        "service: {pipelines: {traces: {receivers: [otlp], exporters: [kafka]}}}\n"
    )
    with collector.running(folder, config):
        provider = TracerProvider(id_generator=TheseIds(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")))
        for _ in IDS:
            provider.get_tracer("app").start_span("work").end()
        provider.shutdown()


def _places(kafka: Kafka, topic: str) -> dict[bytes, int]:
    """Return key → partition of all that is in a topic, once there is so much."""
    settings = {"bootstrap.servers": kafka.brokers, "group.id": f"places {topic}", "auto.offset.reset": "earliest"}
    consumer, found = Consumer(settings), dict[bytes, int]()
    consumer.subscribe([topic])
    try:
        while len(found) < len(IDS):
            message = consumer.poll(ANSWER_WITHIN_S)
            assert message is not None, f"only {len(found)} came to {topic}"
            assert message.error() is None
            found[message.key()] = message.partition()
        return found
    finally:
        consumer.close()

"""The real broker keeps its module's promises: it keeps messages over a stop, and admits the right clients."""

from __future__ import annotations

import sys

import pytest
from tests.servers.kafka import PASSWORD, READER, Kafka
from tests.servers.server import listening

pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, KafkaError, Producer

pytestmark = pytest.mark.server


def test_what_is_sent_is_there_after_a_stop(kafka: Kafka) -> None:
    kafka.create("stopped", 1)
    _send(kafka, "stopped", b"question")

    kafka.stop()
    kafka.start()

    assert _first(kafka.brokers, "stopped").value() == b"question"


def test_a_client_with_a_password_may_do_what_it_was_allowed(kafka: Kafka) -> None:
    kafka.create("closed", 1)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": READER, "sasl.password": PASSWORD}

    refused = _first(kafka.with_password, "closed", **login).error()
    kafka.allow("READ", topic="closed")
    kafka.allow("READ", group="test")
    _send(kafka, "closed", b"question")

    assert refused is not None
    assert refused.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
    assert _first(kafka.with_password, "closed", **login).value() == b"question"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_it_listens_on_loopback_only(kafka: Kafka) -> None:
    assert listening(kafka.pid) == {"127.0.0.1"}


def _send(kafka: Kafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.brokers})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def _first(brokers: str, topic: str, **configuration: str):
    """Return the first message of a topic, or the error in its place."""
    values = {"bootstrap.servers": brokers, "group.id": "test", "auto.offset.reset": "earliest", **configuration}
    consumer = Consumer(values)
    try:
        consumer.subscribe([topic])
        found = consumer.poll(60)
        assert found is not None, f"nothing came from {topic}"
        return found
    finally:
        consumer.close()

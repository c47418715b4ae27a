"""Fixtures of every test of a topic: a topic of its own, on the real broker."""

from __future__ import annotations

import itertools

import pytest
from tests.servers.kafka import Kafka

pytest.importorskip("confluent_kafka")

_numbers = itertools.count(1)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic with two partitions for this test only."""
    name = f"spans-{next(_numbers)}"
    kafka.create(name, 2)
    return name

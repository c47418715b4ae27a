"""A worker with a topic and a spool: messages on its disk are committed, and the topic need not keep them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.applications import committed, send, traces
from tests.kafka.worker import configured, working
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.metrics import Waits
from tests.service.process import Serving

from spanscore.scorer import pipeline_of
from spanscore.service import kafka_source

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    Waits.go_on.clear()
    yield
    Waits.go_on.set()


def with_spool(folder: Path, broker: Kafka, topic: str, metric: str, disk: str = "spool.db", **more: Any) -> Path:
    metrics = [f"tests.service.metrics:{metric}"]
    return configured(
        folder, broker, topic, f"{metric}-{disk}.yaml", metrics=metrics, spool={"path": str(folder / disk)}, **more
    )


def test_a_worker_that_is_killed_when_the_offset_is_committed_and_nothing_is_scored_loses_nothing(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    messages = traces(20)
    send(kafka, topic, messages)
    hangs = with_spool(tmp_path, kafka, topic, "Hangs")
    with (
        OtlpReceiver() as backend,
        Serving(hangs, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=backend.endpoint) as first,
    ):
        first.until("kafka: topic")
        poll(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 20, deadline_s=90, what="20 commits")
        first.process.kill()

    with working(with_spool(tmp_path, kafka, topic, "Recovered")) as second:
        second.until(lambda: len(second.scored) == 20, "20 scores")

        assert second.outcomes == {"scored": 20}
        assert sorted(second.scored) == sorted({one.trace for one in messages})
        assert second.scorer.status().received.requests == 0, "none of it was read again"


def test_messages_that_are_read_again_are_recognised_by_the_spool_and_scored_once(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    messages = traces(20)
    file = with_spool(tmp_path, kafka, topic, "Answered")
    for _ in range(2):  # the second time as after an offset that was lost: the same messages once more
        send(kafka, topic, messages)
        with working(file) as worker:
            worker.until(lambda worker=worker: sum(worker.outcomes.values()) == 20, "20 units")
            redelivered = pipeline_of(worker.scorer).queue.redelivered
            poll(lambda: not worker.scorer.status().spool.depth, deadline_s=30, what="an empty spool")

    assert (worker.outcomes, worker.scored, redelivered) == ({"delegated": 20}, [], 20)
    assert worker.eligible == 20


def test_what_is_on_the_disk_stays_here_when_its_partition_goes(
    kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "REVOKE_TIMEOUT_S", 0.0)
    file = with_spool(tmp_path, kafka, topic, "Waits")
    other = with_spool(tmp_path, kafka, topic, "Waits", "other.db")
    send(kafka, topic, traces(20))
    with working(file) as first:
        first.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 20, "20 commits")
        with working(other) as second:
            second.until(lambda: len(second.source.state().partitions) == 1, "a partition")
            Waits.go_on.set()
            first.until(lambda: len({*first.scored}) == 20, "20 scores")

            assert (second.eligible, first.outcomes) == (0, {"scored": 20})

"""Workers of one group: the assignment of partitions, the work of a lost partition, and backpressure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.capture.otlp.test_copies import copy_of, make_unit
from tests.kafka.applications import agents_without_root, committed, send, traces
from tests.kafka.worker import configured, working
from tests.servers import kafka as kafka_server
from tests.servers.kafka import Kafka
from tests.servers.server import poll
from tests.service.metrics import Waits

from spanscore.service import kafka_source

pytestmark = pytest.mark.server

WAITS = "tests.service.metrics:Waits"


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    Waits.go_on.clear()
    yield
    Waits.go_on.set()


def test_twelve_partitions_are_shared_by_three_workers(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("twelve", 12)
    send(kafka, "twelve", traces(60))
    file = configured(tmp_path, kafka, "twelve")
    with ExitStack() as stack:
        workers = [stack.enter_context(working(file)) for _ in range(3)]

        poll(
            lambda: [len(worker.source.state().partitions) for worker in workers] == [4, 4, 4],
            deadline_s=60,
            what="four partitions each",
        )
        poll(lambda: committed(kafka, "twelve", 12, "twelve-workers") == 60, deadline_s=30, what="60 commits")

        scored = [trace for worker in workers for trace in worker.scored]
        assert (len(scored), len(set(scored))) == (60, 60)


def test_a_broker_that_knows_no_new_protocol_is_joined_by_the_old_one(kafka: Kafka, tmp_path: Path) -> None:
    with kafka_server.running(tmp_path, {"group.coordinator.rebalance.protocols": "classic"}) as old:
        old.create("spans", 2)
        send(old, "spans", traces(5))
        file = configured(tmp_path, old, "spans")
        with working(file) as first, working(file) as second:
            for worker in (first, second):
                worker.until(lambda worker=worker: len(worker.source.state().partitions) == 1, "a partition each")
            second.until(lambda: committed(old, "spans", 2, "spans-workers") == 5)

            assert "(classic protocol)" in next(first.source.describe_topic())
            assert len(first.scored + second.scored) == 5


def test_work_that_ends_within_the_grace_is_kept_when_its_partition_goes(
    kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "REVOKE_TIMEOUT_S", 60.0)
    file = configured(tmp_path, kafka, topic, metrics=[WAITS])
    send(kafka, topic, traces(20))
    with working(file) as first:
        first.until(lambda: first.scorer.status().queue[0] == 20, "20 at work")
        with working(file) as second:
            Waits.go_on.set()

            first.until(lambda: len(first.source.state().partitions) == 1, "one partition each")
            first.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 20)

            assert (first.outcomes, second.outcomes) == ({"scored": 20}, {})


def test_work_that_does_not_is_handed_over_and_done_by_the_next(
    kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "REVOKE_TIMEOUT_S", 0.0)
    file = configured(tmp_path, kafka, topic, metrics=[WAITS])
    send(kafka, topic, traces(20))
    with working(file) as first:
        first.until(lambda: first.scorer.status().queue[0] == 20, "20 at work")
        with working(file) as second:
            second.until(lambda: second.eligible, "work that comes over")
            Waits.go_on.set()
            second.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 20)

            assert first.outcomes == {"scored": 20 - second.eligible, "delegated": second.eligible}
            assert second.outcomes == {"scored": second.eligible}
    assert sorted(first.scored + second.scored) == sorted({one.trace for one in traces(20)})


def test_a_backlog_waits_on_the_topic_and_is_never_refused(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    messages = traces(400)
    file = configured(tmp_path, kafka, topic, metrics=[WAITS], limits={"queue_size": 16})
    send(kafka, topic, messages)
    with working(file) as worker:
        worker.until(lambda: worker.source.pressure == "queue", "a full queue, and who has noticed it")
        send(kafka, topic, traces(400, seed=2))
        worker.until(lambda: worker.source.state().lag == 800, "a lag")

        assert worker.scorer.status().received.requests <= 400
        Waits.go_on.set()
        worker.until(lambda: worker.outcomes == {"scored": 800}, within_s=60)


def test_copies_wait_on_the_topic_too_and_are_never_refused(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    file = configured(tmp_path, kafka, topic, metrics=[WAITS], limits={"queue_size": 16})
    send(kafka, topic, [copy_of(make_unit(), Waits.name) for _ in range(200)])
    with working(file) as worker:
        worker.until(lambda: worker.scorer.status().queue[0] >= 12, "a queue that is full of copies")
        Waits.go_on.set()

        worker.until(lambda: sum(worker.outcomes.values()) == 200, within_s=60)
        assert worker.outcomes == {"scored": 200}


def test_a_root_that_does_not_come_holds_its_partition_back_for_so_long(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    file = configured(tmp_path, kafka, topic, kafka={"max_open_age": "500ms"}, units={"orphan_wait": "1h"})
    send(kafka, topic, [agents_without_root(), traces(1)[0].body])

    with working(file) as worker:
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 2)

        assert worker.outcomes == {"scored": 1, "incomplete": 1}

"""Faults of a topic, each with the resulting loss: none, or a counted one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.applications import committed, send, traces
from tests.kafka.worker import Worker, configured, working
from tests.servers.kafka import PASSWORD, READER, Kafka
from tests.servers.server import free_port, poll

from spanscore.config.reading import read_settings
from spanscore.errors import SourceUnavailable
from spanscore.service.confluent_kafka_member import GroupMember
from spanscore.service.kafka_topic import CommitNote, Topic

pytestmark = pytest.mark.server


def test_no_broker_at_the_start_is_said_with_its_address(kafka: Kafka, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    worker = Worker(configured(tmp_path, kafka, "any", kafka={"brokers": [nobody]}))

    with pytest.raises(SourceUnavailable, match=f"{nobody}: no broker answers, 1 s after the start"):
        worker.source.start(1.0)

    worker.end()


@pytest.mark.parametrize(
    ("password", "allowed", "words"),
    [
        (PASSWORD, "", "do not let us read the topic {topic}"),
        (PASSWORD, "topic", "do not let us join the group {topic}-workers"),
        ("wrong", "topic", "refuse name, password, token or certificate"),
    ],
)
def test_the_topic_or_group_that_may_not_be_read_is_named(
    kafka: Kafka, topic: str, tmp_path: Path, password: str, allowed: str, words: str
) -> None:
    if allowed:
        kafka.allow("READ", topic=topic)
    worker = Worker(configured(tmp_path, kafka, topic, kafka=with_password(kafka, tmp_path, password)))

    with pytest.raises(SourceUnavailable, match=words.format(topic=topic)):
        worker.source.start(5.0)

    worker.end()


def test_who_may_read_by_its_password_does(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    kafka.allow("READ", topic=topic)
    kafka.allow("READ", group=f"{topic}-workers")
    send(kafka, topic, traces(1))

    with working(configured(tmp_path, kafka, topic, kafka=with_password(kafka, tmp_path, PASSWORD))) as worker:
        worker.until(lambda: worker.outcomes == {"scored": 1})


def test_a_topic_that_is_missing_is_said_once_and_read_when_it_is_there(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with working(configured(tmp_path, kafka, "later")) as worker:
        assert "no topic later" in worker.source.unready()

        kafka.create("later", 2)
        send(kafka, "later", traces(3))

        worker.until(lambda: worker.outcomes == {"scored": 3})
        assert worker.source.unready() == ""
    assert [record for record in caplog.messages if "no topic" in record] == [
        "spanscore: there is no topic later; it is read as soon as there is one"
    ]


def test_nothing_is_lost_while_the_brokers_are_away(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    send(kafka, topic, traces(20))
    with working(configured(tmp_path, kafka, topic)) as worker:
        worker.until(lambda: len(worker.scored) == 20)

        kafka.stop()
        worker.until(lambda: "no broker" in worker.source.unready())
        kafka.start()
        send(kafka, topic, traces(20, seed=2))

        worker.until(lambda: len(worker.scored) == 40)
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 40)
        worker.until(lambda: worker.source.unready() == "")
    assert (len(set(worker.scored)), worker.outcomes) == (40, {"scored": 40})


def test_a_commit_that_no_broker_answers_holds_up_nobody(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    """The client keeps the commit until a broker answers, perhaps for hours; the poll loop must continue to log the fault."""
    settings = read_settings(configured(tmp_path, kafka, topic)).settings
    begun, answers = dict[int, Any](), list[Any]()
    source = SimpleNamespace(
        on_assigned=begun.update,
        on_revoked=lambda _: None,
        on_lost=lambda _: None,
        on_problem=lambda _: None,
        on_committed=lambda *answer: answers.append(answer),
    )
    member = GroupMember(settings.kafka, source)
    member.join(10)
    poll(lambda: [*member.messages()] or len(begun) == 2, deadline_s=30, what="both partitions")
    kafka.stop()

    offsets = {0: (1, CommitNote(""))}
    asking = Thread(target=member.commit, args=(offsets,), daemon=True)
    asking.start()
    asking.join(20)
    is_held_up = asking.is_alive()
    kafka.start()
    deadlines = [monotonic() + 40]

    def is_committed() -> bool:
        for _ in member.messages():
            pass
        is_refused = bool(answers) and not answers[-1][1]
        if is_refused or monotonic() > deadlines[-1]:  # the source commits anew as well
            answers.clear()
            deadlines.append(monotonic() + 40)
            member.commit(offsets)
        return ({0: 1}, True) in answers

    assert not is_held_up
    poll(is_committed, deadline_s=100, what="an answer")
    member.close()


def test_messages_that_were_deleted_before_they_were_read_are_counted(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    file = configured(tmp_path, kafka, topic)
    send(kafka, topic, traces(10))
    with working(file) as before:
        before.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 10)
    send(kafka, topic, traces(30, seed=2))
    kafka.delete_all(topic, 2)
    send(kafka, topic, traces(10, seed=3))

    with working(file) as worker:
        worker.until(lambda: worker.outcomes == {"scored": 10})

        assert worker.source.state().skipped == 30


def test_a_topic_that_ends_before_the_committed_offset_is_read_from_where_it_is(
    kafka: Kafka, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit(kafka, topic, {0: 1_000, 1: 1_000})
    send(kafka, topic, traces(50))

    with working(configured(tmp_path, kafka, topic)) as worker:
        worker.until(lambda: len(worker.scored) == 50, "the topic's own traces")
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 50)
        send(kafka, topic, traces(10, seed=2))
        worker.until(lambda: len(worker.scored) == 60, "the traces after them")

    assert len([one for one in caplog.messages if "ends before the next offset, 1000" in one]) == 2


@pytest.mark.parametrize("times", [1, 5])
def test_a_message_that_raises_loses_no_other(
    kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    sent = traces(40)
    send(kafka, topic, sent)
    worker = Worker(configured(tmp_path, kafka, topic))
    take, left = Topic.take, [times]

    def raising(read: Topic, partition: int, offset: int, log_ns: int | None, value: bytes | None) -> None:
        if value == sent[20].body and left[0]:
            left[0] -= 1
            raise RuntimeError
        take(read, partition, offset, log_ns, value)

    monkeypatch.setattr(Topic, "take", raising)
    worker.source.start(30.0)
    scores, skipped = (40, 0) if times == 1 else (39, 1)
    worker.until(lambda: len(worker.scored) == scores, "all but a message that raises again")
    worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 40)
    worker.end()

    assert (len({*worker.scored}), worker.source.state().skipped) == (scores, skipped)


def commit(kafka: Kafka, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets for the workers of a topic, as if they had read so far."""
    client = Consumer({"bootstrap.servers": kafka.brokers, "group.id": f"{topic}-workers", "log_level": 0})
    client.commit(
        offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()], asynchronous=False
    )
    client.close()


def test_other_metrics_in_one_group_are_said_once(
    kafka: Kafka, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    send(kafka, topic, traces(10))
    with working(configured(tmp_path, kafka, topic)) as one:
        one.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 10)

    with working(configured(tmp_path, kafka, topic, "other.yaml", metrics=["string_presence"])):
        pass

    assert len([record for record in caplog.messages if "with other metrics" in record]) == 1


def with_password(kafka: Kafka, folder: Path, password: str) -> dict[str, Any]:
    """Return the properties of a client with a name and a password."""
    (folder / "name").write_text(READER)
    (folder / "password").write_text(password)
    files = {"username_file": str(folder / "name"), "password_file": str(folder / "password")}
    return {"brokers": [kafka.with_password], "security": {"protocol": "SASL_PLAINTEXT", **files}}

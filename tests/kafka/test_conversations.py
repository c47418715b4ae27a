"""Conversations over several workers: a partial one is marked incomplete, and none is counted twice."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.conversations import SESSIONS, TALKED, counted, rounds, say
from tests.kafka.test_workers import working_process
from tests.kafka.worker import Worker, configured, working
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.service.process import Serving

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

NAMES = [f"talk-{number}" for number in range(12)]


def talking(folder: Path, broker: Kafka, topic: str, **more: Any) -> Path:
    return configured(folder, broker, topic, metrics=[TALKED], sessions=SESSIONS, **more)


def scores_of(*workers: Worker) -> Any:
    return counted(chain.from_iterable(worker.emitted.get_finished_spans() for worker in workers))


def assert_adds_up(*workers: Worker) -> None:
    assert [worker.eligible for worker in workers] == [sum(worker.outcomes.values()) for worker in workers]


def test_one_worker_that_has_every_partition_scores_each_conversation_whole(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    with working(talking(tmp_path, kafka, topic)) as worker:
        for turns in rounds(NAMES, 3, pause_s=0.3):
            say(kafka, topic, turns)
        worker.until(lambda: sum(worker.outcomes.values()) == len(NAMES), "every conversation")

        assert worker.outcomes == {"scored": len(NAMES)}
        assert worker.scorer.status().sessions.pieces == ""


def test_several_workers_of_a_topic_keyed_by_trace_count_no_piece_as_whole(
    kafka: Kafka, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = talking(tmp_path, kafka, topic)
    with working(file) as first, working(file) as second:
        for worker in (first, second):
            worker.until(lambda worker=worker: len(worker.source.state().partitions) == 1, "a partition each")
        for turns in rounds(NAMES, 4, pause_s=0.3):
            say(kafka, topic, turns)
        for worker in (first, second):
            worker.until(lambda worker=worker: worker.eligible and worker.scorer.status().sessions.open == 0)

        assert {*first.outcomes} == {*second.outcomes} == {"incomplete"}
        assert "kafka.key: conversation" in str(first.scorer.status())
        assert_adds_up(first, second)
    assert scores_of(first, second) == {}


def test_several_workers_of_a_topic_keyed_by_conversation_score_each_once(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    file = talking(tmp_path, kafka, topic, kafka={"key": "conversation"})
    with working(file) as first, working(file) as second:
        for worker in (first, second):
            worker.until(lambda worker=worker: len(worker.source.state().partitions) == 1, "a partition each")
        for turns in rounds(NAMES, 4, pause_s=0.3):
            say(kafka, topic, turns, by="conversation")
        poll(lambda: len(scores_of(first, second)) == len(NAMES), deadline_s=30, what="every conversation")
        first.until(lambda: first.scorer.status().sessions.open == 0)

        assert {*first.outcomes} == {*second.outcomes} == {"scored"}
        assert_adds_up(first, second)
    assert scores_of(first, second) == dict.fromkeys(NAMES, 1)


def test_a_conversation_that_goes_on_at_another_worker_is_counted_by_neither(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    file = talking(tmp_path, kafka, topic, kafka={"key": "conversation"})
    turns = rounds(NAMES, 4, pause_s=0.2)
    with working(file) as first:
        say(kafka, topic, next(turns) + next(turns), by="conversation")
        first.until(lambda: first.scorer.status().sessions.open == len(NAMES), "every conversation")
        with working(file) as second:
            second.until(lambda: len(second.source.state().partitions) == 1, "a partition")
            for more in turns:
                say(kafka, topic, more, by="conversation")
            second.until(lambda: sum(second.outcomes.values()) and not second.scorer.status().sessions.open)
            first.until(lambda: sum(first.outcomes.values()) == len(NAMES), "every conversation")
            moved = second.outcomes["incomplete"]

            assert second.outcomes == {"incomplete": moved}
            assert first.outcomes == {"scored": len(NAMES) - moved, "incomplete": moved}
            assert_adds_up(first, second)


def test_a_worker_that_starts_where_another_was_takes_what_begins_at_once_for_pieces_and_later_ones_for_whole(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    file = talking(tmp_path, kafka, topic)
    turns = rounds(["cut"], 3, pause_s=0.2)
    with working(file) as first:
        say(kafka, topic, next(turns))
        first.until(lambda: first.scorer.status().sessions.open == 1, "a conversation")
    with working(file) as second:
        for more in turns:
            say(kafka, topic, more)
        second.until(lambda: second.outcomes == {"incomplete": 1}, "the rest of it")
        for more in rounds(["later"], 2, pause_s=0.2):
            say(kafka, topic, more)

        second.until(lambda: second.outcomes == {"incomplete": 1, "scored": 1}, "one that began later")
    assert scores_of(first, second) == {"cut": 1, "later": 1}


@pytest.mark.timeout(240)
def test_a_worker_that_is_killed_leaves_no_conversation_that_is_counted_twice(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("talks", 6)
    names = [f"talk-{number}" for number in range(30)]
    file = talking(tmp_path, kafka, "talks", kafka={"key": "conversation"})
    with OtlpReceiver() as backend, ExitStack() as stack:
        workers = [stack.enter_context(working_process(file, backend)) for _ in range(3)]
        for worker in workers:
            worker.until("kafka: topic talks")
        for number, turns in enumerate(rounds(names, 24, pause_s=0.7)):
            say(kafka, "talks", turns, by="conversation")
            if number == 3:
                workers[0].process.kill()
            if number == 4:  # some seconds later it is there, and partitions of the others move to it
                workers.append(stack.enter_context(working_process(file, backend)))
        time.sleep(4)  # until the continuing conversations have ended, so that new ones belong to no other worker
        for turns in rounds(after := [f"after-{number}" for number in range(12)], 2, pause_s=0.5):
            say(kafka, "talks", turns, by="conversation")
        poll(lambda: {*after} <= {*counted(backend.spans)}, deadline_s=30, what="conversations after the kill")
        for worker in workers[1:]:
            worker.process.terminate()
        assert [worker.ended() for worker in workers[1:]] == [0, 0, 0]

    assert max(counted(backend.spans).values()) == 1
    for worker in workers[1:]:
        eligible, ended = worker.until(r"talked: eligible ([\d,]+): (.+)").groups()
        assert int(eligible) == sum(map(int, re.findall(r"\b\w+ (\d+)", ended))), ended


def test_several_processes_of_a_topic_that_is_keyed_by_trace_are_a_fault_of_the_configuration(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    with Serving(talking(tmp_path, kafka, topic), "--processes", "2", command="worker") as worker:
        assert worker.ended() == 2

    assert "kafka.key: conversation" in " ".join(worker.lines)

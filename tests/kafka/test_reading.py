"""Messages on a topic are scored, and committed after their scores are exported; unreadable ones are counted and skipped."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.kafka.applications import committed, send, traces
from tests.kafka.worker import configured, working
from tests.servers.kafka import Kafka
from tests.service.agents import agent_run, requests_of

from spanscore import semconv

pytestmark = pytest.mark.server


def test_what_stands_on_a_topic_is_scored_once_and_committed(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    messages = traces(40, messages=2)
    send(kafka, topic, messages)

    with working(configured(tmp_path, kafka, topic)) as worker:
        worker.until(lambda: len(worker.scored) == 40, "40 scores")
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 80, "80 committed messages")

        assert sorted(worker.scored) == sorted({message.trace for message in messages})
        assert (worker.eligible, worker.outcomes) == (40, {"scored": 40})


def test_what_is_open_when_a_worker_ends_is_read_again_and_nothing_else(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    begun = [message for message in traces(1, messages=2, seed=2) if not message.has_root]
    rest = [message for message in traces(1, messages=2, seed=2) if message.has_root]
    file = configured(tmp_path, kafka, topic)
    send(kafka, topic, [*begun, *traces(20)])
    with working(file) as first:
        first.until(lambda: len(first.scored) == 20, "20 scores")
    send(kafka, topic, rest)

    with working(file) as second:
        second.until(lambda: second.scored == [begun[0].trace], "the score of the trace that was open")

        assert (first.outcomes, second.outcomes) == ({"scored": 20}, {"scored": 1})
        assert first.source.state().dropped == 1
        assert second.scorer.status().received.late == 0


def test_the_lag_is_reported_in_messages_and_in_seconds(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    def lags(name: str) -> list[float]:
        return [point.values[name] for point in worker.source.points().values() if name in point.values]

    first, last = traces(1, messages=2)
    send(kafka, topic, [first])
    with working(configured(tmp_path, kafka, topic, units={"orphan_wait": "60s"})) as worker:
        worker.until(lambda: lags(semconv.WORKER_LAG) == [1], "a message that is not settled")
        worker.until(lambda: lags(semconv.WORKER_TIME_LAG)[0] > 1.5, "seconds of lag")
        send(kafka, topic, [last])

        worker.until(lambda: {*lags(semconv.WORKER_LAG), *lags(semconv.WORKER_TIME_LAG)} == {0}, "no lag")


def test_a_partition_that_goes_while_its_worker_ends_takes_nothing_open_with_it(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    send(kafka, topic, [message for message in traces(1, messages=2) if not message.has_root])
    with working(configured(tmp_path, kafka, topic)) as worker:
        worker.until(lambda: worker.scorer.status().received.open == 1, "an open trace")

        worker.source.pause()
        worker.scorer.shutdown(5.0)

        worker.source.on_revoked([0, 1])
    assert committed(kafka, topic, 2, f"{topic}-workers") == 0


def test_what_cannot_be_read_is_counted_and_passed(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    send(kafka, topic, [b"no spans", b"", traces(1)[0].body])

    with working(configured(tmp_path, kafka, topic, serve={"limits": {"inflated": "2MB"}})) as worker:
        send(kafka, topic, [_large(3_000_000)], **{"message.max.bytes": 16_000_000})
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 4, "4 committed messages")

        assert worker.outcomes == {"scored": 1}
        assert worker.scorer.status().received.refused == {"unreadable": 1, "too_large": 1}


def test_a_message_of_five_megabytes_is_scored(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    send(kafka, topic, [_large(5_000_000)], **{"message.max.bytes": 16_000_000})

    with working(configured(tmp_path, kafka, topic)) as worker:
        worker.until(lambda: worker.outcomes == {"scored": 1}, "a score")


def test_no_evaluation_is_evaluated(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    spans = agent_run(Random(3))
    ours = [*requests_of(spans, 4, semconv.SCOPE), *requests_of(spans, 4, semconv.JUDGE_SCOPE)]
    send(kafka, topic, [*ours, traces(1)[0].body])

    with working(configured(tmp_path, kafka, topic)) as worker:
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == 3, "3 committed messages")

        assert (worker.eligible, worker.scorer.status().received.ours) == (1, 8)


def _large(size: int) -> bytes:
    spans = agent_run(Random(4))
    spans[0].attributes.add(key="gen_ai.system_instructions").value.string_value = "x" * size
    return requests_of(spans, len(spans))[0]

"""Workers share a topic: no message is lost when one is killed and one is added, and no trace is split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.kafka.applications import committed, send, traces
from tests.kafka.worker import configured
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver, ReceivedSpan
from tests.servers.server import poll
from tests.service.process import Serving

from spanscore import semconv

pytestmark = pytest.mark.server


@pytest.mark.timeout(180)
def test_nothing_is_lost_when_one_of_three_is_killed_and_one_is_added(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create("shared", 6)
    sent = traces(2_000, messages=3)
    file = configured(tmp_path, kafka, "shared")
    with OtlpReceiver() as to_killed, OtlpReceiver() as to_others, ExitStack() as stack:
        killed = stack.enter_context(working_process(file, to_killed))
        others = [stack.enter_context(working_process(file, to_others)) for _ in range(2)]
        for worker in (killed, *others):
            worker.until("kafka: topic shared")
        send(kafka, "shared", sent[:2_000])
        assert to_killed.wait_for(lambda: scores(to_killed), 60)
        killed.process.kill()
        send(kafka, "shared", sent[2_000:4_000])
        others.append(stack.enter_context(working_process(file, to_others)))
        others[-1].until("kafka: topic shared")
        send(kafka, "shared", sent[4_000:])
        poll(lambda: committed(kafka, "shared", 6, "shared-workers") == 6_000, deadline_s=90, what="6,000 commits")
        for worker in others:
            worker.process.terminate()
        assert [worker.ended() for worker in others] == [0, 0, 0]

    assert_each_is_scored({int(one.trace, 16) for one in sent}, scores(to_killed), scores(to_others))
    assert_adds_up(others, scores(to_others))


def assert_each_is_scored(sent: set[int], by_killed: Sequence[ReceivedSpan], by_others: Sequence[ReceivedSpan]) -> None:
    """A repeated unit was scored by the worker that died before its commit; by its id it has one score."""
    everywhere = [*by_killed, *by_others]
    assert {score.trace_id for score in everywhere} == sent
    assert len({score.trace_id for score in by_others}) == len(by_others)
    assert len({score.span_id for score in everywhere}) == len(sent)


def assert_adds_up(workers: Sequence[Serving], found: Sequence[ReceivedSpan]) -> None:
    """Each unit that was eligible with a worker ended there in one outcome, and no trace was torn apart."""
    rows = [worker.until(r"answered: eligible ([\d,]+): (.+)") for worker in workers]
    ended = [dict(re.findall(r"(\w+) ([\d,]+)", one[2])) for one in rows]
    assert all(number(one[1]) == sum(map(number, by.values())) > 0 for one, by in zip(rows, ended, strict=True))
    assert sum(number(by["scored"]) for by in ended) == len(found)
    assert {outcome for by in ended for outcome in by} <= {"scored", "delegated"}
    torn = ("came when their unit had closed", "dropped, because their root never came")
    assert not [line for worker in workers for line in worker.lines if any(words in line for words in torn)]


def working_process(file: Path, backend: OtlpReceiver) -> Serving:
    return Serving(file, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=backend.endpoint)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def scores(backend: OtlpReceiver) -> list[ReceivedSpan]:
    return [span for span in backend.spans if semconv.EVALUATION_NAME in span.attributes]

"""Content in log records of a second topic is joined to the spans of the first, in any order, by any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from tests.capture.test_log_content import FORMS, Application, Record, of_aws, said
from tests.kafka.applications import committed
from tests.kafka.worker import Worker, configured, working
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port, poll
from tests.service.process import Serving

from spanscore import semconv
from spanscore.metrics import BaseMetric, Finding

pytestmark = pytest.mark.server

METRIC = f"{__name__}:Heard"
HOUR_MS = 3_600_000


class Heard(BaseMetric):
    """1 for every answer; keeps questions and answers."""

    name = "heard"
    requires = {"single_turn": ("user_input", "response")}  # noqa: RUF012
    samples: list[tuple[str, str]] = []  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        self.samples.append((sample.user_input, sample.response))
        return Finding(value=1.0)


@pytest.fixture(autouse=True)
def samples() -> list[tuple[str, str]]:
    Heard.samples.clear()
    return Heard.samples


class Call(NamedTuple):
    """A model call: its span, and the log records with its content."""

    trace: str
    spans: bytes
    logs: bytes


def call(number: int, records: list[Record] | None = None) -> Call:
    application = Application()
    application.call(asked(number) if records is None else records)
    (span,) = application.spans.get_finished_spans()
    return Call(f"{span.context.trace_id:032x}", application.spans_sent(), application.logs_sent())


def asked(number: int, *, size: int = 0) -> list[Record]:
    held = {
        semconv.INPUT_MESSAGES: said("user", f"q{number}"),
        semconv.OUTPUT_MESSAGES: said("assistant", f"a{number}"),
    }
    return [(semconv.DETAILS_EVENT, {**held, "other": "x" * size}, None)]


def pairs(numbers: Iterable[int]) -> list[tuple[str, str]]:
    return sorted((f"q{number}", f"a{number}") for number in numbers)


class Topics(NamedTuple):
    """A topic of spans and one of logs, with other numbers of partitions."""

    kafka: Kafka
    spans: str
    logs: str

    def write(
        self,
        calls: Iterable[Call],
        *,
        at_ms: Callable[[int], int] | None = None,
        what: str = "both",
        spans_partition: Callable[[int], int] = lambda _: -1,
    ) -> None:
        """Write spans and log records; the records without a key, like the Collector's by default."""
        producer = Producer({"bootstrap.servers": self.kafka.brokers, "partitioner": "fnv1a", "log_level": 0})
        for number, one in enumerate(calls):
            when = {} if at_ms is None else {"timestamp": at_ms(number)}
            if what in {"both", "logs"}:
                producer.produce(self.logs, one.logs, partition=number % 3, **when)
            if what in {"both", "spans"}:
                producer.produce(self.spans, one.spans, one.trace, spans_partition(number), **when)
            producer.poll(0)
        assert producer.flush(60) == 0

    def settings(self, folder: Path, **more: Any) -> Path:
        kafka = {"logs_topic": self.logs, **more.pop("kafka", {})}
        return configured(folder, self.kafka, self.spans, kafka=kafka, metrics=[METRIC], **more)

    def committed(self) -> int:
        return committed(self.kafka, self.spans, 2, f"{self.spans}-workers")


@pytest.fixture
def topics(kafka: Kafka, topic: str) -> Topics:
    kafka.create(f"{topic}-logs", 3)
    return Topics(kafka, topic, f"{topic}-logs")


def page(url: str) -> str:
    with urlopen(url) as answer:
        return " ".join(str(answer.read()).split())


def adds_up(worker: Worker) -> bool:
    return worker.eligible == sum(worker.scorer.status().outcomes["heard"].values())


@pytest.mark.parametrize("form", FORMS)
def test_records_of_each_form_are_joined(
    form: Callable[[], list[Record]], topics: Topics, tmp_path: Path, samples: list[Any]
) -> None:
    one = call(0, form())
    with working(topics.settings(tmp_path)) as worker:
        topics.write([one])
        worker.until(lambda: worker.outcomes == {"scored": 1})

    assert samples == [("What is the capital of France?", "Paris is the capital of France.")]


@pytest.mark.parametrize("first", ["logs", "spans"])
def test_whichever_come_first(first: str, topics: Topics, tmp_path: Path, samples: list[Any]) -> None:
    calls = [call(number) for number in range(20)]
    with working(topics.settings(tmp_path, units={"idle_timeout": "2s"})) as worker:
        for what in ("logs", "spans") if first == "logs" else ("spans", "logs"):
            topics.write(calls, what=what)
        worker.until(lambda: worker.outcomes == {"scored": 20})

        assert "20 joined to their span, 0 waiting" in " ".join(str(worker.scorer.status()).split())
    assert sorted(samples) == pairs(range(20))


def test_records_that_come_long_after_are_named_and_counted(topics: Topics, tmp_path: Path) -> None:
    early, late = call(1), call(2)
    with working(topics.settings(tmp_path)) as worker:
        topics.write([early])
        worker.until(lambda: worker.outcomes == {"scored": 1})
        topics.write([late], what="spans")
        worker.until(lambda: worker.outcomes == {"scored": 1, "no_sample": 1})
        topics.write([late], what="logs")
        worker.until(lambda: "1 joined to their span, 1 waiting" in " ".join(str(worker.scorer.status()).split()))

        assert "which had not arrived" in str(worker.scorer.explain(late.trace)[0])
        assert adds_up(worker)


def test_a_backlog_of_hours_is_joined_although_one_partition_is_far_longer(
    topics: Topics, tmp_path: Path, samples: list[Any]
) -> None:
    """The records take four times the room that there is for them, so they may be read only as far ahead as the spans."""
    calls = [call(number, asked(number, size=8_000)) for number in range(600)]
    now_ms = time_ns() // 1_000_000
    at_ms = [now_ms - 2 * HOUR_MS + number * 10_000 for number in range(600)]
    topics.write(calls, at_ms=at_ms.__getitem__, spans_partition=lambda number: int(number % 10 == 0))
    with working(topics.settings(tmp_path, units={"bytes": "6MB"})) as worker:
        worker.until(lambda: sum(worker.outcomes.values()) == 600, within_s=90)
        worker.until(lambda: topics.committed() == 600)

        assert adds_up(worker)
        assert worker.scorer.status().received.logs.dropped == 0
    assert sorted(samples) == pairs(range(600))


def test_a_worker_that_follows_one_that_was_killed_reads_the_records_again(
    topics: Topics, tmp_path: Path, samples: list[Any]
) -> None:
    calls = [call(number) for number in range(40)]
    long_ago_ms = time_ns() // 1_000_000 - HOUR_MS
    topics.write(calls, at_ms=lambda number: long_ago_ms + 100 * number)
    file = topics.settings(tmp_path, units={"idle_timeout": "1h"}, serve_metrics=free_port())
    with (
        OtlpReceiver() as backend,
        Serving(file, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=backend.endpoint) as killed,
    ):
        status = f"http://{killed.page}/status"
        poll(lambda: "40 waiting for it" in page(status), deadline_s=30, what="40 records")
        poll(lambda: "40 traces open" in page(status), deadline_s=30, what="40 traces")
        killed.process.kill()
    assert topics.committed() <= 0

    with working(topics.settings(tmp_path)) as worker:
        worker.until(lambda: worker.outcomes == {"scored": 40})
    assert sorted(samples) == pairs(range(40))


def test_several_workers_score_each_trace_with_its_content(topics: Topics, tmp_path: Path, samples: list[Any]) -> None:
    calls = [call(number) for number in range(300)]
    file = topics.settings(tmp_path)
    with ExitStack() as stack:
        workers = [stack.enter_context(working(file))]
        topics.write(calls[:100])
        workers.append(stack.enter_context(working(file)))
        topics.write(calls[100:200])
        workers[0].until(lambda: len({*samples}) >= 100)
        workers.append(stack.enter_context(working(file)))
        topics.write(calls[200:])
        workers[0].until(lambda: len({*samples}) == 300, within_s=60)
        workers[0].until(lambda: topics.committed() == 300)
        assert all(map(adds_up, workers))
        assert not any("no_sample" in worker.outcomes for worker in workers)


def test_hostile_records_take_no_more_than_their_share(topics: Topics, tmp_path: Path, samples: list[Any]) -> None:
    hostile = [call(number, of_aws(answer="x" * 1_000)) for number in range(100)]
    bodies = [*[one.logs for one in hostile] * 100, b"gen_ai. no logs", b"", b"\xff" * 100 + b"messages"]
    producer = Producer({"bootstrap.servers": topics.kafka.brokers, "log_level": 0})
    with working(topics.settings(tmp_path, units={"bytes": "2MB"})) as worker:
        for number, body in enumerate(bodies):
            producer.produce(topics.logs, body, partition=number % 3)
            producer.poll(0)
        assert producer.flush(60) == 0
        worker.until(lambda: worker.scorer.status().received.refused.get("unreadable") == 2)
        topics.write([call(number) for number in range(10)])
        worker.until(lambda: worker.outcomes == {"scored": 10})

        logs = worker.scorer.status().received.logs
        assert logs.joined + logs.waiting + logs.unjoined + logs.dropped == 10_010
        assert logs.waiting < 500  # of 1 kB each, in a quarter of units.bytes
        assert adds_up(worker)
    assert sorted(samples) == pairs(range(10))


def test_while_there_is_no_topic_of_logs_units_wait_and_it_is_said(
    kafka: Kafka, topic: str, tmp_path: Path, samples: list[Any]
) -> None:
    topics = Topics(kafka, topic, f"{topic}-logs")
    calls = [call(number) for number in range(5)]
    with working(topics.settings(tmp_path)) as worker:
        topics.write(calls, what="spans")
        worker.until(lambda: f"no topic {topics.logs}" in worker.source.unready())
        worker.until(lambda: worker.source.state().held)
        assert worker.outcomes == {}
        kafka.create(topics.logs, 3)
        topics.write(calls, what="logs")
        worker.until(lambda: worker.outcomes == {"scored": 5})
        worker.until(lambda: worker.source.unready() == "")


def test_nothing_is_lost_while_the_brokers_are_away(topics: Topics, tmp_path: Path, samples: list[Any]) -> None:
    with working(topics.settings(tmp_path)) as worker:
        topics.write([call(number) for number in range(20)])
        worker.until(lambda: len(samples) == 20)
        topics.kafka.stop()
        worker.until(lambda: "no broker" in worker.source.unready())
        topics.kafka.start()
        topics.write([call(number) for number in range(20, 40)])
        worker.until(lambda: worker.outcomes == {"scored": 40}, within_s=60)
        worker.until(lambda: worker.source.unready() == "", within_s=60)
    assert sorted(samples) == pairs(range(40))

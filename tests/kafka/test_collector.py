"""The shipped Collector's file writes messages that a worker reads: one application's spans end as scores in its backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from tests.kafka.applications import committed
from tests.kafka.worker import configured, working
from tests.servers.kafka import Kafka
from tests.servers.openai_api import OpenAIServer
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port, poll
from tests.service.process import Serving, a_run
from tests.traces import event_only
from tests.traces.said import answer

from spanscore import semconv

pytestmark = pytest.mark.server

SAMPLER = """
processors:
  tail_sampling:
    decision_wait: 1s
    policies: [{name: quarter, type: probabilistic, probabilistic: {sampling_percentage: 25}}]
service:
  pipelines:
    traces/spanscore: {receivers: [otlp], processors: [filter/evaluators, tail_sampling, batch], exporters: [kafka]}
"""
FILE = Path(__file__).parents[2] / "integrations" / "collector" / "kafka.yaml"


def test_spans_that_a_collector_writes_to_a_topic_are_scored(
    collector: ModuleType, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    runs = [a_run() for _ in range(20)]
    with OtlpReceiver() as backend, collecting(collector, kafka, topic, tmp_path, backend) as endpoint:
        file = configured(tmp_path, kafka, topic)
        with Serving(file, command="worker", OTEL_EXPORTER_OTLP_ENDPOINT=backend.endpoint) as worker:
            worker.until("kafka: topic")
            assert OTLPSpanExporter(f"{endpoint}/v1/traces").export(runs) is SpanExportResult.SUCCESS

            assert backend.wait_for(lambda: len(scores(backend)) == 20, 60)
            worker.process.terminate()
            assert worker.ended() == 0

    assert scores(backend) == {run.context.trace_id for run in runs}
    assert not [line for line in worker.lines if "have no key" in line]


def test_a_sampler_before_the_topic_states_its_share(
    collector: ModuleType, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    """The content of unsampled traces crosses no broker, and each score has the weight of the sampler's share."""
    runs = [a_run() for _ in range(400)]
    with (
        OtlpReceiver() as backend,
        collecting(collector, kafka, topic, tmp_path, backend, sampler=True) as endpoint,
        working(configured(tmp_path, kafka, topic)) as worker,
    ):
        assert OTLPSpanExporter(f"{endpoint}/v1/traces").export(runs) is SpanExportResult.SUCCESS
        worker.until(lambda: len(worker.scored) > 50, "a quarter of the traces")
        worker.until(lambda: committed(kafka, topic, 2, f"{topic}-workers") == worker.eligible, "all of them")
        thresholds = {span.attributes[semconv.SAMPLING_THRESHOLD] for span in worker.evaluations}

        assert len(worker.scored) == worker.eligible == pytest.approx(100, abs=45)
        assert thresholds == {"c0000000000000"}, "a probability of a quarter"
        assert worker.scorer.status().head_sampling == {"th": worker.eligible, "configured": 0, "unknown": 0}


def test_content_in_log_records_gives_the_samples_of_content_on_spans(
    collector: ModuleType, kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.instrumentation.genai.openai")
    kafka.create(logs_topic := f"{topic}-logs", 3)
    monkeypatch.setenv(event_only.SAMPLES_ENV, str(tmp_path / "samples"))
    more: Any = {"kafka": {"logs_topic": logs_topic}, "metrics": event_only.METRICS, "units": {"idle_timeout": "3s"}}
    with (
        OtlpReceiver() as backend,
        OpenAIServer(answer) as model,
        collecting(collector, kafka, topic, tmp_path, backend, KAFKA_LOGS_TOPIC=logs_topic) as endpoint,
        working(configured(tmp_path, kafka, topic, **more)) as worker,
    ):
        for form in event_only.FORMS:
            event_only.run(form, model.url, endpoint=endpoint)
        units = event_only.CALLS * len(event_only.FORMS)
        status = worker.scorer.status
        poll(
            lambda: {sum(ended.values()) for ended in status().outcomes.values()} == {units},
            deadline_s=30,
            what="units",
        )
        assert {*status().eligible.values()} == {units}

    assert event_only.differing_samples(tmp_path / "samples") == {}


def scores(backend: OtlpReceiver) -> set[int]:
    return {span.trace_id for span in backend.spans if semconv.EVALUATION_NAME in span.attributes}


@contextmanager
def collecting(
    collector: ModuleType,
    kafka: Kafka,
    topic: str,
    folder: Path,
    backend: OtlpReceiver,
    *,
    sampler: bool = False,
    **more: str,
) -> Iterator[str]:
    """Run the Collector with the shipped file, with or without the page's sampler; yield the applications' address."""
    http, health = free_port(), free_port()
    environment = {
        "OTLP_HTTP_LISTEN": f"127.0.0.1:{http}",
        "OTLP_GRPC_LISTEN": f"127.0.0.1:{free_port()}",
        "HEALTH_LISTEN": f"127.0.0.1:{health}",
        "TRACES_OTLP_ENDPOINT": backend.endpoint,
        "KAFKA_BROKER": kafka.brokers,
        "KAFKA_TOPIC": topic,
        "BATCH_TIMEOUT": "100ms",
        **more,
    }
    collector.validate(FILE, environment)
    files, gates = [FILE], ""
    if sampler:
        files.append(folder / "sampler.yaml")
        files[-1].write_text(SAMPLER)
        gates = "processor.tailsamplingprocessor.usetracestate"
    with collector.running(folder, *files, environment=environment, health=health, gates=gates):
        yield f"http://127.0.0.1:{http}"

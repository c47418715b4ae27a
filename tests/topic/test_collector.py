"""The shipped Collector's file writes what a worker reads: one application's spans end as scores in its backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from tests.servers.kafka import Kafka
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port
from tests.service.process import Serving, a_run
from tests.topic.worker import configured

from spanscore import semconv

pytestmark = pytest.mark.server

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


def scores(backend: OtlpReceiver) -> set[int]:
    return {span.trace_id for span in backend.spans if semconv.EVALUATION_NAME in span.attributes}


@contextmanager
def collecting(collector: ModuleType, kafka: Kafka, topic: str, folder: Path, backend: OtlpReceiver) -> Iterator[str]:
    """Run the Collector by the shipped file; yield where applications send."""
    http, health = free_port(), free_port()
    environment = {
        "OTLP_HTTP_LISTEN": f"127.0.0.1:{http}",
        "OTLP_GRPC_LISTEN": f"127.0.0.1:{free_port()}",
        "HEALTH_LISTEN": f"127.0.0.1:{health}",
        "TRACES_OTLP_ENDPOINT": backend.endpoint,
        "KAFKA_BROKER": kafka.brokers,
        "KAFKA_TOPIC": topic,
        "BATCH_TIMEOUT": "100ms",
    }
    collector.validate(FILE, environment)
    with collector.running(folder, FILE, environment=environment, health=health):
        yield f"http://127.0.0.1:{http}"

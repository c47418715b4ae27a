"""The Collector's configuration thins traces out, and never a scored one."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.integrations.stage import INTEGRATIONS
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port

from spanscore import semconv

UNSCORED, SCORED = 200, 20


@pytest.mark.server
@pytest.mark.parametrize(
    "attributes",
    [{semconv.STATUS: "scored"}, {semconv.STATUS: "pending"}, {semconv.OPERATION_NAME: semconv.EVALUATION}],
    ids=lambda attributes: "=".join(*attributes.items()),
)
def test_every_scored_trace_is_kept_whole_and_of_the_others_a_share(
    collector: ModuleType, tmp_path: Path, attributes: dict[str, str]
) -> None:
    port, health = free_port(), free_port()
    with OtlpReceiver() as store:
        environment = {
            "OTLP_HTTP_LISTEN": f"127.0.0.1:{port}",
            "OTLP_GRPC_LISTEN": f"127.0.0.1:{free_port()}",
            "HEALTH_LISTEN": f"127.0.0.1:{health}",
            "TRACES_OTLP_ENDPOINT": store.endpoint,
            "DECISION_WAIT": "1s",
            "BATCH_TIMEOUT": "100ms",
        }
        config = INTEGRATIONS / "collector" / "otelcol.yaml"
        with collector.running(tmp_path, config, environment=environment, health=health):
            provider = TracerProvider(shutdown_on_exit=False)
            provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")))
            tracer = provider.get_tracer("app")
            for name, count, marks in (("unscored", UNSCORED, {}), ("scored", SCORED, attributes)):
                for _ in range(count):
                    with (
                        tracer.start_as_current_span("POST /chat"),
                        tracer.start_as_current_span(name, attributes=marks),
                    ):
                        pass
                provider.force_flush()

            arrived = store.wait_for(lambda: sum(span.name == "scored" for span in store.spans) == SCORED, 20)
            provider.shutdown()

    assert arrived
    whole = {span.trace_id for span in store.spans if span.name == "scored"}
    assert {span.trace_id for span in store.spans if span.name == "POST /chat"} >= whole
    assert sum(span.name == "unscored" for span in store.spans) < UNSCORED / 2

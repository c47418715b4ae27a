"""The real Collector keeps its module's promises: it checks a configuration, runs it, and forwards data."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.servers.server import free_port, listening, poll

pytestmark = pytest.mark.server


def test_what_is_sent_over_otlp_comes_through(collector: ModuleType, tmp_path: Path) -> None:
    config, port = tmp_path / "otelcol.yaml", free_port()
    config.write_text(collector.printing(port, free_port()))
    with collector.running(tmp_path, config) as server:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")))

        provider.get_tracer("test").start_span("question", attributes={"spanscore.verdict": "fail"}).end()
        provider.shutdown()

        poll(
            lambda: "spanscore.verdict: Str(fail)" in server.log.read_text(), deadline_s=20, what="the span in the log"
        )


def test_a_wrong_configuration_says_what_is_wrong(collector: ModuleType, tmp_path: Path) -> None:
    config = tmp_path / "otelcol.yaml"
    config.write_text(collector.printing(1, 2).replace("exporters: [debug]", "exporters: [nobody]"))

    with pytest.raises(ValueError, match="nobody"):
        collector.validate(config)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_collector_listens_on_loopback_only(collector: ModuleType, tmp_path: Path) -> None:
    config = tmp_path / "otelcol.yaml"
    config.write_text(collector.printing(free_port(), free_port()))

    with collector.running(tmp_path, config) as server:
        assert listening(server.pid) == {"127.0.0.1"}

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.servers.otlp import OtlpReceiver


def export_one_span(endpoint: str, compression: Compression = Compression.NoCompression) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", compression=compression, timeout=1)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("app").start_span("root", attributes={"list": ["a", "b"], "double": 1.0}).end()
    provider.shutdown()


@pytest.mark.parametrize("compression", list(Compression), ids=str)
def test_a_span_is_there_when_its_sender_has_the_answer(compression: Compression) -> None:
    with OtlpReceiver() as receiver:
        export_one_span(receiver.endpoint, compression)

        (span,) = receiver.spans
        assert (span.name, span.scope, span.attributes) == ("root", "app", {"list": ["a", "b"], "double": 1.0})


def test_what_is_received_is_forwarded_once() -> None:
    with OtlpReceiver() as behind, OtlpReceiver(forward_to=behind.endpoint) as front:
        export_one_span(front.endpoint, Compression.Gzip)

        assert front.span_ids == behind.span_ids
        assert len(behind.spans) == 1


@pytest.mark.parametrize("failure", [404, 503, "hang", "refuse"])
def test_what_fails_is_not_kept(failure: int | str) -> None:
    with OtlpReceiver() as receiver:
        if failure == "refuse":
            receiver.refuse()
        else:
            receiver.answer(failure, "traces")  # type: ignore[arg-type]  # a status or "hang"

        export_one_span(receiver.endpoint)

        assert receiver.spans == []

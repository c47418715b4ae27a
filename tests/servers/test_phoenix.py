"""The real store keeps its fixture's promises: a span goes in over OTLP and comes out of the query API."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.servers.phoenix import Phoenix
from tests.servers.server import listening

pytestmark = pytest.mark.server


def test_span_sent_over_otlp_is_read_back_from_phoenix(phoenix: Phoenix) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=phoenix.traces_endpoint)))

    with provider.get_tracer("test").start_as_current_span(
        "question", attributes={"spanscore.verdict": "fail"}
    ) as span:
        trace_id = span.get_span_context().trace_id
    provider.shutdown()

    [stored] = phoenix.spans(trace_id)
    assert stored["name"] == "question"
    assert stored["attributes"]["spanscore.verdict"] == "fail"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_phoenix_listens_on_loopback_only(phoenix: Phoenix) -> None:
    assert listening(phoenix.pid) == {"127.0.0.1"}

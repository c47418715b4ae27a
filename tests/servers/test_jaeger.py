"""The real Jaeger keeps its module's promises: tags are found by string equality, all of them on one span."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.servers.jaeger import Jaeger
from tests.servers.server import listening

pytestmark = pytest.mark.server

SERVICE = "jaeger-test"


def test_a_trace_is_found_by_the_tags_of_one_of_its_spans(jaeger: Jaeger) -> None:
    provider = TracerProvider(resource=Resource({"service.name": SERVICE}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(jaeger.traces_endpoint)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("root", attributes={"test.one": "1", "test.flag": True}) as root:
        tracer.start_span("child", attributes={"test.two": "2"}).end()
    provider.shutdown()

    (found,) = jaeger.search(SERVICE, {"test.one": "1", "test.flag": "true"}, lambda traces: len(traces) == 1)

    assert found["traceID"] == f"{root.get_span_context().trace_id:032x}"
    assert {span["operationName"] for span in found["spans"]} == {"root", "child"}
    assert jaeger.search(SERVICE, {"test.one": "1", "test.two": "2"}, lambda _: True) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_jaeger_listens_on_loopback_only(jaeger: Jaeger) -> None:
    assert listening(jaeger.pid) == {"127.0.0.1"}

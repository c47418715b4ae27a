"""The real trace stores keep their modules' promises: a trace that is sent is found by equal tags of one of its spans."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.zipkin.json import ZipkinExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from tests.servers.jaeger import Jaeger
from tests.servers.phoenix import Phoenix
from tests.servers.server import listening
from tests.servers.zipkin import Zipkin

pytestmark = pytest.mark.server

SERVICE = "jaeger-test"


def sent(exporter: SpanExporter) -> str:
    """Send a root with two tags and a child with another; return the id of their trace."""
    provider = TracerProvider(resource=Resource({"service.name": SERVICE}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("root", attributes={"test.one": "1", "test.flag": True}) as root:
        tracer.start_span("child", attributes={"test.two": "2"}).end()
    provider.shutdown()
    return f"{root.get_span_context().trace_id:032x}"


def test_jaeger_finds_a_trace_by_the_tags_of_one_of_its_spans(jaeger: Jaeger) -> None:
    trace_id = sent(OTLPSpanExporter(jaeger.traces_endpoint))

    (found,) = jaeger.search(SERVICE, {"test.one": "1", "test.flag": "true"}, lambda traces: len(traces) == 1)

    assert found["traceID"] == trace_id
    assert {span["operationName"] for span in found["spans"]} == {"root", "child"}
    assert jaeger.search(SERVICE, {"test.one": "1", "test.two": "2"}, lambda _: True) == []


def test_zipkin_finds_a_trace_by_the_tags_of_one_of_its_spans(zipkin: Zipkin) -> None:
    trace_id = sent(ZipkinExporter(endpoint=zipkin.spans_endpoint))

    (found,) = zipkin.search("test.one=1 and test.flag=true", lambda traces: [len(t) for t in traces] == [2])

    assert {span["traceId"] for span in found} == {trace_id}
    assert zipkin.search("test.one=1 and test.two=2", lambda _: True) == []


def test_phoenix_reads_back_a_span_that_was_sent_over_otlp(phoenix: Phoenix) -> None:
    trace_id = sent(OTLPSpanExporter(endpoint=phoenix.traces_endpoint))

    spans = phoenix.spans(trace_id, until=lambda spans: len(spans) == 2)

    stored = {span["name"]: span["attributes"] for span in spans}
    assert set(stored) == {"root", "child"}
    assert stored["root"]["test.one"] == "1"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("store", ["jaeger", "phoenix", "zipkin"])
def test_a_store_listens_on_loopback_only(store: str, request: pytest.FixtureRequest) -> None:
    assert listening(request.getfixturevalue(store).pid) == {"127.0.0.1"}

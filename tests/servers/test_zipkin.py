"""The real Zipkin keeps its module's promises: tags are found by string equality, all of them on one span."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.exporter.zipkin.json import ZipkinExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.servers.server import listening
from tests.servers.zipkin import Zipkin

pytestmark = pytest.mark.server


def test_a_trace_is_found_by_the_tags_of_one_of_its_spans(zipkin: Zipkin) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ZipkinExporter(endpoint=zipkin.spans_endpoint)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("root", attributes={"zipkin.test": "one", "zipkin.flag": True}) as root:
        tracer.start_span("child", attributes={"zipkin.child": "two"}).end()
    provider.shutdown()

    (found,) = zipkin.search("zipkin.test=one and zipkin.flag=true", lambda traces: [len(t) for t in traces] == [2])

    assert {span["traceId"] for span in found} == {f"{root.get_span_context().trace_id:032x}"}
    assert zipkin.search("zipkin.test=one and zipkin.child=two", lambda _: True) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_zipkin_listens_on_loopback_only(zipkin: Zipkin) -> None:
    assert listening(zipkin.pid) == {"127.0.0.1"}

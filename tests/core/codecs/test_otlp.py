"""OTLP-JSON lines ↔ spans: written spans are read back unchanged, in the Collector's form."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from tests.core.codecs.payloads import payloads

from spanscore import semconv
from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.codecs.sdk import encode_attributes, span_data
from spanscore.core.span import SpanData
from spanscore.errors import SampleError

MESSAGES = [{"role": "user", "parts": [{"type": "text", "content": "Grüße"}]}]
PARENT = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("ot", "th:0")]))


def ended(attributes: dict[str, Any] | None = None, **start: Any) -> ReadableSpan:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "bot"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("some.scope").start_span("chat m", start_time=10, **start)
    span.set_attributes(encode_attributes(attributes or {}))
    span.set_status(StatusCode.ERROR, "x")
    span.end(end_time=1_700_000_000_123_456_789)
    (readable,) = exporter.get_finished_spans()
    return readable


def below_a_parent(**attributes: Any) -> ReadableSpan:
    context = trace.set_span_in_context(trace.NonRecordingSpan(PARENT))
    return ended(attributes, context=context, kind=SpanKind.CLIENT, links=[Link(PARENT)])


def plain(span: SpanData) -> SpanData:
    """The SDK keeps lists as tuples, and its exporter leaves all W3C flags out."""
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in span.attributes.items()}
    return replace(span, attributes=attributes, trace_flags=int(span.sampled))


def test_a_span_written_and_read_is_the_span_that_was_written() -> None:
    values = {"text": "a", "number": 2**62, "share": 1.0, "yes": True, "list": ["a", "b"], "ranges": [0.0, 1.0]}
    spans = [below_a_parent(**values, **{semconv.INPUT_MESSAGES: MESSAGES}), ended()]

    read = list(read_spans([json_line(spans)]))

    assert [plain(span) for span in read] == [plain(span_data(span)) for span in spans]


@given(payloads())
def test_any_content_reads_back_as_it_was(payload: Any) -> None:
    span = ended({semconv.OUTPUT_VALUE: payload})

    (read,) = read_spans([json_line([span])])

    assert plain(read) == plain(span_data(span))


def test_a_line_has_the_shape_that_the_collector_writes() -> None:
    line = json_line([below_a_parent(share=1.0)])

    (resource_spans,) = json.loads(line)["resourceSpans"]
    (span,) = resource_spans["scopeSpans"][0]["spans"]
    assert line.count("\n") == 1
    assert resource_spans["scopeSpans"][0]["scope"] == {"name": "some.scope"}
    assert (span["traceId"], span["parentSpanId"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    assert span["links"][0]["spanId"] == f"{0xDEF:016x}"
    assert (span["kind"], span["status"]["code"], span["endTimeUnixNano"]) == (3, 2, "1700000000123456789")
    assert span["attributes"] == [{"key": "share", "value": {"doubleValue": 1.0}}]


def test_a_line_of_the_collector_is_read_whatever_else_it_holds() -> None:
    line = (
        '{"resourceSpans":[{"resource":{},"newField":1,"scopeSpans":[{"scope":{},"spans":[{"traceId":"'
        '5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","parentSpanId":"","name":"x","kind":2,"flags":256,'
        '"startTimeUnixNano":"1","endTimeUnixNano":2,"attributes":[{"key":"n","value":{"intValue":"7"}},'
        '{"key":"map","value":{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}}},{"key":"no","value":{}}]}]}]}]}'
    )

    (span,) = read_spans([line, "", '{"resourceLogs":[]}'])

    assert (span.trace_id, span.span_id) == (0x5B8EFFF798038103D269B633813FC60C, 0xEEE19B7EC3C1B174)
    assert (span.parent_id, span.kind, span.status, span.sampled) == (None, "server", "unset", True)
    assert dict(span.attributes) == {"n": 7, "map": {"a": True}, "no": None}


@pytest.mark.parametrize(
    "line", ["{", "[]", '"secret"', '{"resourceSpans":3}', '{"resourceSpans":[{"scopeSpans":"x"}]}']
)
def test_what_is_no_request_is_named_by_its_line_and_not_quoted(line: str) -> None:
    with pytest.raises(SampleError, match=r"^line 2 is not an OTLP trace request") as raised:
        list(read_spans([json_line([ended()]), line]))

    assert "secret" not in str(raised.value)


VALID = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "startTimeUnixNano": "5"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"traceId": "5b"}, "a trace id that is not 16 bytes"),
        ({"traceId": "zz8efff798038103d269b633813fc60c"}, "a trace id that is not 16 bytes"),
        ({"traceId": "0" * 32}, "a trace id of zeros"),
        ({"spanId": "ee" * 500}, "a span id that is not 8 bytes"),
        ({"spanId": ""}, "a span id that is not 8 bytes"),
        ({"spanId": "0" * 16}, "a span id of zeros"),
        ({"parentSpanId": "abc"}, "a parent's id that is not 8 bytes"),
        ({"startTimeUnixNano": "-1"}, "a span that cannot be read"),
        ({"attributes": 3}, "a span that cannot be read"),
    ],
)
def test_a_span_that_is_not_valid_is_left_out_and_counted_and_the_others_are_read(
    wrong: dict[str, Any], reason: str
) -> None:
    left_out: Counter[str] = Counter()

    read = list(read_spans([a_line({**VALID, **wrong}, {**VALID, "name": "well"})], left_out))

    assert ([span.name for span in read], left_out) == (["well"], {reason: 1})


def test_an_end_before_its_start_is_read_as_the_start() -> None:
    (span,) = read_spans([a_line({**VALID, "endTimeUnixNano": "3"})])

    assert (span.start_ns, span.end_ns) == (5, 5)


def a_line(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})

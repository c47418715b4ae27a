from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from spanscore.core.codecs.otlp_request import parse_request
from spanscore.service.proxy import rest_of

UNKNOWN = b"\xfa\x3e\x03new"
"""Field 1007, of a message from a later OTLP."""


def span(number: int, *, trace_id: bytes = b"t" * 16) -> bytes:
    return Span(trace_id=trace_id, span_id=number.to_bytes(8), name=str(number)).SerializeToString()


def scope_spans(name: str, *raws: bytes) -> bytes:
    scope = ScopeSpans(scope=InstrumentationScope(name=name), spans=[Span.FromString(raw) for raw in raws])
    return scope.SerializeToString()


def request(*scopes: bytes) -> bytes:
    spans = ResourceSpans(schema_url="https://opentelemetry.io/schemas/1.40.0")
    spans.scope_spans.extend(ScopeSpans.FromString(scope) for scope in scopes)
    return ExportTraceServiceRequest(resource_spans=[spans]).SerializeToString() + UNKNOWN


def test_the_rest_is_every_other_span_and_field_in_its_order() -> None:
    body = request(scope_spans("a", span(1), span(2), span(3)), scope_spans("b", span(4)))
    kept = [one for one in parse_request(body).spans if one.raw in (span(2),)]

    rest = rest_of(body, kept)

    assert rest == request(scope_spans("a", span(1), span(3)), scope_spans("b", span(4)))


def test_a_span_that_is_not_valid_is_the_backends_to_judge() -> None:
    body = request(scope_spans("a", span(1), span(2, trace_id=b"short")))

    rest = rest_of(body, parse_request(body).spans)

    assert rest == request(scope_spans("a", span(2, trace_id=b"short")))


def test_of_a_request_that_is_kept_whole_nothing_is_left() -> None:
    body = request(scope_spans("a", span(1)), scope_spans("b", span(2)))

    assert rest_of(body, parse_request(body).spans) is None


def test_a_scope_without_spans_that_was_kept_whole_goes_with_them() -> None:
    body = request(scope_spans("a", span(1)), scope_spans("b", span(2)))
    kept = [one for one in parse_request(body).spans if one.origin.scope_name == "a"]

    assert rest_of(body, kept) == request(scope_spans("b", span(2)))

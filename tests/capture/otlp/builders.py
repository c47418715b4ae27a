"""Spans as they come over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore import semconv
from spanscore.core.codecs.otlp_request import ParsedRequest, WireSpan, parse_request

FRAMEWORK = "openinference.instrumentation.langchain"
CLIENT = "opentelemetry.instrumentation.openai"
_ids = count(1)
_START_NS = 1_700_000_000_000_000_000
_LASTS_NS = 1_000_000_000


def a_wire_span(
    operation: str | None = semconv.INVOKE_AGENT,
    *,
    trace: int = 1,
    parent: WireSpan | None = None,
    remote: bool = False,
    scope: str = "app",
    resource: Mapping[str, str] | None = None,
    state: str = "",
    after_ns: int = 0,
    **attributes: str,
) -> WireSpan:
    """Return a span; all spans of one `after_ns` end together. A span without an operation is not claimed."""
    number = next(_ids)
    message = Span(
        trace_id=trace.to_bytes(16),
        span_id=number.to_bytes(8),
        parent_span_id=b"" if parent is None else parent.span_id,
        name=f"{operation} {number}",
        start_time_unix_nano=_START_NS + number * 1_000 + after_ns,
        end_time_unix_nano=_START_NS + _LASTS_NS + after_ns,
        flags=0x101 | 0x200 * remote,
        trace_state=state,
    )
    named = {} if operation is None else {semconv.OPERATION_NAME: operation}
    for name, value in {**named, **attributes}.items():
        message.attributes.add(key=name).value.string_value = value
    return sent([(message, scope, resource or {"service.name": "shop"})]).spans[0]


def sent(spans: Iterable[tuple[Span, str, Mapping[str, str]]]) -> ParsedRequest:
    """Return the results for a request of these spans, each with its scope and resource."""
    request = ExportTraceServiceRequest()
    for message, scope, resource in spans:
        of = request.resource_spans.add()
        for name, value in resource.items():
            of.resource.attributes.add(key=name).value.string_value = value
        within = of.scope_spans.add()
        within.scope.name = scope
        within.spans.append(message)
    return parse_request(request.SerializeToString())


def taken(spans: Iterable[WireSpan], rejected: Mapping[str, int] | None = None) -> ParsedRequest:
    """Return a request of these spans, with the given ids instead of those in their bytes."""
    body, places = b"", []
    for span in spans:
        start, body = len(body), body + span.raw
        places.append((span.origin, [(*span[:4], start, len(body), None)]))
    return ParsedRequest(body, places, rejected or {})

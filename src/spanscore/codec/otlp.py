"""OTLP ↔ ours: ended spans → an ExportTraceServiceRequest as one line of OTLP-JSON, and such lines or messages → SpanData.

The file of the OpenTelemetry Collector's ``file`` exporter: one request per line, ids as hex, enums as numbers, 64-bit
integers as text (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding").
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from spanscore.codec.sdk import STATUS, structured
from spanscore.errors import SampleError
from spanscore.model.foreign import type_name
from spanscore.model.span import SpanData

__all__ = ["json_line", "read_spans", "spans_of"]

_SAYS_REMOTE, _IS_REMOTE = 0x100, 0x200
"""Of a span's flags, the bits that say whether its parent is in another process (opentelemetry-proto 1.1)."""
_SAMPLED = 1
"""OTLP carries the W3C flags only from some SDKs; a span that was exported was sampled."""
_FLAGS = 0xFF
_KINDS = ("internal", "internal", "server", "client", "producer", "consumer")
"""By OTLP's number; 0 is "unspecified", to be read as internal."""
_IDS = ("traceId", "spanId", "parentSpanId")


def json_line(spans: Sequence[ReadableSpan]) -> str:
    """Return ended spans as one export request on one line, its newline included."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    request = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    _convert_ids(request, lambda text: b64decode(text).hex())
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_spans(lines: Iterable[str]) -> Iterator[SpanData]:
    """Yield the spans of OTLP-JSON lines, in their order. Empty lines and lines of logs or metrics are skipped.

    Raises:
        SampleError: a line is not an export request; the message gives its number, and quotes nothing of it.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield from spans_of(_request(number, line))


def spans_of(request: Any) -> Iterator[SpanData]:
    """Yield the spans of an ``ExportTraceServiceRequest`` (or of ``TracesData``), resource and scope with each."""
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _span_data(span, scope_spans.scope.name, resource)


def _span_data(span: Any, scope: str, resource: dict[str, Any]) -> SpanData:
    return SpanData(
        trace_id=int.from_bytes(span.trace_id),
        span_id=int.from_bytes(span.span_id),
        parent_id=int.from_bytes(span.parent_span_id) or None,
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano or span.start_time_unix_nano,
        scope=scope,
        kind=_KINDS[span.kind] if 0 <= span.kind < len(_KINDS) else "internal",
        status=STATUS[span.status.code] if 0 <= span.status.code < len(STATUS) else "unset",
        attributes=structured(_attributes(span.attributes)),
        trace_flags=span.flags & _FLAGS | _SAMPLED,
        trace_state=span.trace_state,
        resource=resource,
        parent_is_remote=bool(span.flags & _IS_REMOTE) if span.parent_span_id and span.flags & _SAYS_REMOTE else None,
        events=tuple((event.name, _attributes(event.attributes)) for event in span.events),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held = getattr(value, kind)
    if kind == "array_value":
        return [_value(item) for item in held.values]
    return _attributes(held.values) if kind == "kvlist_value" else held


def _request(number: int, line: str) -> Any:
    from google.protobuf.json_format import ParseDict, ParseError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = json.loads(line)
        _convert_ids(request, lambda text: b64encode(bytes.fromhex(text)).decode())
        return ParseDict(request, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ValueError, TypeError, AttributeError, RecursionError, ParseError) as error:
        # Their own words quote the line, which may hold prompts and answers.
        raise SampleError(
            f"line {number} is not an OTLP trace request ({type_name(error)}). Expected: one JSON object per line with "
            '"resourceSpans", as the Collector\'s file exporter and `spanscore demo --out` write it'
        ) from None


def _convert_ids(request: dict[str, Any], convert: Callable[[str], str]) -> None:
    """Rewrite every id in place: OTLP-JSON has them in hex, where protobuf's own JSON has base64."""
    for resource_spans in request.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    holder.update({name: convert(holder[name]) for name in _IDS if name in holder})

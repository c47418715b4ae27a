"""OTLP-JSON lines ↔ ours: ended spans → an ExportTraceServiceRequest on one line, and such lines → SpanData.

The file of the OpenTelemetry Collector's ``file`` exporter: one request per line, ids as hex, enums as numbers, 64-bit
integers as text (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding").
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from spanscore.errors import SampleError
from spanscore.model.span import SpanData

__all__ = ["json_line", "read_spans", "request_line"]

_IDS = ("traceId", "spanId", "parentSpanId")


def json_line(spans: Sequence[ReadableSpan]) -> str:
    """Return ended spans as one export request on one line, its newline included."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return _line_of(encode_spans(spans))


def request_line(request: bytes) -> str:
    """Return an export request as one line, its newline included."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return _line_of(ExportTraceServiceRequest.FromString(request))


def _line_of(message: Any) -> str:
    from google.protobuf.json_format import MessageToDict

    request = MessageToDict(message, use_integers_for_enums=True)
    _ids_as_hex(request)
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_spans(lines: Iterable[str], left_out: Counter[str] | None = None) -> Iterator[SpanData]:
    """Yield the valid spans of OTLP-JSON lines, in their order. Empty lines and lines of logs or metrics are skipped.

    Args:
        lines: one request each.
        left_out: counts the spans that are not valid, by what is wrong with them.

    Raises:
        SampleError: a line is not an export request; the message gives its number, and quotes nothing of it.
    """
    from spanscore.codec.wire import span_data_of, taken_apart

    for number, line in enumerate(lines, start=1):
        if line.strip():
            taken = taken_apart(_request(number, line))
            if left_out is not None:
                left_out.update(taken.rejected)
            yield from map(span_data_of, taken.spans)


def _request(number: int, line: str) -> bytes:
    from spanscore.codec.wire import UnreadableRequest, from_json

    try:
        return from_json(line)
    except UnreadableRequest as error:
        raise SampleError(
            f"line {number} is not an OTLP trace request ({error.because}). Expected: one JSON object per line with "
            '"resourceSpans", as the Collector\'s file exporter and `spanscore demo --out` write it'
        ) from None


def _ids_as_hex(request: dict[str, Any]) -> None:
    """Rewrite every id in place: OTLP-JSON has them in hex, where protobuf's own JSON has base64."""
    for resource_spans in request.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    holder.update({name: b64decode(holder[name]).hex() for name in _IDS if name in holder})

"""Writes ended spans as OTLP-JSON lines, and reads the spans of a file for a command."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer
from opentelemetry.sdk.trace import ReadableSpan

from spanscore.core.printable import printable
from spanscore.core.span import SpanData
from spanscore.errors import ConfigurationError, SampleError

# --- lines ----------------------------------------------------------------------------------------------------------

# Lines are those of the OpenTelemetry Collector's ``file`` exporter: one request per line, ids as hex, enums as numbers, 64-bit
# integers as text (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding").

_ID_KEYS = ("traceId", "spanId", "parentSpanId")


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
    # OTLP-JSON has ids in hex, protobuf's own JSON in base64.
    for resource_spans in request.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    holder.update({name: b64decode(holder[name]).hex() for name in _ID_KEYS if name in holder})
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_spans(lines: Iterable[str], left_out: Counter[str] | None = None, place: str = "") -> Iterator[SpanData]:
    """Yield the valid spans of OTLP-JSON lines, in order. Empty lines and lines of logs or metrics are skipped.

    ``left_out`` counts invalid spans by error. An error begins with ``place``.

    Raises:
        SampleError: a line is not an export request; the message has its number, and quotes no content.
    """
    from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, parse_request, span_data_of

    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            body = from_json(line)
        except UnreadableRequest as error:
            raise SampleError(
                f"{place}line {number} is not an OTLP trace request ({error.because}). Expected: one JSON object per line with "
                '"resourceSpans", written by the Collector\'s file exporter or `spanscore demo --out`'
            ) from None
        request = parse_request(body)
        if left_out is not None:
            left_out.update(request.rejected)
        yield from map(span_data_of, request.spans)


# --- files ----------------------------------------------------------------------------------------------------------


@contextmanager
def stored_spans(file: str) -> Iterator[Iterator[SpanData]]:
    """Yield the valid spans of a file of OTLP-JSON lines. At the end, print the number of invalid spans by error to stderr.

    Args:
        file: path; ``-``: standard input.

    Raises:
        ConfigurationError: the file cannot be read.
        SampleError: a line is not OTLP-JSON; the message names the file and the line.
    """
    left_out: Counter[str] = Counter()
    with _open_lines(file) as lines:
        yield read_spans(lines, left_out, f"{printable(file)}: ")
    if left_out:
        errors = ", ".join(f"{error} ({count:,})" for error, count in left_out.most_common())
        message = f"{printable(file)}: {left_out.total():,} invalid, left out: {errors}"
        typer.secho(message, fg=typer.colors.YELLOW, err=True)


@contextmanager
def _open_lines(file: str) -> Iterator[Iterable[str]]:
    """Yield the lines of a file, or for ``-`` of standard input, with bytes that are not UTF-8 replaced."""
    if file == "-":
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        yield sys.stdin
        return
    try:
        opened = Path(file).open(encoding="utf-8", errors="replace")  # noqa: SIM115  (closed below)
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from None
    with opened:
        yield opened

"""OTLP-JSON → the same request as protobuf (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding")."""

from __future__ import annotations

import json
import re
from binascii import unhexlify
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanscore.codec.text import safe_text
from spanscore.model.foreign import type_name

__all__ = ["UnreadableRequest", "from_json", "logs_from_json"]

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_IDS = {"traceId": "trace_id", "spanId": "span_id", "parentSpanId": "parent_span_id"}
_NO_ID = b"?"
"""For what is no hex: of a length that no id has, as an empty parent would make a root of the span."""
_UNFIT = (ValueError, TypeError, AttributeError, RecursionError, ParseError)
"""What the JSON of somebody else makes its readers raise. Their own words quote it: prompts and answers."""


class UnreadableRequest(ValueError):
    """Bytes are no export request at all: the message says what the reader stumbled over, and quotes nothing of them.

    Attributes:
        because: the name of the reader's error.
    """

    def __init__(self, because: str, request: str = "ExportTraceServiceRequest") -> None:
        super().__init__(f"no {request} ({because})")
        self.because = because


def from_json(body: bytes | str) -> bytes:
    """Return an OTLP-JSON request as protobuf.

    A span that cannot be read is empty in it, and an id that is no hex is one byte, so that only this span is not valid.

    Raises:
        UnreadableRequest: it is no JSON, or no request.
    """
    try:
        given = _loaded(body if isinstance(body, str) else body.decode())
        request = ExportTraceServiceRequest()
        for resource_spans in _list(given, "resourceSpans"):
            _add(resource_spans, request.resource_spans.add())
    except _UNFIT as error:
        raise UnreadableRequest(type_name(error)) from None
    return request.SerializeToString()


def logs_from_json(body: bytes) -> bytes:
    """Return an OTLP-JSON request of logs as protobuf; a record that cannot be read is empty in it.

    Raises:
        UnreadableRequest: it is no JSON, or no request.
    """
    try:
        request = ExportLogsServiceRequest()
        for resource_logs in _list(_loaded(body.decode()), "resourceLogs"):
            of = request.resource_logs.add()
            for scope in _list(resource_logs, "scopeLogs"):
                records, into = _list(scope, "logRecords"), of.scope_logs.add()
                _parse(scope, into)
                for record in records:
                    _add_with_ids([(record, into.log_records.add())])
    except _UNFIT as error:
        raise UnreadableRequest(type_name(error), "ExportLogsServiceRequest") from None
    return request.SerializeToString()


def _loaded(text: str) -> Any:
    loaded = json.loads(text)
    if _SURROGATE.search(text):  # half an emoji, where a writer cut a text off: protobuf would refuse the whole span
        return json.loads(safe_text(json.dumps(loaded, ensure_ascii=False)))
    return loaded


def _list(holder: dict[str, Any], name: str) -> list[Any]:
    """Take a list out of its holder; what is missing or null is empty."""
    value = holder.pop(name, None)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(name)
    return value


def _add(given: dict[str, Any], into: Any) -> None:
    for scope in _list(given, "scopeSpans"):
        spans, scope_spans = _list(scope, "spans"), into.scope_spans.add()
        _parse(scope, scope_spans)
        for span in spans:
            _add_span(span, scope_spans.spans.add())
    _parse(given, into)


def _add_span(given: dict[str, Any], into: Any) -> None:
    try:
        links = [(link, into.links.add()) for link in _list(given, "links")]
    except _UNFIT:
        into.Clear()
        return
    _add_with_ids([(given, into), *links])


def _add_with_ids(holders: list[tuple[dict[str, Any], Any]]) -> None:
    """Parse what has ids, and what stands in it; where one of them cannot be read, the first, which holds them, is empty."""
    try:
        for holder, message in holders:
            ids = dict(_ids(holder))
            _parse(holder, message)
            for name, value in ids.items():
                setattr(message, name, value)
    except _UNFIT:
        holders[0][1].Clear()


def _ids(holder: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the ids of a span or link, which are hex where protobuf's own JSON has base64; they are out of it then."""
    for name, field in _IDS.items():
        if value := holder.pop(name, None):
            yield field, _unhex(value)


def _unhex(value: str) -> bytes:
    try:
        return unhexlify(value)
    except ValueError:
        return _NO_ID


def _parse(given: dict[str, Any], into: Any) -> None:
    if not isinstance(given, dict):
        raise TypeError
    ParseDict(given, into, ignore_unknown_fields=True)

"""Results of other evaluators as they are received: spans and log records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.capture.otlp.builders import sent

from spanscore import semconv
from spanscore.core.codecs.otlp_request import ParsedRequest

EVALUATOR = {semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_EVALUATOR}
_ids = count(1)


def result(name: Any, value: Any = None, label: Any = None, **more: Any) -> dict[str, Any]:
    """Return a result in the names of the conventions; None is left out."""
    attributes = {
        semconv.EVALUATION_NAME: name,
        semconv.EVALUATION_SCORE_VALUE: value,
        semconv.EVALUATION_SCORE_LABEL: label,
        **more,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def make_span(
    attributes: Mapping[str, Any] | None = None, *events: Mapping[str, Any], name: str = "a span", state: str = ""
) -> Span:
    """Return a span with events ``gen_ai.evaluation.result``."""
    number = next(_ids)
    span = Span(trace_id=number.to_bytes(16), span_id=number.to_bytes(8), name=name, trace_state=state)
    put(span, attributes or {})
    for event in events:
        put(span.events.add(name=semconv.EVALUATION_EVENT, time_unix_nano=1), event)
    return span


def taken_of(*spans: Span, scope: str = "an.app") -> ParsedRequest:
    """Return a request of spans of one scope."""
    return sent((span, scope, {"service.name": "shop"}) for span in spans)


def logs(
    *records: Mapping[str, Any], event: str = semconv.EVALUATION_EVENT, scope: str = "an.app", of: Span | None = None
) -> bytes:
    """Return a request of log records; all of one span, or each of another."""
    request = ExportLogsServiceRequest()
    within = request.resource_logs.add().scope_logs.add()
    within.scope.name = scope
    for when, held in enumerate(records, 1):
        record = within.log_records.add(event_name=event, time_unix_nano=when, span_id=next(_ids).to_bytes(8))
        if of is not None:
            record.trace_id, record.span_id = of.trace_id, of.span_id
        put(record, held)
    return request.SerializeToString()


def put(into: Any, attributes: Mapping[str, Any]) -> None:
    """Write attributes into a message that has some."""
    for name, value in attributes.items():
        kinds: Sequence[tuple[type, str]] = (
            (bool, "bool_value"),
            (int, "int_value"),
            (float, "double_value"),
            (str, "string_value"),
        )
        kind = next(field for of, field in kinds if isinstance(value, of))
        setattr(into.attributes.add(key=name).value, kind, value)

"""Prompts and answers in log records: a record → the event of the span that it belongs to, as older writers put it there.

Three forms are read: ``gen_ai.client.inference.operation.details``, whose attributes have the names that content has on spans;
the older family ``gen_ai.user.message`` … ``gen_ai.choice``, whose body is a message; and the records of AWS's distribution,
whose event is named as the instrumentation scope and whose body holds ``input`` and ``output`` with ``messages``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from sys import getsizeof
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanscore import semconv
from spanscore.codec.otlp_pairs import attributes_of

__all__ = ["MAY_HOLD_CONTENT", "ContentRecord", "content_in_logs", "emitted", "event_bytes", "log_records", "record_of"]

MAY_HOLD_CONTENT: Final = (b"gen_ai.", b"messages")
"""One of these stands in each request that holds such a record."""
_MESSAGES: Final = frozenset({*semconv.MESSAGE_EVENTS, semconv.CHOICE_EVENT})
_RECORD_BYTES: Final = 600
"""What a record takes in memory beside its event's attributes."""

Event = tuple[str, Mapping[str, Any]]
"""Name and attributes."""


class ContentRecord(NamedTuple):
    """Content of one span that came in a log record.

    Attributes:
        ids: of trace and span.
        scope: of the instrumentation that wrote it.
        event: what it says, as an event of the span.
        size: bytes that it takes in memory, roughly.
    """

    ids: tuple[int, int]
    scope: str
    event: Event
    size: int


def content_in_logs(body: bytes) -> list[ContentRecord]:
    """Return the content in an ``ExportLogsServiceRequest``."""
    records = log_records(ExportLogsServiceRequest.FromString(body))
    found = (record_of(record, scope, attributes_of(record.attributes)) for scope, record in records)
    return [record for record in found if record is not None]


def log_records(request: Any) -> Iterator[tuple[str, Any]]:
    """Yield the records of a request, each with its scope; but for spanscore's own, as evaluation spans have what they hold."""
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            if scope_logs.scope.name != semconv.SCOPE:
                for record in scope_logs.log_records:
                    yield scope_logs.scope.name, record


def record_of(record: Any, scope: str, held: Mapping[str, Any]) -> ContentRecord | None:
    """Return the content in a ``LogRecord`` message; None if it holds none, or names no span.

    Args:
        record: the message.
        scope: of the instrumentation that wrote it.
        held: its attributes, as plain values.
    """
    ids = int.from_bytes(record.trace_id), int.from_bytes(record.span_id)
    if not all(ids):
        return None
    body = attributes_of([*record.body.kvlist_value.values]) if record.body.HasField("kvlist_value") else None
    text = record.body.string_value
    event = _event_of(record.event_name, scope, held, text if body is None else body)
    return None if event is None else ContentRecord(ids, scope, event, _RECORD_BYTES + _memory_of(event[1]))


def emitted(record: Any, scope: str) -> ContentRecord | None:
    """Return the content in a record of OpenTelemetry's SDK; None if it holds none, or names no span."""
    ids = record.trace_id or 0, record.span_id or 0
    held = record.attributes or {}
    event = _event_of(record.event_name, scope, held, record.body) if all(ids) else None
    return None if event is None else ContentRecord(ids, scope, event, _RECORD_BYTES + _memory_of(event[1]))


def _memory_of(value: Any) -> int:
    """Return the bytes that a plain value takes in memory: an empty map takes 64, and 4 on the wire."""
    parts = (
        chain(value, value.values()) if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    )
    return getsizeof(value) + sum(map(_memory_of, parts))


def _event_of(event_name: str | None, scope: str, held: Mapping[str, Any], body: Any) -> Event | None:
    """Return the span event that a log record would be; None if it holds no content."""
    name = event_name or held.get(semconv.EVENT_NAME)
    pairs = body if isinstance(body, Mapping) else {}
    if name == semconv.DETAILS_EVENT:
        return semconv.DETAILS_EVENT, {**held, **pairs}
    if name in _MESSAGES:
        return str(name), {**held, semconv.EVENT_CONTENT: body} if body else held
    sides = {side: pairs[side] for side in semconv.BODY_SIDES if isinstance(pairs.get(side), Mapping)}
    return (semconv.DETAILS_EVENT, sides) if name == scope and sides else None


def event_bytes(event: Event) -> bytes:
    """Return what makes a span have one event more if it is appended to the span's bytes; structures are JSON in it."""
    span = Span()
    more = span.events.add(name=event[0])
    for name, value in event[1].items():
        pair = more.attributes.add(key=name)
        pair.value.string_value = value if isinstance(value, str) else json.dumps(value, default=str)
    return bytes(span.SerializeToString())

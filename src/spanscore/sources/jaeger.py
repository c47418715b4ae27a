"""Jaeger's query API → whole traces: by its API v3, which gives OTLP, else by the JSON of its page.

Of the latter a span is made again: tags are attributes, a reference is the parent, ``otel.scope.name`` the scope, and
``w3c.tracestate`` the trace state. What it has lost is told.
"""

from __future__ import annotations

import json
from binascii import unhexlify
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from spanscore.core.codecs.otlp_request import UnreadableRequest, from_json, taken_apart
from spanscore.errors import ConfigurationError
from spanscore.sources.asking import NotThere, StoreClient, Unanswered
from spanscore.sources.stored import StoredTrace, Unread
from spanscore.sources.windows import listed

__all__ = ["JaegerStore"]

_LOST: Final = (
    "its API has no flags of a span: whether a parent is in another process is not known",
    "its API has times in microseconds: a rule on durations may decide otherwise at its very edge",
    "its API has lists as text",
)
_LEAST_S: Final = 0.001
_STATUS: Final = {"OK": 1, "ERROR": 2}
_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_NOT_ATTRIBUTES: Final = frozenset(
    {
        *("span.kind", "otel.scope.name", "otel.scope.version", "otel.status_code", "otel.status_description"),
        *("w3c.tracestate", "error", "internal.span.format"),
    }
)
"""Tags that Jaeger itself makes of the other parts of a span."""


class JaegerStore:
    """Asks one Jaeger.

    Args:
        client: of its query API.
        query: what its search takes (``service``, which it needs; ``operation``, ``tags``, ``minDuration`` …).
        start_s: since the epoch; likewise ``end_s``.
        otlp: whether its API v3 is used; None = where it has one.
    """

    def __init__(
        self, client: StoreClient, query: Mapping[str, str], start_s: float, end_s: float, *, otlp: bool | None = None
    ) -> None:
        self._client = client
        self._query = dict(query)
        self._start_s, self._end_s = start_s, end_s
        self._otlp = otlp
        self.lost: Sequence[str] = ()

    def traces(self) -> Iterator[StoredTrace | Unread]:
        """Yield the traces that are found."""
        if self._otlp is None:
            self._otlp = self._speaks_otlp()
        self.lost = () if self._otlp else _LOST
        where = f"at {self._client.url}"
        for trace_id in listed(self._start_s, self._end_s, self._ids, least_s=_LEAST_S, where=where):
            yield trace_id if isinstance(trace_id, Unread) else self._trace(trace_id)

    def _speaks_otlp(self) -> bool:
        try:
            return self._client.ask("/api/v3/services", {}, lambda answer: isinstance(answer, dict))
        except NotThere:
            return False
        except Unanswered as error:
            raise ConfigurationError(f"{self._client.url} is no Jaeger that answers: {error}") from None

    def _ids(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        stretch = {"start": str(int(start_s * 1e6)), "end": str(int(end_s * 1e6)), "limit": str(limit)}
        return self._client.ask("/api/traces", {**self._query, **stretch}, _ids_of)

    def _trace(self, trace_id: bytes) -> StoredTrace | Unread:
        path, read = ("/api/v3/traces/", _of_v3) if self._otlp else ("/api/traces/", _of_page)
        try:
            request = self._client.ask(f"{path}{trace_id.hex()}", {}, read)
            return StoredTrace(trace_id, taken_apart(from_json(request)).spans)
        except (Unanswered, UnreadableRequest) as error:
            return Unread(f"trace {trace_id.hex()}", str(error))


def _ids_of(answer: Any) -> Sequence[bytes]:
    return [unhexlify(trace["traceID"].zfill(32)) for trace in answer["data"] or ()]


def _of_v3(answer: Any) -> str:
    return json.dumps({"resourceSpans": answer["result"]["resourceSpans"]})


def _of_page(answer: Any) -> str:
    """Return an OTLP-JSON request; a span each, as each has a process and a scope of its own."""
    (trace,) = answer["data"]
    return json.dumps({"resourceSpans": [_resource_spans(span, trace["processes"]) for span in trace["spans"]]})


def _resource_spans(span: Mapping[str, Any], processes: Mapping[str, Any]) -> dict[str, Any]:
    tags = {tag["key"]: tag for tag in span["tags"]}
    process = processes[span["processID"]]
    named = {"key": "service.name", "type": "string", "value": process["serviceName"]}
    resource = {"attributes": [_attribute(tag) for tag in (named, *process["tags"])]}
    scope = {"name": _text(tags, "otel.scope.name"), "version": _text(tags, "otel.scope.version")}
    return {"resource": resource, "scopeSpans": [{"scope": scope, "spans": [_span(span, tags)]}]}


def _span(span: Mapping[str, Any], tags: Mapping[str, Any]) -> dict[str, Any]:
    start_us = int(span["startTime"])
    status = {"code": _STATUS.get(_text(tags, "otel.status_code"), 2 if _text(tags, "error") == "True" else 0)}
    return {
        "traceId": span["traceID"].zfill(32),
        "spanId": span["spanID"].zfill(16),
        "parentSpanId": _parent(span),
        "traceState": _text(tags, "w3c.tracestate"),
        "name": span["operationName"],
        "kind": _KINDS.get(_text(tags, "span.kind"), 0),
        "startTimeUnixNano": str(start_us * 1_000),
        "endTimeUnixNano": str((start_us + int(span["duration"])) * 1_000),
        "attributes": [_attribute(tag) for name, tag in tags.items() if name not in _NOT_ATTRIBUTES],
        "events": [_event(log) for log in span["logs"] or ()],
        "status": status,
    }


def _parent(span: Mapping[str, Any]) -> str:
    """Return the parent's id: a child that is also linked to it follows from it."""
    own = [one for one in span["references"] or () if one["traceID"] == span["traceID"]]
    own.sort(key=lambda one: one["refType"] != "CHILD_OF")
    return own[0]["spanID"].zfill(16) if own else ""


def _event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field["key"]: field for field in log["fields"]}
    rest = [_attribute(field) for name, field in fields.items() if name != "event"]
    return {"timeUnixNano": str(int(log["timestamp"]) * 1_000), "name": _text(fields, "event"), "attributes": rest}


def _text(tags: Mapping[str, Any], name: str) -> str:
    return str(tags[name]["value"]) if name in tags else ""


def _attribute(tag: Mapping[str, Any]) -> dict[str, Any]:
    kind, value = tag["type"], tag["value"]
    if kind == "bool":
        return {"key": tag["key"], "value": {"boolValue": value}}
    if kind == "int64":
        return {"key": tag["key"], "value": {"intValue": str(value)}}
    if kind == "float64":
        return {"key": tag["key"], "value": {"doubleValue": value}}
    return {"key": tag["key"], "value": {"stringValue": str(value)}}

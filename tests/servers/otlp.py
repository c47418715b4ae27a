"""A loopback OTLP/HTTP receiver: takes traces, metrics and logs, keeps them decoded, and fails on demand.

    with OtlpReceiver() as receiver:
        ...                                     # export to receiver.endpoint
        assert receiver.wait_for(lambda: receiver.spans)

It can be in front of a real server (``forward_to``), to count the requests to it.
"""

from __future__ import annotations

import gzip
import threading
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from tests.servers.server import free_port

Signal = Literal["traces", "metrics", "logs"]
Answer = int | Literal["hang"]

_REQUESTS: dict[str, type[Message]] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}
_PARTIAL: dict[str, Callable[[int, str], Message]] = {
    "/v1/traces": lambda number, why: ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=number, error_message=why)
    ),
    "/v1/metrics": lambda number, why: ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(rejected_data_points=number, error_message=why)
    ),
    "/v1/logs": lambda number, why: ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(rejected_log_records=number, error_message=why)
    ),
}


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span as it came over the wire; ids as integers, 0 = no parent."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    scope: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    links: tuple[tuple[int, int], ...]
    status: int
    kind: int
    flags: int


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One log record as it came over the wire."""

    event_name: str
    trace_id: int
    span_id: int
    severity: int
    scope: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReceivedPoint:
    """One metric data point; ``value`` is the count for a histogram."""

    metric: str
    kind: str
    unit: str
    value: float
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    exemplars: tuple[tuple[int, int], ...]
    bounds: tuple[float, ...]


class OtlpReceiver:
    """The server; bound to 127.0.0.1 on a free port. Everything received is there as soon as the sender has its answer.

    Args:
        forward_to: another OTLP/HTTP endpoint that gets every accepted request too; its answer is passed back.
    """

    def __init__(self, forward_to: str | None = None) -> None:
        self._forward_to = forward_to
        self._answers: dict[str, Answer] = {}
        self.accepted: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._refusing = False
        self.spans: list[ReceivedSpan] = []
        self.events: list[ReceivedEvent] = []
        self.points: list[ReceivedPoint] = []
        self.requests: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="otlp-receiver", daemon=True
        )

    def __enter__(self) -> OtlpReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answer(503)  # whoever hangs may go
        self.refuse()

    @property
    def endpoint(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def span_ids(self) -> Counter[int]:
        """Span id → how often it came: never more than once."""
        return Counter(span.span_id for span in self.spans)

    def answer(self, with_: Answer, *signals: Signal) -> None:
        """Set the response from now on: a status code, or ``"hang"`` = no response until it is set again. No signal = all."""
        with self._changed:
            for signal in signals or ("traces", "metrics", "logs"):
                self._answers[f"/v1/{signal}"] = with_
            self._changed.notify_all()

    def reject(self, number: int, why: str = "") -> None:
        """Answer every request from now on that so many of its spans, points or events are rejected; 0 = none."""
        self.accepted = {path: partial(number, why).SerializeToString() for path, partial in _PARTIAL.items()}

    def refuse(self) -> None:
        """Close the port: connections are refused from now on. Cannot be undone."""
        if not self._refusing:
            self._refusing = True
            self._server.shutdown()
            self._server.server_close()

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 10.0) -> bool:
        """Wait until the condition holds, looked at after each request."""
        with self._changed:
            return bool(self._changed.wait_for(condition, timeout_s))

    def points_of(self, metric: str) -> list[ReceivedPoint]:
        """Return all data points of a metric, in order of arrival."""
        return [point for point in self.points if point.metric == metric]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, answer = receiver.receive(self.path, body, dict(self.headers.items()))
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        return Handler

    def receive(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        with self._changed:
            if path not in _REQUESTS:
                return 404, b""
            self.requests[path.removeprefix("/v1/")] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answers.get(path) != "hang")
            answer = self._answers.get(path, 200)
            if answer != 200:
                return int(answer), b""
            self._keep(_parse(path, body, headers))
            self._changed.notify_all()
        return self._forward(path, body, headers) if self._forward_to else (200, self.accepted.get(path, b""))

    def _forward(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        passed = {name: value for name, value in headers.items() if name.lower().startswith("content-")}
        request = urllib.request.Request(f"{self._forward_to}{path}", data=body, headers=passed, method="POST")
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()

    def _keep(self, request: Any) -> None:
        if isinstance(request, ExportTraceServiceRequest):
            self.spans.extend(_spans(request))
        elif isinstance(request, ExportLogsServiceRequest):
            self.events.extend(_events(request))
        else:
            self.points.extend(_points(request))


def dead_endpoint() -> str:
    """Return an endpoint without a listener."""
    return f"http://127.0.0.1:{free_port()}"


def _parse(path: str, body: bytes, headers: Mapping[str, str]) -> Any:
    encoding = next((value for name, value in headers.items() if name.lower() == "content-encoding"), "")
    if encoding == "gzip":
        body = gzip.decompress(body)
    elif encoding == "deflate":
        body = zlib.decompress(body)
    request = _REQUESTS[path]()
    request.ParseFromString(body)
    return request


def _spans(request: ExportTraceServiceRequest) -> Iterable[ReceivedSpan]:
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield ReceivedSpan(
                    name=span.name,
                    trace_id=_id(span.trace_id),
                    span_id=_id(span.span_id),
                    parent_id=_id(span.parent_span_id),
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    scope=scope_spans.scope.name,
                    attributes=_attributes(span.attributes),
                    resource=resource,
                    links=tuple((_id(link.trace_id), _id(link.span_id)) for link in span.links),
                    status=span.status.code,
                    kind=span.kind,
                    flags=span.flags,
                )


def _events(request: ExportLogsServiceRequest) -> Iterable[ReceivedEvent]:
    for resource_logs in request.resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield ReceivedEvent(
                    event_name=record.event_name,
                    trace_id=_id(record.trace_id),
                    span_id=_id(record.span_id),
                    severity=record.severity_number,
                    scope=scope_logs.scope.name,
                    attributes=_attributes(record.attributes),
                    resource=resource,
                )


def _points(request: ExportMetricsServiceRequest) -> Iterable[ReceivedPoint]:
    for resource_metrics in request.resource_metrics:
        resource = _attributes(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data") or "none"
                for point in getattr(metric, kind).data_points:
                    yield ReceivedPoint(
                        metric=metric.name,
                        kind=kind,
                        unit=metric.unit,
                        value=point.count if kind == "histogram" else getattr(point, point.WhichOneof("value")),
                        attributes=_attributes(point.attributes),
                        resource=resource,
                        exemplars=tuple((_id(e.trace_id), _id(e.span_id)) for e in point.exemplars),
                        bounds=tuple(point.explicit_bounds) if kind == "histogram" else (),
                    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, kind) if kind else None


def _id(raw: bytes) -> int:
    return int.from_bytes(raw, "big")

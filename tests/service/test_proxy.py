from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from tests.servers.otlp import dead_endpoint
from tests.service.backend import RawBackend, Reply

from spanscore.capture.otlp.claims import RequestPartition
from spanscore.capture.otlp.requests import ClassifiedRequest, Forward
from spanscore.config.serving import ForwardSettings
from spanscore.core.codecs.otlp_request import ParsedRequest, WireSpan, from_json, parse_request
from spanscore.outputs.exporters import send_by_default_to
from spanscore.service.otlp_endpoint import GZIP, ExportRequest
from spanscore.service.proxy import Proxy
from spanscore.service.requests import JSON, PROTOBUF, ExportResponse

PARTLY = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=2, error_message="no")
).SerializeToString()


class Keeper:
    """Keeps the spans with the given names, and releases them on request."""

    def __init__(self, *names: str) -> None:
        self._names = [name.encode() for name in names]
        self.kept: list[tuple[WireSpan, Forward]] = []
        self.taken = 0

    def classify(self, taken: ParsedRequest, *, keep: bool) -> ClassifiedRequest:
        kept = [span for span in taken.spans if keep and any(name in span.raw for name in self._names)]
        return ClassifiedRequest(taken, RequestPartition(taken, lambda *_: True), kept)

    def accept_classified(self, classified: ClassifiedRequest, exit: Forward | None) -> None:
        assert exit is not None
        self.taken += len(classified.request.spans)
        self.kept += [(span, exit) for span in classified.kept]


@pytest.fixture
def backend() -> Iterator[RawBackend]:
    with RawBackend() as running:
        yield running


def proxy_to(endpoint: str, keeper: Keeper, *, headers: Sequence[str] = (), max_bytes: int = 1_000_000) -> Proxy:
    return Proxy(ForwardSettings(endpoint=endpoint, headers=list(headers)), keeper, max_bytes=max_bytes)


def spans_named(*names: str) -> bytes:
    spans = [Span(trace_id=b"t" * 16, span_id=name.encode().rjust(8), name=name) for name in names]
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])]
    ).SerializeToString()


def in_json(*names: str) -> bytes:
    spans = [{"traceId": "74" * 16, "spanId": name.encode().rjust(8).hex(), "name": name} for name in names]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def sent(proxy: Proxy, request: ExportRequest) -> ExportResponse:
    body = gzip.decompress(request.body) if request.encoding else request.body
    protobuf = from_json(body) if request.is_json else body
    return proxy.forward_traces(request, protobuf, parse_request(protobuf))


def names_in(body: bytes) -> list[str]:
    request = ExportTraceServiceRequest.FromString(body)
    return [span.name for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("encoding", ["", GZIP])
def test_a_request_of_which_nothing_is_kept_arrives_as_it_came(
    backend: RawBackend, is_json: bool, encoding: str
) -> None:
    body = in_json("a", "b") if is_json else spans_named("a", "b")
    body = gzip.compress(body) if encoding else body
    proxy = proxy_to(backend.endpoint, Keeper(), headers=["X-Tenant"])

    answer = sent(proxy, ExportRequest("/v1/traces", body, is_json, encoding, {"x-tenant": "t", "cookie": "c"}))

    (arrived,) = backend.arrived
    assert answer.status == 200
    assert arrived.body == body
    assert arrived.headers["content-type"] == (JSON if is_json else PROTOBUF)
    assert (arrived.headers.get("content-encoding", ""), arrived.headers["x-tenant"]) == (encoding, "t")
    assert "cookie" not in arrived.headers


def test_of_a_request_with_kept_spans_the_rest_goes_on_at_once(backend: RawBackend) -> None:
    keeper = Keeper("kept")
    proxy = proxy_to(backend.endpoint, keeper)

    sent(proxy, ExportRequest("/v1/traces", gzip.compress(in_json("a", "kept", "b")), is_json=True, encoding=GZIP))

    (arrived,) = backend.arrived
    assert names_in(arrived.body) == ["a", "b"]
    assert (arrived.headers["content-type"], arrived.headers.get("content-encoding")) == (PROTOBUF, None)
    assert len(keeper.kept) == 1


def test_a_kept_span_follows_with_its_scores_and_the_headers_of_its_request(backend: RawBackend) -> None:
    keeper = Keeper("kept")
    proxy = proxy_to(backend.endpoint, keeper, headers=["X-Tenant"])

    answer = sent(proxy, ExportRequest("/v1/traces", spans_named("kept"), headers={"x-tenant": "t"}))
    before = list(backend.arrived)
    for span, exit_ in keeper.kept:
        exit_(span, {"spanscore.verdict": "pass"})

    assert proxy.close(20)
    (arrived,) = backend.arrived
    assert (answer, before) == (ExportResponse(200, b""), [])
    assert arrived.headers["x-tenant"] == "t"
    assert keeper.kept[0][0].raw in arrived.body
    assert b"spanscore.verdict" in arrived.body


@pytest.mark.parametrize(("is_json", "kept"), [(False, ()), (False, ("kept",)), (True, ()), (True, ("kept",))])
def test_what_the_backend_rejects_is_reported_to_the_client_in_its_own_format(
    backend: RawBackend, is_json: bool, kept: tuple[str, ...]
) -> None:
    partial_json = json.dumps({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}).encode()

    def speak(request: object) -> Reply:
        is_asked_in_json = backend.arrived[-1].headers["content-type"] == JSON
        return Reply(body=partial_json, headers={"Content-Type": JSON}) if is_asked_in_json else Reply(body=PARTLY)

    backend.reply(speak)
    body = in_json("a", "kept") if is_json else spans_named("a", "kept")

    answer = sent(proxy_to(backend.endpoint, Keeper(*kept)), ExportRequest("/v1/traces", body, is_json))

    assert answer.status == 200
    assert (answer.content_type, answer.body) == ((JSON, partial_json) if is_json else (PROTOBUF, PARTLY))


def test_a_success_in_another_tongue_is_a_success(backend: RawBackend) -> None:
    backend.reply(Reply(202, b"<p>thanks</p>", {"Content-Type": "text/html"}))

    answer = sent(proxy_to(backend.endpoint, Keeper()), ExportRequest("/v1/traces", spans_named("a")))

    assert answer == ExportResponse(200, b"", PROTOBUF)


@pytest.mark.parametrize("kept", [(), ("kept",)])
def test_a_backend_that_asks_to_send_later_is_heard_by_the_client(backend: RawBackend, kept: tuple[str, ...]) -> None:
    backend.reply(Reply(503, b"busy", {"Content-Type": "text/plain", "Retry-After": "7"}))
    proxy = proxy_to(backend.endpoint, Keeper(*kept))

    answer = sent(proxy, ExportRequest("/v1/traces", spans_named("a", "kept")))

    status = Status.FromString(answer.details)
    assert (answer.status, answer.body, answer.content_type) == (503, b"busy", "text/plain")
    assert (answer.headers, answer.grpc, status.message) == ({"retry-after": "7"}, 14, "the backend: HTTP 503")
    assert b"RetryInfo" in answer.details


def test_of_what_the_backend_does_not_take_nothing_is_taken(backend: RawBackend) -> None:
    keeper = Keeper("kept")
    proxy = proxy_to(backend.endpoint, keeper)
    request = ExportRequest("/v1/traces", spans_named("a", "kept"))

    backend.reply(Reply(503))
    sent(proxy, request)
    before = keeper.taken
    backend.reply(Reply())
    sent(proxy, request)

    assert (before, keeper.taken, len(keeper.kept)) == (0, 2, 1)


def test_a_backend_that_is_down_is_reported_so_that_the_client_sends_again() -> None:
    proxy = proxy_to(dead_endpoint(), Keeper())

    answer = sent(proxy, ExportRequest("/v1/traces", in_json("a"), is_json=True))

    values = {"code": 14, "message": "the backend: connection refused"}
    assert (answer.status, json.loads(answer.body)) == (503, values)
    assert proxy.state()[:2] == (0, 1)


def test_over_grpc_a_refusal_for_load_is_one_that_clients_heed(backend: RawBackend) -> None:
    backend.reply(Reply(429))

    answer = sent(proxy_to(backend.endpoint, Keeper()), ExportRequest("/v1/traces", spans_named("a")))

    assert (answer.status, answer.grpc) == (429, 8)
    assert b"RetryInfo" in answer.details


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/metrics"])
def test_other_signals_pass_as_they_came(backend: RawBackend, path: str) -> None:
    answer = proxy_to(backend.endpoint, Keeper()).forward_unchanged(ExportRequest(path, b"not read", encoding=GZIP))

    (arrived,) = backend.arrived
    assert answer.status == 200
    assert (arrived.path, arrived.body, arrived.headers["content-encoding"]) == (path, b"not read", GZIP)


def test_the_handler_refuses_while_too_much_waits_for_the_backend() -> None:
    keeper = Keeper("kept")
    proxy = proxy_to(dead_endpoint(), keeper, max_bytes=200)
    sent(proxy, ExportRequest("/v1/traces", spans_named("kept")))

    before = proxy.overloaded()
    for span, exit_ in keeper.kept:
        exit_(span, None)

    assert (before, proxy.overloaded()) == (None, "forward")
    assert not proxy.close(0)
    assert proxy.state()[2].endswith("1 held spans lost, latest: the drain ended first")


@pytest.mark.parametrize(
    ("expected", "due"),
    [
        ({}, "http://backend:4318"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, "http://backend:4318"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://scores:4318"}, "http://scores:4318"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://scores:4318/v1/traces"}, None),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
    ],
)
def test_scores_leave_to_the_backend_unless_a_variable_says_where(
    expected: Mapping[str, str], due: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(expected))

    send_by_default_to("http://backend:4318")

    assert os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") == due

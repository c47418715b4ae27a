"""A proxy forwards the spans of a request that it does not keep, unchanged, and returns the answer of the backend."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from tests.servers.otlp import dead_endpoint
from tests.service.backend import RawBackend, Reply

from spanscore.config.serving import ForwardSettings
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.service.proxy import Forwarder, rest_of


@pytest.fixture
def backend() -> Iterator[RawBackend]:
    with RawBackend() as running:
        yield running


def forwarder_to(endpoint: str, *, headers: tuple[str, ...] = (), timeout: float = 10.0) -> Forwarder:
    return Forwarder(ForwardSettings(endpoint=endpoint, headers=list(headers), timeout=timeout))


def test_a_request_arrives_as_the_bytes_that_came(backend: RawBackend) -> None:
    body = gzip.compress(b'{"resourceSpans": []}')

    answer = forwarder_to(backend.endpoint).send(
        "/v1/traces", body, content_type="application/json; charset=utf-8", encoding="gzip", headers={}
    )

    (arrived,) = backend.arrived
    assert answer.is_success
    assert (arrived.path, arrived.body) == ("/v1/traces", body)
    assert arrived.headers["content-type"] == "application/json; charset=utf-8"
    assert arrived.headers["content-encoding"] == "gzip"


def test_only_listed_headers_go_along_and_none_of_the_connection(backend: RawBackend) -> None:
    forwarder = forwarder_to(backend.endpoint, headers=("Authorization", "X-Scope-OrgID", "Content-Length", "Host"))
    sent = {"authorization": "Bearer a", "X-SCOPE-ORGID": "tenant-1", "cookie": "b", "content-length": "3", "host": "h"}

    forwarder.send("/v1/traces", b"12345", headers=sent)

    (arrived,) = backend.arrived
    assert (arrived.headers["authorization"], arrived.headers["x-scope-orgid"]) == ("Bearer a", "tenant-1")
    assert (arrived.headers["content-length"], arrived.headers["host"]) == ("5", f"127.0.0.1:{backend.port}")
    assert "cookie" not in arrived.headers


def test_the_answer_is_the_backends_own(backend: RawBackend) -> None:
    backend.reply(Reply(429, b"later", {"Content-Type": "text/plain", "Retry-After": "7"}))

    answer = forwarder_to(backend.endpoint).send("/v1/traces", b"", headers={})

    assert answer == (429, b"later", "text/plain", "7", "HTTP 429")


def test_a_backend_that_is_down_is_answered_so_that_the_client_sends_again() -> None:
    forwarder = forwarder_to(dead_endpoint())

    answer = forwarder.send("/v1/traces", b"", headers={})

    assert (answer.status, answer.error) == (503, "connection refused")
    assert forwarder.failed == 1
    assert forwarder.last_error.startswith("connection refused at ")


def test_a_backend_that_hangs_is_given_up_after_the_timeout(backend: RawBackend) -> None:
    backend.reply(Reply(hangs=True))

    answer = forwarder_to(backend.endpoint, timeout=0.2).send("/v1/traces", b"", headers={})

    assert (answer.status, answer.error) == (503, "no answer within 0.2 s")


def test_no_redirect_is_followed(backend: RawBackend) -> None:
    backend.reply(Reply(307, headers={"Location": "http://127.0.0.1:1/remote_scoring"}))

    answer = forwarder_to(backend.endpoint).send("/v1/traces", b"", headers={})

    assert (answer.status, answer.error) == (503, "HTTP 307: the endpoint has moved; correct forward.endpoint")
    assert len(backend.arrived) == 1


def test_no_proxy_of_the_environment_is_used(backend: RawBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", dead_endpoint())
    monkeypatch.setenv("all_proxy", dead_endpoint())

    assert forwarder_to(backend.endpoint).send("/v1/traces", b"", headers={}).is_success


def test_connections_are_used_again(backend: RawBackend) -> None:
    forwarder = forwarder_to(backend.endpoint)

    for _ in range(3):
        forwarder.send("/v1/traces", b"", headers={})

    assert forwarder.sent == 3
    assert backend.connections == 1


def test_an_endpoint_may_have_a_path_a_query_and_credentials(backend: RawBackend) -> None:
    forwarder = forwarder_to(f"http://user:p%40ss@127.0.0.1:{backend.port}/otlp/?key=a")

    forwarder.send("/v1/logs", b"", headers={})

    (arrived,) = backend.arrived
    assert arrived.path == "/otlp/v1/logs?key=a"
    assert arrived.headers["authorization"] == "Basic dXNlcjpwQHNz"


def test_a_header_that_http_cannot_carry_is_refused_for_good(backend: RawBackend) -> None:
    forwarder = forwarder_to(backend.endpoint, headers=("x-scope-orgid",))

    answer = forwarder.send("/v1/traces", b"", headers={"x-scope-orgid": "a\r\nevil: b"})

    assert (answer.status, backend.arrived) == (400, [])


UNKNOWN = b"\xfa\x3e\x03new"
"""Field 1007, of a message from a later OTLP."""


def span(number: int, *, trace_id: bytes = b"t" * 16) -> bytes:
    return Span(trace_id=trace_id, span_id=number.to_bytes(8), name=str(number)).SerializeToString()


def scope_spans(name: str, *raws: bytes) -> bytes:
    scope = ScopeSpans(scope=InstrumentationScope(name=name), spans=[Span.FromString(raw) for raw in raws])
    return scope.SerializeToString()


def request(*scopes: bytes) -> bytes:
    spans = ResourceSpans(schema_url="https://opentelemetry.io/schemas/1.40.0")
    spans.scope_spans.extend(ScopeSpans.FromString(scope) for scope in scopes)
    return ExportTraceServiceRequest(resource_spans=[spans]).SerializeToString() + UNKNOWN


def test_the_rest_is_every_other_span_and_field_in_its_order() -> None:
    body = request(scope_spans("a", span(1), span(2), span(3)), scope_spans("b", span(4)))
    kept = [one for one in parse_request(body).spans if one.raw in (span(2),)]

    rest = rest_of(body, kept)

    assert rest == request(scope_spans("a", span(1), span(3)), scope_spans("b", span(4)))


def test_a_span_that_is_not_valid_is_the_backends_to_judge() -> None:
    body = request(scope_spans("a", span(1), span(2, trace_id=b"short")))

    rest = rest_of(body, parse_request(body).spans)

    assert rest == request(scope_spans("a", span(2, trace_id=b"short")))


def test_of_a_request_that_is_kept_whole_nothing_is_left() -> None:
    body = request(scope_spans("a", span(1)), scope_spans("b", span(2)))

    assert rest_of(body, parse_request(body).spans) is None


def test_a_scope_without_spans_that_was_kept_whole_goes_with_them() -> None:
    body = request(scope_spans("a", span(1)), scope_spans("b", span(2)))
    kept = [one for one in parse_request(body).spans if one.origin.scope_name == "a"]

    assert rest_of(body, kept) == request(scope_spans("b", span(2)))

"""The two listeners with real clients: the SDK's exporters, and malformed requests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from tests.servers.server import poll
from tests.service.listening import JSON, PROTOBUF, RecordingReceiver, Running, a_request, listening

from spanscore.config.serving import ServeSettings
from spanscore.core.threads import DaemonPool
from spanscore.service.otlp_endpoint import GZIP, SMALL, TRACES, ExportHandler, ExportRequest, answer_request
from spanscore.service.plan import stop_s_of
from spanscore.service.requests import ExportResponse, NotCompressedError, accepted, gunzip

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    with listening() as running:
        yield running


def spans() -> list[Any]:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    made, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(made))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("root"):
        tracer.start_span("child").end()
    return [*made.get_finished_spans()]


def call(running: Running, message: bytes, method: str = EXPORT, **how: Any) -> Any:
    with grpc.insecure_channel(running.grpc) as channel:
        return channel.unary_unary(method)(message, timeout=30, **how)


def refused(running: Running, message: bytes, method: str = EXPORT, **how: Any) -> tuple[Any, Status]:
    with pytest.raises(grpc.RpcError) as raised:
        call(running, message, method, **how)
    trailing = dict(raised.value.trailing_metadata() or ())
    return raised.value, Status.FromString(trailing.get("grpc-status-details-bin", b""))


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_what_the_sdk_exports_over_http_is_taken(up: Running, compression: Compression) -> None:
    sent = spans()

    result = OverHttp(f"http://{up.http}/v1/traces", compression=compression).export(sent)

    assert result is SpanExportResult.SUCCESS
    assert [one.span_id for one in up.receiver.spans[-2:]] == [one.context.span_id.to_bytes(8, "big") for one in sent]


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_what_the_sdk_exports_over_grpc_is_taken(up: Running, compression: grpc.Compression) -> None:
    sent = spans()

    result = OverGrpc(up.grpc, insecure=True, compression=compression).export(sent)

    assert result is SpanExportResult.SUCCESS
    assert [one.span_id for one in up.receiver.spans[-2:]] == [one.context.span_id.to_bytes(8, "big") for one in sent]


def test_json_is_answered_in_json_and_protobuf_in_protobuf(up: Running) -> None:
    bad = {"traceId": "01", "spanId": "01" * 8, "name": "secret"}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [bad, bad | {"traceId": "01" * 16}]}]}]}).encode()

    in_json = up.post(body, JSON)
    in_protobuf = up.post(a_request("secret", trace_id=b"1"))

    document = json.loads(in_json.read())["partialSuccess"]
    part = ExportTraceServiceResponse.FromString(in_protobuf.read()).partial_success
    assert (in_json.status, in_json.headers["content-type"], document["rejectedSpans"]) == (
        200,
        "application/json",
        "1",
    )
    assert (in_protobuf.status, part.rejected_spans) == (200, 1)
    assert document["errorMessage"] == part.error_message
    assert "trace id" in part.error_message
    assert "secret" not in part.error_message


def test_overload_asks_to_send_again_on_both_wires() -> None:
    with listening(RecordingReceiver(full_of="bytes")) as full:
        over_http, (over_grpc, status) = full.post(a_request("a")), refused(full, a_request("a"))

    info = RetryInfo()
    assert (over_http.status, over_http.headers["retry-after"]) == (429, "1")
    assert over_grpc.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert status.details[0].Unpack(info)
    assert info.retry_delay.seconds == 1
    assert Status.FromString(over_http.read()) == status
    assert full.receiver.counts.refused == {"bytes": 2}


WRONG = [
    ("POST", "/v1/nothing", PROTOBUF, b"", 404),
    ("GET", "/v1/traces", PROTOBUF, b"", 405),
    ("POST", "/v1/traces", {"content-type": "text/plain"}, b"", 415),
    ("POST", "/v1/traces", {}, b"", 415),
    ("POST", "/v1/traces", PROTOBUF | {"content-encoding": "br"}, b"", 415),
    ("POST", "/v1/traces", PROTOBUF, b"\xff\xff", 400),
    ("POST", "/v1/traces", JSON, b"[", 400),
    ("POST", "/v1/traces", PROTOBUF | {"content-encoding": "gzip"}, b"none", 400),
    ("POST", "/v1/traces", PROTOBUF | {"content-encoding": "gzip"}, gzip.compress(b"x" * 99, mtime=0)[:-4], 400),
    ("POST", "/v1/metrics", PROTOBUF, b"", 404),
    ("POST", "/v1/logs", PROTOBUF, b"\xff", 200),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "status"), WRONG)
def test_what_is_wrong_is_reported_by_its_status(
    up: Running, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    answer = up.ask(method, path, body, headers)

    assert answer.status == status


@pytest.mark.parametrize(
    ("message", "method", "code"),
    [
        (b"\xff\xff", EXPORT, grpc.StatusCode.INVALID_ARGUMENT),
        (b"", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", grpc.StatusCode.UNIMPLEMENTED),
        (b"", "/nothing/At", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_is_wrong_is_reported_by_its_code(up: Running, message: bytes, method: str, code: grpc.StatusCode) -> None:
    error, _ = refused(up, message, method)

    assert error.code() is code


def test_logs_are_answered_with_success_unread(up: Running) -> None:
    assert call(up, b"\xff", "/opentelemetry.proto.collector.logs.v1.LogsService/Export") == b""


BOMB = gzip.compress(bytes(3_000_000), mtime=0)


def test_what_is_too_large_is_refused_for_good_before_and_while_it_is_inflated() -> None:
    with listening(limits={"request": 100_000, "inflated": 1_000_000}) as up:
        statuses = [up.post(bytes(100_001)).status, up.post(BOMB, PROTOBUF | {"content-encoding": "gzip"}).status]
        before, _ = refused(up, bytes(100_001))
        while_inflating, status = refused(up, bytes(3_000_000), compression=grpc.Compression.Gzip)

    assert statuses == [413, 413]
    assert {before.code(), while_inflating.code()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert not status.details


def test_two_large_bodies_are_inflated_at_once_however_many_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take 64 MB: of 32 on as many threads the system would end the process."""
    inside, most, go = set[int](), list[int](), Event()

    def slow(_: bytes, __: int) -> bytes:
        inside.add(get_ident())
        most.append(len(inside))
        go.wait(30)
        inside.discard(get_ident())
        return b""

    monkeypatch.setattr("spanscore.service.otlp_endpoint.gunzip", slow)
    handler = ExportHandler(RecordingReceiver(), max_inflated_bytes=1_000)  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(handler.answer, ExportRequest(TRACES, bytes(100_000), encoding=GZIP)) for _ in range(8)]
        poll(lambda: len(most) >= 2, deadline_s=25, what="two bodies that are being inflated")
        go.set()
        assert {answer.result(30).status for answer in answers} == {200}

    assert max(most) <= 2


@pytest.mark.parametrize(
    ("size", "is_json", "encoding", "on_loop"),
    [
        (512 * 2_300, False, "", True),  # a batch as SDKs send them
        (2_000_000, False, "", False),
        (SMALL, False, GZIP, True),
        (SMALL + 1, False, GZIP, False),  # it may have to wait for others that are inflated
        (16_000, True, "", True),
        (20_000, True, "", False),
        (3_000, True, GZIP, False),
    ],
)
async def test_what_takes_long_is_read_on_a_thread(size: int, is_json: bool, encoding: str, on_loop: bool) -> None:
    read_on = list[int]()

    class Watched(ExportHandler):
        def answer(self, request: ExportRequest) -> ExportResponse:
            read_on.append(get_ident())
            return accepted()

    handler, request = (
        Watched(RecordingReceiver(), max_inflated_bytes=1),
        ExportRequest(TRACES, bytes(size), is_json, encoding),
    )  # type: ignore[arg-type]
    await answer_request(request, handler, DaemonPool(1, "handler"))

    assert (read_on == [get_ident()]) is on_loop


def test_a_body_of_countless_empty_parts_is_refused_before_they_are_read() -> None:
    """Each part costs a copy of the rest: 16 MB of them would take minutes of CPU."""
    parts = {number: gzip.compress(b"", mtime=0) * number for number in (2, 17)}

    assert gunzip(parts[2] + gzip.compress(b"x"), 10) == b"x"
    with pytest.raises(NotCompressedError, match="16 gzip members"):
        gunzip(parts[17], 10)


def test_a_body_without_a_length_is_counted_while_it_comes() -> None:
    with listening(limits={"request": 100_000}) as up:
        answer = up.ask("POST", "/v1/traces", iter([bytes(60_000)] * 3), PROTOBUF)  # type: ignore[arg-type]  # in chunks

        assert answer.status == 413


def test_only_clients_with_the_token_are_accepted(tmp_path: Any) -> None:
    (tmp_path / "token").write_text("s3cret\n")

    with listening(token_file=str(tmp_path / "token")) as up:
        given = [
            up.post(a_request("a"), PROTOBUF | {"authorization": one}).status for one in ("Bearer s3cret", "Bearer no")
        ]
        without = up.post(a_request("a"))
        none, _ = refused(up, a_request("a"))
        taken = call(up, a_request("a"), metadata=[("authorization", "bearer s3cret")])

    assert (given, without.status, without.headers["www-authenticate"]) == ([200, 401], 401, "Bearer")
    assert none.code() is grpc.StatusCode.UNAUTHENTICATED
    assert taken == b""


def test_a_closed_handler_sends_elsewhere(up: Running) -> None:
    up.handler.closed = True
    try:
        over_http, (over_grpc, _) = up.post(a_request("a")), refused(up, a_request("a"))
    finally:
        up.handler.closed = False

    assert (over_http.status, over_grpc.code()) == (503, grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 5),
        ({"mode": "proxy", "forward": {"endpoint": "http://127.0.0.1:1", "timeout": 10}}, 11),
        ({"mode": "proxy", "forward": {"endpoint": "http://127.0.0.1:1", "timeout": 60}, "drain": 30}, 30),
    ],
)
def test_at_the_end_a_request_is_waited_for_as_long_as_its_backend_may_take(
    given: dict[str, Any], seconds: int
) -> None:
    assert stop_s_of(ServeSettings.model_validate(given)) == seconds

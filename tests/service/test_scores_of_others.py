"""Scores of others over both wires and both signals: as logs of any form, as spans, through a proxy, and by a real process."""

from __future__ import annotations

import gzip
import json
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as LogsOverGrpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as SpansOverGrpc
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as LogsOverHttp
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as SpansOverHttp
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.capture.otlp.results import logs, result
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import free_port, poll
from tests.service.listening import JSON, RecordingReceiver, Running, listening
from tests.service.process import a_run, send, serving
from tests.service.test_serve import asked

from spanscore import semconv
from spanscore.capture.otlp.external_scores import ExternalScores
from spanscore.core.job import ExternalCount
from spanscore.service.requests import ExportResponse, accepted, refusal

LOGS = "/v1/logs"
EXPORT_LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
IN_JSON = {
    "resourceLogs": [
        {
            "scopeLogs": [
                {
                    "scope": {"name": "an.app"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1",
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "eventName": semconv.EVALUATION_EVENT,
                            "attributes": [
                                {"key": semconv.EVALUATION_NAME, "value": {"stringValue": "tone"}},
                                {"key": semconv.EVALUATION_SCORE_VALUE, "value": {"doubleValue": 0.5}},
                            ],
                        }
                    ],
                }
            ]
        }
    ]
}


def a_receiver() -> RecordingReceiver:
    receiver = RecordingReceiver()
    receiver.external = ExternalScores(lambda *_: None, [])
    return receiver


def external_counts(running: Running) -> dict[str, ExternalCount]:
    assert running.receiver.external is not None
    counts = running.receiver.external.counts()
    return {} if counts is None else dict(counts.names)


class Backend:
    """An ``Onward`` with a scripted backend."""

    def __init__(self, answer: ExportResponse) -> None:
        self.answer = answer
        self.bodies: list[bytes] = []

    def overloaded(self) -> None: ...

    def forward_unchanged(self, request: Any) -> ExportResponse:
        self.bodies.append(request.body)
        return self.answer


@pytest.mark.parametrize("is_gzip", [False, True])
@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_a_log_record_is_heard_over_http(form: str, is_gzip: bool) -> None:
    body = logs(result("tone", 0.5)) if form == "protobuf" else json.dumps(IN_JSON).encode()
    headers = {
        "content-type": f"application/{'x-protobuf' if form == 'protobuf' else 'json'}",
        **({"content-encoding": "gzip"} if is_gzip else {}),
    }
    with listening(a_receiver()) as running:
        answer = running.post(gzip.compress(body) if is_gzip else body, headers, LOGS)

        assert (answer.status, answer.read()) == (200, b"{}" if form == "json" else b"")
        assert external_counts(running) == {"tone": ExternalCount(1, 0.5, False, {})}


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_log_record_is_heard_over_grpc(compression: grpc.Compression) -> None:
    with listening(a_receiver()) as running, grpc.insecure_channel(running.grpc, compression=compression) as channel:
        outcome = channel.unary_unary(EXPORT_LOGS)(logs(result("tone", 0.5)), timeout=30)

        assert outcome == b""
        assert external_counts(running) == {"tone": ExternalCount(1, 0.5, False, {})}


def test_what_has_no_name_is_a_partial_success() -> None:
    with listening(a_receiver()) as running:
        body = running.post(logs(result("tone", 0.5), result(None, 0.5)), path=LOGS).read()

        outcome = ExportLogsServiceResponse.FromString(body).partial_success
        assert (outcome.rejected_log_records, outcome.error_message) == (1, "1 with an evaluation that has no name")
        assert external_counts(running).keys() == {"tone"}


def test_a_record_in_json_that_cannot_be_read_is_a_partial_success() -> None:
    records = IN_JSON["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    broken = [{**records[0], "attributes": 7}, {**records[0], "spanId": "no hex"}, "none"]  # type: ignore[dict-item]
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [*records, *broken]}]}]}
    with listening(a_receiver()) as running:
        document = json.loads(running.post(json.dumps(body).encode(), JSON, LOGS).read())

        assert document["partialSuccess"]["rejectedLogRecords"] == "2"
        assert external_counts(running)["tone"].scores == 2


@pytest.mark.parametrize("reads_external", [True, False])
def test_logs_of_other_things_are_taken_for_nothing_and_unread(reads_external: bool) -> None:
    with listening(a_receiver() if reads_external else RecordingReceiver()) as running:
        answer = running.post(b"\xff no request at all", path=LOGS)

        assert (answer.status, answer.read()) == (200, b"")


def test_what_only_looks_like_a_request_of_logs_is_refused() -> None:
    with listening(a_receiver()) as running:
        of_protobuf = running.post(b"\xff" + semconv.EVALUATION_EVENT.encode(), path=LOGS)
        of_gzip = running.post(b"none", {"content-type": "application/x-protobuf", "content-encoding": "gzip"}, LOGS)

        assert (of_protobuf.status, of_gzip.status) == (400, 400)
        assert dict(running.receiver.counts.refused) == {"unreadable": 2}


def test_logs_that_inflate_past_the_bound_are_refused() -> None:
    with listening(a_receiver(), limits={"inflated": 1_000}) as running:
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}

        assert running.post(gzip.compress(bytes(2_000)), headers, LOGS).status == 413


def test_a_proxy_sends_logs_on_as_they_came_and_reads_them() -> None:
    backend, body = Backend(accepted("logs")), gzip.compress(logs(result("tone", 0.5), result(None, 0.5)))
    with listening(a_receiver(), proxy=backend) as running:
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
        answers = [running.post(sent, headers, LOGS) for sent in (body, b"broken")]

        assert [(answer.status, answer.read()) for answer in answers] == [(200, b""), (200, b"")]
        assert backend.bodies == [body, b"broken"]
        assert external_counts(running).keys() == {"tone"}


def test_a_proxy_reads_nothing_that_its_backend_did_not_take() -> None:
    with listening(a_receiver(), proxy=Backend(refusal(503, "away"))) as running:
        assert running.post(logs(result("tone", 0.5)), path=LOGS).status == 503
        assert external_counts(running) == {}


class Tee(OtlpReceiver):
    """A backend that forwards a copy of its requests, like a Collector without filters.

    Attributes:
        to: ``host:port``; empty = nowhere.
        came_back: path and status of each copy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.to = ""
        self.came_back: list[tuple[str, int]] = []

    def receive(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        answer = super().receive(path, body, headers)
        if self.to and path != "/v1/metrics":
            kept = {name.lower(): value for name, value in headers.items() if name.lower().startswith("content-")}
            self.came_back.append((path, asked(self.to, path, body, **kept)[0]))
        return answer


@pytest.fixture
def backend() -> Iterator[Tee]:
    with Tee() as receiver:
        yield receiver


def say(endpoints: dict[str, str], name: str, value: float) -> None:
    """Send a result by the conventions with the SDK: as a log record over gRPC and one over HTTP, and as a span over both."""
    grpc_at, http_at = endpoints["grpc"], f"http://{endpoints['http']}"
    for logs_to in (LogsOverGrpc(grpc_at, insecure=True), LogsOverHttp(f"{http_at}/v1/logs")):
        loggers = LoggerProvider(shutdown_on_exit=False)
        loggers.add_log_record_processor(SimpleLogRecordProcessor(logs_to))
        loggers.get_logger("an.app").emit(
            event_name=semconv.EVALUATION_EVENT,
            attributes=result(name, value, "as logged"),
            severity_number=SeverityNumber.INFO,
        )
        loggers.shutdown()
    for spans_to in (SpansOverGrpc(grpc_at, insecure=True), SpansOverHttp(f"{http_at}/v1/traces")):
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(spans_to))
        with tracers.get_tracer("an.app").start_as_current_span("a judge") as span:
            span.set_attributes({semconv.OPENINFERENCE_KIND: "EVALUATOR", "evaluations.0.evaluation.name": name})
            span.set_attribute("evaluations.0.evaluation.score", value)
        tracers.shutdown()


def sums_of(page: str) -> dict[tuple[str, str, str], float]:
    """Return name, label and source → sums as Prometheus reads them."""
    found = re.findall(r"^spanscore_scored_total\{([^}]*)\} (\S+)$", asked(page, "/metrics")[1], re.MULTILINE)
    matches = [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in found]
    names = ("gen_ai_evaluation_name", "gen_ai_evaluation_score_label", "spanscore_evaluation_source")
    return {tuple(labels.get(name, "") for name in names): value for labels, value in matches}  # type: ignore[misc]


@pytest.mark.timeout(300)
def test_a_service_shows_them_beside_its_own_which_add_nothing_when_they_come_back(
    tmp_path: Path, backend: Tee
) -> None:
    metrics, own = ["tests.service.metrics:Answered"], ("answered", "pass", "")
    with serving(tmp_path, backend.endpoint, metrics=metrics, serve_metrics=free_port()) as running:
        backend.to = running.http
        say({"grpc": running.grpc, "http": running.http}, "tone", 0.5)
        assert send(running, a_run())
        poll(lambda: len(backend.came_back) == 2, deadline_s=60, what="that its evaluation span and event come back")

        response, status = sums_of(running.page), asked(running.page, "/status")[1]
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0

    assert sorted(backend.came_back) == [("/v1/logs", 200), ("/v1/traces", 200)]
    assert {key: value for key, value in response.items() if key[2] == "external"} == {
        ("tone", "as logged", "external"): 2,
        ("tone", "", "external"): 2,
    }
    assert response[own] == 1
    assert "external scores: tone 4 (2 as logged, mean 0.50)" in status
    assert "1 evaluation left out" in status


@pytest.mark.timeout(300)
def test_a_service_that_is_configured_not_to_listen_to_others_does_not(tmp_path: Path, backend: Tee) -> None:
    with serving(tmp_path, backend.endpoint, units={"external_scores": False}, serve_metrics=free_port()) as running:
        say({"grpc": running.grpc, "http": running.http}, "tone", 0.5)

        response, status = sums_of(running.page), asked(running.page, "/status")[1]

    assert [key for key in response if key[2] == "external"] == []
    assert "external scores" not in status

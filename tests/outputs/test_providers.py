from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.outputs.builders import KEY, SPAN_ID, TRACE_ID, score, unit
from tests.outputs.memory import Memory, telemetry_of
from tests.servers.otlp import OtlpReceiver, dead_endpoint
from tests.servers.server import poll

from spanscore import semconv
from spanscore.core.score import score_id
from spanscore.outputs.exporters import condense, quiet_otlp_exporter
from spanscore.outputs.providers import ProviderRow, Providers
from spanscore.outputs.score_events import EvaluationEvents, Instruments
from spanscore.outputs.score_spans import EvaluationSpans

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0
"""No test waits so long; it only keeps a broken one from hanging."""


@pytest.fixture(autouse=True)
def no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


class LoopbackPage:
    is_loopback = True


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        yield receiver


@pytest.fixture
def own(receiver: OtlpReceiver) -> Iterator[Providers]:
    providers = Providers(service_name="shop")
    yield providers
    providers.shutdown(DEADLINE_S)


def rows(providers: Providers) -> dict[str, ProviderRow]:
    return {row.what: row for row in providers.describe()}


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, without any global settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**inherited, **environment},
        check=False,
    )


def answer(code: str, **environment: str) -> str:
    done = python(code, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# --- provider scopes ------------------------------------------------------------------------------------------------


def test_given_providers_come_before_all_others() -> None:
    memory = Memory()

    memory.providers.tracer("app").start_span("root").end()

    assert [span.name for span in memory.spans] == ["root"]
    assert {row.which for row in memory.providers.describe()} == {"given"}
    assert not memory.providers.is_own


def test_a_tracer_provider_that_is_set_globally_is_used_also_when_set_after_construction() -> None:
    found = answer("""
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from spanscore.outputs.providers import Providers
        providers = Providers()
        providers.warm_up()
        mine = TracerProvider(resource=Resource({"service.name": "mine"}))
        trace.set_tracer_provider(mine)
        print(providers.tracer("app").start_span("root").resource is mine.resource, providers.is_own)
        print(*[row.which for row in providers.describe()])
        """)

    assert found.splitlines() == ["True False", "global none none"]


def test_global_metric_and_log_providers_are_used_beside_an_own_tracer_provider() -> None:
    found = answer(
        """
        from opentelemetry import metrics, _logs
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk._logs import LoggerProvider
        from spanscore.outputs.providers import Providers
        metrics.set_meter_provider(MeterProvider())
        _logs.set_logger_provider(LoggerProvider())
        providers = Providers()
        providers.resolve()
        print(*[row.which for row in providers.describe()])
        """,
        OTEL_EXPORTER_OTLP_ENDPOINT=dead_endpoint(),
    )

    assert found == "own global global"


def test_nothing_is_ever_set_globally() -> None:
    found = answer(
        """
        from opentelemetry import trace, metrics, _logs
        from spanscore.outputs.providers import Providers
        before = [trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()]
        providers = Providers()
        providers.resolve()
        after = [trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider()]
        print(providers.is_own, before == after)
        """
    )

    assert found == "True True"


def test_own_metrics_and_logs_come_with_an_own_tracer_provider_or_where_it_is_said_where_to_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, result = Providers(TracerProvider()), Providers(TracerProvider())
    alone.resolve()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", dead_endpoint())
    result.resolve()

    assert [row.which for row in alone.describe()] == ["given", "none", "none"]
    assert [row.which for row in result.describe()] == ["given", "own", "own"]
    result.shutdown(0.1)


def test_instruments_made_before_a_global_meter_provider_is_set_are_filled_by_it() -> None:
    found = answer("""
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from spanscore.outputs.providers import Providers
        from spanscore.outputs.instruments import Telemetry
        from tests.outputs.builders import score
        from tests.outputs.memory import FixedCounts
        both = [Telemetry(Providers(TracerProvider()).meter(), FixedCounts()) for _ in range(2)]
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        for telemetry in both:
            telemetry.record(None, score())
        (resource,) = reader.get_metrics_data().resource_metrics
        print(*[point.value for metric in resource.scope_metrics[0].metrics if metric.name == "spanscore.scored"
                for point in metric.data.data_points])
        """)

    assert found == "2"


def test_the_choice_is_made_once() -> None:
    providers = Providers(TracerProvider())

    providers.resolve()

    assert providers.meter() is providers.meter()
    assert providers.tracer() is providers.tracer()


# --- the environment ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "endpoints"),
    [
        ({}, [f"http://localhost:4318/v1/{what}" for what in ("traces", "metrics", "logs")]),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1/x/"},
            [f"http://c:1/x/v1/{w}" for w in ("traces", "metrics", "logs")],
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://user:key@t/full?token=1"},
            ["https://t/full", "http://localhost:4318/v1/metrics", "http://localhost:4318/v1/logs"],
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["http://localhost:4317"] * 3),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            ["http://localhost:4317", "http://localhost:4318/v1/metrics", "http://localhost:4318/v1/logs"],
        ),
    ],
    ids=["default", "one endpoint", "an endpoint with credentials", "grpc", "grpc for traces"],
)
def test_the_endpoint_is_that_of_the_specification(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], endpoints: list[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    providers = Providers()

    providers.resolve()

    assert [row.endpoint for row in providers.describe()] == endpoints
    providers.shutdown(0.1)


def test_a_variable_set_after_construction_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    providers = Providers()
    providers.warm_up()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://late:1")

    providers.resolve()

    assert rows(providers)["traces"].endpoint == "http://late:1/v1/traces"
    providers.shutdown(0.1)


def test_traces_exporter_none_leaves_spans_and_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    providers = Providers()

    assert providers.tracer().start_span("root").get_span_context().trace_flags.sampled
    assert providers.describe() == [
        ProviderRow("traces", "own", "", "OTEL_TRACES_EXPORTER=none"),
        ProviderRow("metrics", "none", "", "OTEL_METRICS_EXPORTER=none"),
        ProviderRow("logs", "none", "", "OTEL_LOGS_EXPORTER=none"),
    ]
    assert providers.force_flush(DEADLINE_S)
    assert providers.shutdown(DEADLINE_S)


def test_a_disabled_sdk_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    providers = Providers()

    assert not providers.tracer().start_span("root").is_recording()
    assert [(row.which, row.last) for row in providers.describe()] == [("none", "OTEL_SDK_DISABLED=true")] * 3


def test_a_variable_that_cannot_be_read_is_said_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    providers = Providers()
    providers.warm_up()

    providers.tracer().start_span("root").end()

    assert "no exporter could be built" in rows(providers)["traces"].last
    assert len(caplog.messages) == 3
    providers.shutdown(0.1)


def test_own_providers_tell_service_and_instance(own: Providers, receiver: OtlpReceiver) -> None:
    own.tracer().start_span("root").end()

    assert own.force_flush(DEADLINE_S)
    (span,) = receiver.spans
    assert span.resource["service.name"] == "shop"
    assert span.resource["service.instance.id"]


def test_the_service_is_that_of_the_environment_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch, receiver: OtlpReceiver
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-env")
    providers = Providers()
    providers.tracer().start_span("root").end()

    providers.shutdown(DEADLINE_S)

    assert [span.resource["service.name"] for span in receiver.spans] == ["from-env"]


# --- scores over the wire -------------------------------------------------------------------------------------------


def test_scores_arrive_as_span_event_and_exemplar_of_the_scored_trace(own: Providers, receiver: OtlpReceiver) -> None:
    memory = Memory()
    memory.providers = own
    for sink in (EvaluationSpans(own), EvaluationEvents(own), Instruments(telemetry_of(memory))):
        sink.emit(unit(), [score()])

    assert own.force_flush(DEADLINE_S)

    (span,), (event,), (point,) = receiver.spans, receiver.events, receiver.points_of("spanscore.quality")
    chosen = int(score_id(KEY, "faithfulness", "1")[:16], 16)
    assert (span.name, span.span_id, span.parent_id) == ("evaluation faithfulness", chosen, SPAN_ID)
    assert span.links == ((TRACE_ID, SPAN_ID),)
    assert type(span.attributes["spanscore.score.faithfulness"]) is float
    assert (event.event_name, event.trace_id, event.span_id) == ("gen_ai.evaluation.result", TRACE_ID, SPAN_ID)
    assert point.exemplars == ((TRACE_ID, SPAN_ID),)
    assert point.bounds == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert receiver.span_ids == {chosen: 1}


def test_a_external_resource_travels_with_its_evaluation(own: Providers, receiver: OtlpReceiver) -> None:
    EvaluationSpans(own).emit(unit(resource={"service.name": "billing"}), [score()])

    assert own.force_flush(DEADLINE_S)
    assert [span.resource for span in receiver.spans] == [{"service.name": "billing"}]


def test_status_says_when_the_last_export_went_well(own: Providers, receiver: OtlpReceiver) -> None:
    own.resolve()
    before = rows(own)["traces"].last
    own.tracer().start_span("root").end()
    own.force_flush(DEADLINE_S)

    assert before == "nothing sent yet"
    assert rows(own)["traces"].last.startswith("ok at ")


@pytest.mark.parametrize(("preferred", "expected"), [("delta", True), ("cumulative", False)])
def test_our_own_metrics_that_leave_as_differences_are_reported(
    own: Providers, monkeypatch: pytest.MonkeyPatch, preferred: str, expected: bool
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preferred)
    before = own.notes()
    own.resolve()

    assert [before, bool(own.notes())] == [[], expected]


@pytest.mark.parametrize(("endpoint", "expected"), [(None, True), ("http://127.0.0.1:9", False)])
def test_a_page_in_a_pod_is_reported_unread_unless_it_is_said_where_else_metrics_go(
    own: Providers, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, expected: bool
) -> None:
    monkeypatch.setenv(semconv.KUBERNETES_ENV, "10.0.0.1")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    if endpoint:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    own.resolve()

    assert [row.which for row in own.describe()] == ["own"] * 3
    assert bool(own.notes(LoopbackPage())) == expected


# --- a backend that fails -------------------------------------------------------------------------------------------


def test_a_backend_without_metrics_and_logs_is_asked_once_and_said_once(
    own: Providers, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer(405, "metrics", "logs")  # Phoenix; others answer 404, as below
    memory = Memory()
    memory.providers = own
    telemetry, events = telemetry_of(memory), EvaluationEvents(own)

    flushed = []
    for _ in range(3):
        telemetry.record(unit(), score())
        events.emit(unit(), [score()])
        own.tracer().start_span("root").end()
        flushed.append(own.force_flush(DEADLINE_S))

    assert flushed == [True, True, True]
    assert (receiver.requests["metrics"], receiver.requests["logs"], len(receiver.spans)) == (1, 1, 3)
    assert [rows(own)[what].last.split(" at ")[0] for what in ("traces", "metrics", "logs")] == [
        "ok",
        "stopped",
        "stopped",
    ]
    assert caplog.messages == []


def test_traces_that_a_backend_does_not_take_are_not_flushed(own: Providers, receiver: OtlpReceiver) -> None:
    receiver.answer(404, "traces")
    own.tracer().start_span("root").end()

    assert not own.force_flush(DEADLINE_S)
    assert not own.force_flush(DEADLINE_S)
    assert receiver.requests["traces"] == 1


def test_flush_is_false_after_a_failed_export_and_true_again_after_a_good_one(
    own: Providers, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer(400, "traces")
    own.tracer().start_span("lost").end()
    failed, still = own.force_flush(DEADLINE_S), own.force_flush(DEADLINE_S)
    words = rows(own)["traces"].last
    receiver.answer(200, "traces")
    own.tracer().start_span("root").end()

    assert (failed, still, own.force_flush(DEADLINE_S)) == (False, False, True)
    assert words.startswith("failed at ")
    assert words.endswith(": HTTP 400; 1 span not delivered")
    assert caplog.messages == [
        f"spanscore: nothing can be exported to {receiver.endpoint} (HTTP 400): "
        "see scorer.status() for the number of lost items"
    ]


def refused(endpoint: str) -> str:
    return (
        f"spanscore: nothing can be exported to {endpoint} (connection refused): is a Collector there? "
        "Set OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_SDK_DISABLED=true, which ends scoring"
    )


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_nobody_waits_for_a_collector_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    endpoint = dead_endpoint()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    providers = Providers()
    providers.tracer().start_span("root").end()

    flushed = providers.force_flush(DEADLINE_S)

    assert not flushed
    assert rows(providers)["traces"].last == "connection refused, trying again; 1 span waiting"
    assert caplog.messages.count(refused(endpoint)) == 1
    assert not providers.shutdown(DEADLINE_S)


def test_what_a_dead_collector_did_not_get_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", dead_endpoint())
    providers = Providers()
    for _ in range(3):
        providers.tracer().start_span("root").end()
    providers.force_flush(DEADLINE_S)
    providers.shutdown(DEADLINE_S)

    poll(lambda: rows(providers)["traces"].last.startswith("failed"), deadline_s=DEADLINE_S, what="the exporter to end")
    assert rows(providers)["traces"].last.endswith("UTC: connection refused; 3 spans not delivered")


def test_a_collector_that_is_busy_for_a_moment_is_waited_for(own: Providers, receiver: OtlpReceiver) -> None:
    receiver.answer(503)
    own.tracer().start_span("root").end()
    begun = own.start_flush_of_spans()
    assert receiver.wait_for(lambda: receiver.requests["traces"])
    receiver.answer(200)

    assert own.force_flush(DEADLINE_S)
    assert begun.result(DEADLINE_S)
    assert [span.name for span in receiver.spans] == ["root"]


def test_what_a_backend_rejects_is_not_flushed_and_counted(
    own: Providers, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.reject(2, "too old")
    for _ in range(3):
        own.tracer().start_span("root").end()

    assert not own.force_flush(DEADLINE_S)
    assert rows(own)["traces"].last.endswith("UTC: 2 of 3 spans rejected (too old); 2 spans not delivered")
    assert caplog.messages == [
        f"spanscore: {receiver.endpoint} rejects a part of each export: see scorer.status() for the number of lost items"
    ]


def test_a_flush_is_true_again_when_nothing_is_rejected_any_more(own: Providers, receiver: OtlpReceiver) -> None:
    receiver.reject(1)
    own.tracer().start_span("root").end()
    flushed = own.force_flush(DEADLINE_S)
    receiver.reject(0, "only a warning")
    own.tracer().start_span("root").end()

    assert (flushed, own.force_flush(DEADLINE_S)) == (False, True)
    assert rows(own)["traces"].last.endswith("UTC; 1 span not delivered")


def test_points_and_events_that_are_rejected_are_counted(own: Providers, receiver: OtlpReceiver) -> None:
    receiver.reject(1)
    memory = Memory()
    memory.providers = own
    telemetry_of(memory).record(unit(), score())
    EvaluationEvents(own).emit(unit(), [score()])

    assert not own.force_flush(DEADLINE_S)
    assert "1 point not delivered" in rows(own)["metrics"].last
    assert rows(own)["logs"].last.endswith("UTC: 1 of 1 events rejected; 1 event not delivered")


@pytest.mark.parametrize("answer", [b"{}", b"<html>", b"\xff\xff"])
def test_an_answer_that_is_none_of_otlp_rejects_nothing(own: Providers, receiver: OtlpReceiver, answer: bytes) -> None:
    receiver.accepted = {"/v1/traces": answer}
    own.tracer().start_span("root").end()

    assert own.force_flush(DEADLINE_S)


@pytest.mark.parametrize(
    "variable",
    ["OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER"],
)
def test_a_session_that_the_environment_names_is_the_exporters(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "nobodys")
    providers = Providers()

    providers.resolve()

    assert "nobodys" in rows(providers)["traces"].last  # the exporter has looked for it


@pytest.mark.parametrize(
    ("words", "clause"),
    [
        ("HTTPConnectionPool(host='x', port=4318): Failed to resolve 'x' ([Errno -2])", "name not resolved"),
        ("NewConnectionError('[Errno 111] Connection refused')", "connection refused"),
        ("Transient error Service Unavailable encountered while exporting spans batch, retrying in 1s.", "HTTP 503"),
        ("Failed to export spans batch code: 401, reason: Unauthorized", "HTTP 401"),
        ("HTTPConnectionPool(host='x', port=4318): Read timed out. (read timeout=10)", "timed out"),
        ("Failed to export traces to x:4317, error code: StatusCode.INTERNAL, error details: no", "gRPC INTERNAL"),
    ],
)
def test_an_exporters_words_become_one_clause(words: str, clause: str) -> None:
    assert condense(words) == clause


def test_a_grpc_backend_without_a_signal_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = grpc.server(ThreadPoolExecutor(2))  # has no service, so it answers UNIMPLEMENTED
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    providers = Providers()
    EvaluationEvents(providers).emit(unit(), [score()])

    providers.force_flush(DEADLINE_S)

    assert rows(providers)["logs"].last.startswith("stopped at ")
    assert caplog.messages == []
    providers.shutdown(DEADLINE_S)
    server.stop(None)


def test_over_grpc_it_is_not_known_what_a_backend_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    partial = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=1))
    export = grpc.unary_unary_rpc_method_handler(lambda *_: partial.SerializeToString())
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": export})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    providers = Providers()
    providers.tracer().start_span("root").end()

    providers.force_flush(DEADLINE_S)

    assert rows(providers)["traces"].last.endswith("UTC; whether all was accepted is not known")
    providers.shutdown(DEADLINE_S)
    server.stop(None)


def test_a_backend_that_hangs_holds_nobody_up(own: Providers, receiver: OtlpReceiver) -> None:
    receiver.answer("hang")
    own.tracer().start_span("root").end()

    began = time.monotonic()
    flushed = own.force_flush(0.2)
    closed = own.shutdown(0.2)

    assert (flushed, closed) == (False, False)
    assert time.monotonic() - began < 5


def test_a_flush_that_waits_behind_a_hanging_one_is_done_once(own: Providers, receiver: OtlpReceiver) -> None:
    receiver.answer("hang", "traces")
    own.tracer().start_span("root").end()
    first = own.start_flush_of_spans()
    assert receiver.wait_for(lambda: receiver.requests["traces"])

    waiting = {id(own.start_flush_of_spans()) for _ in range(5)}

    assert not first.done()
    assert len(waiting) == 1
    receiver.answer(200)
    assert first.result(DEADLINE_S)


def test_the_applications_own_exporters_log_as_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, own: Providers, receiver: OtlpReceiver
) -> None:
    receiver.answer(400)
    theirs = TracerProvider(shutdown_on_exit=False)
    theirs.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    own.tracer().start_span("ours").end()
    own.force_flush(DEADLINE_S)
    ours = [record.name for record in caplog.records]
    with caplog.at_level(logging.ERROR):
        theirs.get_tracer("app").start_span("theirs").end()
        theirs.shutdown()

    assert ours == ["spanscore"]
    assert len(caplog.messages) == 2


def test_an_applications_line_is_no_repetition_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    sdk = logging.getLogger("opentelemetry.sdk._shared_internal")  # lets one line through per 20 s

    def queue_full() -> None:
        sdk.warning("Queue full, dropping %s.", "Span")

    with quiet_otlp_exporter("traces", "http://127.0.0.1:1").suppressing_logs():
        queue_full()
    queue_full()

    assert caplog.messages == ["Queue full, dropping Span."]


def test_a_full_queue_of_ours_says_nothing(
    monkeypatch: pytest.MonkeyPatch, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    receiver.answer("hang")
    providers = Providers()

    for _ in range(100):
        providers.tracer().start_span("root").end()

    assert caplog.messages == []
    providers.shutdown(0.1)


EMIT_AND_EXIT = """
    from spanscore.outputs.providers import Providers
    from spanscore.outputs.score_spans import EvaluationSpans
    from spanscore.outputs.score_events import EvaluationEvents
    from spanscore.outputs.score_events import Instruments
    from tests.outputs.builders import score, unit
    from tests.outputs.memory import FixedCounts
    from spanscore.outputs.instruments import Telemetry
    providers = Providers()
    providers.warm_up()
    sinks = EvaluationSpans(providers), EvaluationEvents(providers), Instruments(Telemetry(providers.meter(), FixedCounts()))
    for n in range(1200):
        for sink in sinks:
            sink.emit(unit(), [score(id=f"{n + 1:016x}" * 2)])
    import time
    print(time.time())
    """


EXIT_WITHIN_S = 8.0
"""An end of five seconds, and the interpreter's own on a machine that others use too; unbounded it would be thirty."""


def exit_of(code: str, **environment: str) -> tuple[float, str]:
    """Return the interpreter's time after it printed the time, and its stderr."""
    done = python(code, **environment)
    ended = time.time()
    assert done.returncode == 0, done.stderr
    return ended - float(done.stdout), done.stderr


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_with_a_dead_collector_the_exit_is_bounded_and_one_line_says_why(protocol: str) -> None:
    endpoint = dead_endpoint()

    took_s, stderr = exit_of(EMIT_AND_EXIT, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)

    assert stderr.splitlines() == [refused(endpoint)]
    assert took_s < EXIT_WITHIN_S


@pytest.mark.parametrize(("with_", "expected"), [(503, "(HTTP 503)"), ("hang", "")])
def test_with_a_sick_collector_the_exit_is_bounded_and_one_line_at_most_is_printed(with_: int, expected: str) -> None:
    with OtlpReceiver() as receiver:
        receiver.answer(with_)
        took_s, stderr = exit_of(EMIT_AND_EXIT, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)

    assert len(stderr.splitlines()) == (1 if expected else 0), stderr
    assert expected in stderr
    assert took_s < EXIT_WITHIN_S


def test_what_was_made_before_the_exit_arrives() -> None:
    with OtlpReceiver() as receiver:
        exit_of(EMIT_AND_EXIT, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)

        assert (len(receiver.span_ids), len(receiver.events)) == (1200, 1200)
        assert [point.value for point in receiver.points_of("spanscore.quality")][-1] == 1200


# --- shutdown, fork, import -----------------------------------------------------------------------------------------


def test_shutdown_leaves_providers_of_others_alone() -> None:
    memory = Memory()

    assert memory.providers.shutdown(DEADLINE_S)
    memory.tracer_provider.get_tracer("app").start_span("later").end()

    assert [span.name for span in memory.spans] == ["later"]


def test_shutdown_sends_what_is_waiting_and_twice_is_as_good_as_once(own: Providers, receiver: OtlpReceiver) -> None:
    own.tracer().start_span("root").end()

    closed = own.shutdown(DEADLINE_S)
    again = own.shutdown(DEADLINE_S)
    own.tracer().start_span("too late").end()

    assert (closed, again, [span.name for span in receiver.spans]) == (True, True, ["root"])


def test_flush_of_a_given_provider_is_what_it_says() -> None:
    class Refusing(MeterProvider):
        def force_flush(self, timeout_millis: float = 0) -> bool:
            return False

    providers = Providers(TracerProvider(), Refusing(shutdown_on_exit=False))
    providers.resolve()

    assert not providers.force_flush(DEADLINE_S)
    assert providers.start_flush_of_spans().result(DEADLINE_S)


def test_a_meter_provider_that_is_not_hashable_has_one_meter() -> None:
    @dataclass
    class Proxy(MeterProvider):  # as Logfire's; a dataclass with equality has no hash
        def __post_init__(self) -> None:
            super().__init__(shutdown_on_exit=False)

    providers = Providers(TracerProvider(), Proxy())
    providers.resolve()

    assert providers.meter() is providers.meter()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("when", ["while warming up", "after the choice"])
def test_a_forked_child_exports_its_own_spans(own: Providers, receiver: OtlpReceiver, when: str) -> None:
    own.warm_up()
    if when == "after the choice":
        own.tracer().start_span("parent").end()

    child = os.fork()
    if child == 0:
        own.tracer().start_span("child").end()
        os._exit(0 if own.force_flush(DEADLINE_S) and own.shutdown(DEADLINE_S) else 1)
    exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert exit_code == 0
    assert own.force_flush(DEADLINE_S)
    assert sorted(span.name for span in receiver.spans) == (
        ["child", "parent"] if when == "after the choice" else ["child"]
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_forked_children_are_instances_of_their_own(own: Providers, receiver: OtlpReceiver) -> None:
    own.warm_up()  # as a scorer does that is made before the workers are forked

    for _ in range(2):
        child = os.fork()
        if child == 0:
            own.tracer().start_span("child").end()
            os._exit(0 if own.force_flush(DEADLINE_S) else 1)
        assert os.waitpid(child, 0)[1] == 0

    assert len({(span.resource or {})["service.instance.id"] for span in receiver.spans}) == 2


def test_importing_loads_nothing_heavy() -> None:
    found = answer("""
        import sys
        import spanscore.outputs.providers, spanscore.outputs.instruments
        import spanscore.outputs.score_spans, spanscore.outputs.score_events, spanscore.outputs.score_events
        heavy = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry._logs", "numpy", "yaml", "grpc", "requests")
        print([name for name in sys.modules if name.startswith(heavy)])
        """)

    assert found == "[]"


def test_constructing_and_choosing_a_given_provider_loads_no_exporter() -> None:
    found = answer("""
        import sys
        from opentelemetry.sdk.trace import TracerProvider
        from spanscore.outputs.providers import Providers
        providers = Providers(TracerProvider())
        providers.warm_up()
        providers.tracer()
        print([name for name in sys.modules if name.startswith(("opentelemetry.exporter", "opentelemetry.sdk.metrics"))])
        """)

    assert found == "[]"

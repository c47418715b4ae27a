"""``spanscore serve`` behind a real Collector: applications of another language, several of it, and more than it takes."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.integrations.serving import Served, free_ports, serving
from tests.integrations.stage import carrying
from tests.servers.jaeger import Jaeger, Traces
from tests.servers.openai_api import OpenAIServer
from tests.servers.otlp import OtlpReceiver
from tests.servers.server import poll
from tests.traces import event_only
from tests.traces.said import answer

from spanscore import semconv

pytestmark = pytest.mark.server

QUESTION, ANSWER = "What is the capital of France?", "Paris is the capital of France."
EVALUATION = "evaluation response_relevancy"
WITHIN_S = 40.0
SETTINGS: Mapping[str, Any] = {
    "judge": {"model": "lexical"},
    "metrics": [{"response_relevancy": {"pass_at": 0.3}}],
    "units": {"idle_timeout": "300ms"},
}
SCOPE = "guide.app"
ASKED = {
    semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW,
    semconv.INPUT_MESSAGES: json.dumps([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]),
    semconv.OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]),
}
IN_A_HURRY = {"initial_interval": "200ms", "max_interval": "500ms"}


def test_the_scores_of_a_javascript_application_are_found_in_jaeger_by_tag(
    collector: ModuleType, jaeger: Jaeger, node: ModuleType, tmp_path: Path
) -> None:
    with beside(collector, tmp_path, jaeger.otlp) as (endpoint, served), OpenAIServer(lambda _: ANSWER) as model:
        node.ask(QUESTION, times=5, model=model.url, to=f"{endpoint}/v1/traces")

        found = jaeger.search(
            node.SERVICE, {semconv.VERDICT: "pass"}, lambda found: len(_spans(found)) >= 15, deadline_s=WITHIN_S
        )

        assert served.outcomes() == {"scored": 5}
    names, traces = Counter(span["operationName"] for span in _spans(found)), len(found)
    assert names == {"ai.generateText": 5, "ai.generateText.doGenerate": 5, EVALUATION: 5}
    assert (traces, len({span["spanID"] for span in _spans(found)})) == (5, 15)
    assert [
        span["warnings"] for span in _spans(found) if span["warnings"] and span["operationName"] == EVALUATION
    ] == []


def test_content_in_log_records_gives_the_samples_of_content_on_spans(
    collector: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs leave the application, and the Collector, by pipelines of their own."""
    pytest.importorskip("opentelemetry.instrumentation.genai.openai")
    logs = {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["otlp_http/spanscore"]}
    more = _file(tmp_path, {"service": {"pipelines": {"logs/spanscore": logs}}})
    monkeypatch.setenv(event_only.SAMPLES_ENV, str(tmp_path / "samples"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with (
        OtlpReceiver() as backend,
        OpenAIServer(answer) as model,
        serving(tmp_path / "serve", {"metrics": event_only.METRICS}, scores_to=backend.endpoint) as served,
    ):
        to = {"TRACES_OTLP_ENDPOINT": backend.endpoint, "SCORER_OTLP_ENDPOINT": served.http}
        with carrying(tmp_path, collector, to, "tee.yaml", more) as endpoint:
            for form in event_only.FORMS:
                event_only.run(form, model.url, endpoint=endpoint)
            units = 2 * event_only.CALLS * len(event_only.FORMS)
            poll(lambda: sum(served.outcomes().values()) == units, deadline_s=WITHIN_S, what="every unit")
            assert served.eligible() == units

    assert event_only.differing_samples(tmp_path / "samples") == {}


def test_through_a_proxy_the_score_stands_on_the_root_and_each_span_comes_once(
    collector: ModuleType, tmp_path: Path
) -> None:
    with OtlpReceiver() as backend:
        proxy = {**SETTINGS, "serve": {"mode": "proxy", "forward": {"endpoint": backend.endpoint}}}
        with (
            serving(tmp_path / "serve", proxy, scores_to=backend.endpoint) as served,
            carrying(
                tmp_path / "collector", collector, {"SCORER_OTLP_ENDPOINT": served.http}, "proxy.yaml"
            ) as endpoint,
        ):
            send(endpoint, 5)

            assert backend.wait_for(lambda: len(backend.spans) == 4 * 5, WITHIN_S)  # with an evaluation each
    roots = [span.attributes for span in backend.spans if span.name == "invoke_workflow guide"]
    assert [root[semconv.VERDICT] for root in roots] == ["pass"] * 5
    assert {*backend.span_ids.values()} == {1}


def test_behind_a_load_balancer_no_trace_is_split_and_what_one_does_not_take_waits_for_it(
    collector: ModuleType, tmp_path: Path
) -> None:
    with OtlpReceiver() as backend, ExitStack() as stack:
        first, second = (
            stack.enter_context(serving(tmp_path / name, SETTINGS, scores_to=backend.endpoint)) for name in "ab"
        )
        to = {"TRACES_OTLP_ENDPOINT": backend.endpoint, "SCORER_1": first.grpc, "SCORER_2": second.grpc}
        hurry = _file(
            tmp_path, {"exporters": {"load_balancing": {"protocol": {"otlp": {"retry_on_failure": IN_A_HURRY}}}}}
        )
        endpoint = stack.enter_context(carrying(tmp_path, collector, to, "load_balancing.yaml", hurry))

        send(endpoint, 40)
        poll(lambda: _scored(first, second) == 40, deadline_s=WITHIN_S, what="40 units, each whole at one of the two")
        assert min(first.eligible(), second.eligible()) > 0

        before = second.eligible()
        first.kill()
        send(endpoint, 40)
        poll(lambda: second.eligible() > before, deadline_s=WITHIN_S, what="units at the one that lives")
        again = stack.enter_context(serving(tmp_path / "c", SETTINGS, scores_to=backend.endpoint, ports=first.ports))
        poll(
            lambda: _scored(second, again) == before + 40,
            deadline_s=WITHIN_S,
            what="what waited, at the one in its place",
        )


def test_four_times_too_much_is_refused_and_behind_the_collectors_queue_all_of_it_is_scored(
    collector: ModuleType, tmp_path: Path
) -> None:
    narrow = {**SETTINGS, "units": {"idle_timeout": "1s", "traces": 100}}
    small = {"sending_queue": {"batch": {"min_size": 1_000, "max_size": 20_000}}, "retry_on_failure": IN_A_HURRY}
    changes = _file(tmp_path, {"exporters": {"otlp_http/spanscore": small}})
    with (
        OtlpReceiver() as backend,
        beside(collector, tmp_path, backend.endpoint, narrow, changes) as (endpoint, served),
    ):
        for _ in range(4):
            send(endpoint, 100)
        poll(lambda: served.outcomes() == {"scored": 400}, deadline_s=WITHIN_S, what="every unit to be scored")

        assert served.eligible() == 400
        assert "Throttle (1s)" in (tmp_path / "collector" / "server.log").read_text()
        assert backend.wait_for(lambda: len(backend.spans) == 1_600, 20)  # with an evaluation each
    assert {*backend.span_ids.values()} == {1}


@contextmanager
def beside(
    collector: ModuleType, folder: Path, backend: str, settings: Mapping[str, Any] = SETTINGS, *changes: Path
) -> Iterator[tuple[str, Served]]:
    """Run a tee and a ``serve`` with scores that return through it; yield the applications' address and the ``serve``."""
    ports = free_ports()
    to = {"TRACES_OTLP_ENDPOINT": backend, "SCORER_OTLP_ENDPOINT": f"http://127.0.0.1:{ports['http']}"}
    with (
        carrying(folder / "collector", collector, to, "tee.yaml", *changes) as endpoint,
        serving(folder / "serve", settings, scores_to=endpoint, ports=ports) as served,
    ):
        yield endpoint, served


def send(endpoint: str, traces: int) -> None:
    """Have an application answer so many questions, each in a trace of a request, a chain and a model call."""
    provider = TracerProvider(resource=Resource.create({"service.name": "guide"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracer = provider.get_tracer(SCOPE)
    for _ in range(traces):
        with (
            tracer.start_as_current_span("POST /ask"),
            tracer.start_as_current_span("invoke_workflow guide", attributes=ASKED),
            tracer.start_as_current_span("chat offline", attributes={**ASKED, semconv.OPERATION_NAME: semconv.CHAT}),
        ):
            pass
    provider.shutdown()


def _scored(*served: Served) -> int:
    """Return the units scored by all of them, after each has finished all received units."""
    return sum(each.outcomes()["scored"] for each in served if each.eligible() == sum(each.outcomes().values()))


def _file(folder: Path, config: Mapping[str, Any]) -> Path:
    (path := folder / "changes.yaml").write_text(json.dumps(config), encoding="utf-8")
    return path


def _spans(traces: Traces) -> list[dict[str, Any]]:
    return [span for trace in traces for span in trace["spans"]]

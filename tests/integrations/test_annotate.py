"""``integrations/phoenix/annotate.py`` makes Phoenix's own annotations of evaluation spans, however often it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from time import time_ns
from typing import Any

import pytest
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.integrations.stage import INTEGRATIONS
from tests.live import QUESTION, Failing, Grounded, rag
from tests.outputs.builders import score
from tests.servers.otlp import dead_endpoint
from tests.servers.phoenix import Phoenix, Spans
from tests.servers.server import fetch_json, poll

from spanscore import OnlineScorer
from spanscore.config import Capture
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.outputs.providers import Providers
from spanscore.outputs.score_spans import EvaluationSpans

PROJECT = "annotated"
SCRIPT = INTEGRATIONS / "phoenix" / "annotate.py"


def _run(url: str, project: str = PROJECT, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--url", url, "--project", project, *arguments]
    return subprocess.run(command, capture_output=True, check=False, text=True, env=os.environ, timeout=60)


def _annotations(phoenix: Phoenix, span_id: str) -> list[dict[str, Any]]:
    query = {"span_ids": span_id, "limit": "100"}
    found: list[dict[str, Any]] = fetch_json(f"{phoenix.url}/v1/projects/{PROJECT}/span_annotations", query)["data"]
    return found


def _two(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return found if len(found) == 2 else []


@pytest.fixture(scope="module")
def scored(phoenix: Phoenix) -> str:
    """The id of a root that two metrics scored, one of them twice, and on which a third failed."""
    resource = Resource({"service.name": "harbour", "openinference.project.name": PROJECT})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(phoenix.traces_endpoint)))
    metrics = [Grounded(), Failing(ValueError("no"), "failing")]
    with OnlineScorer(metrics, tracer_provider=provider, capture=Capture(content=True)) as scorer:
        runs = RunCollectorCallbackHandler()
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler, runs]})
        assert scorer.flush(10)
        trace_id = scorer.trace_id(runs.traced_runs[0].id)
    assert trace_id is not None
    (root,) = [span for span in phoenix.spans(trace_id, _has_root, project=PROJECT) if span["parent_id"] is None]
    _revise(provider, int(trace_id, 16), int(root["context"]["span_id"], 16))
    provider.shutdown()
    phoenix.spans(trace_id, lambda spans: sum(span["name"].startswith("eval") for span in spans) == 4, project=PROJECT)
    return str(root["context"]["span_id"])


def _has_root(spans: Spans) -> bool:
    return any(span["parent_id"] is None for span in spans)


def _revise(provider: TracerProvider, trace_id: int, span_id: int) -> None:
    """Score the unit once more by a metric, and think better of it."""
    now = time_ns()
    root = SpanData(trace_id=trace_id, span_id=span_id, parent_id=None, name="root", start_ns=now, end_ns=now)
    twice = [score("revised", 0.75, id=None), score("revised", 0.25, id=None, revision=1)]
    EvaluationSpans(Providers(provider)).emit(Unit(UnitKey(trace_id, span_id), (root,)), twice)


@pytest.mark.server
@pytest.mark.timeout(180)
def test_a_scored_span_has_one_annotation_per_metric_also_after_a_second_run(phoenix: Phoenix, scored: str) -> None:
    runs = [_run(phoenix.url), _run(phoenix.url, PROJECT, "--hours", "1")]
    found = poll(lambda: _two(_annotations(phoenix, scored)), deadline_s=20, what="annotations")
    before = {one["name"]: one["id"] for one in found}
    runs.append(_run(phoenix.url))

    assert [(run.returncode, run.stdout.split(maxsplit=1)[0], run.stderr) for run in runs] == [(0, "2", "")] * 3
    assert {one["name"]: one["id"] for one in _annotations(phoenix, scored)} == before
    assert {(one["name"], one["annotator_kind"], one["result"]["score"], one["result"]["label"]) for one in found} == {
        ("grounded", "CODE", 1.0, "pass"),
        ("revised", "CODE", 0.25, "fail"),
    }
    assert [span["spanId"] for span in phoenix.filtered("annotations['revised'].score < 0.5")] == [scored]
    assert "looked for Paris is the capital of France." in {one["result"]["explanation"] for one in found}


@pytest.mark.server
@pytest.mark.timeout(180)
def test_a_project_that_is_not_there_is_told(phoenix: Phoenix) -> None:
    done = _run(phoenix.url, "nowhere")

    assert (done.returncode, done.stdout) == (1, "")
    assert "no project 'nowhere': name it by --project" in done.stderr


def test_a_phoenix_that_is_not_there_is_told() -> None:
    done = _run(dead_endpoint())

    assert (done.returncode, done.stdout) == (1, "")
    assert "start it, or name it by --url" in done.stderr

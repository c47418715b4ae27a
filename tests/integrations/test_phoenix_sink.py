"""The sink ``phoenix`` in a real Phoenix: scores and human labels are its own annotations, the latest of each."""

from __future__ import annotations

from time import time_ns
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.live import Failing, Grounded
from tests.outputs.builders import score
from tests.servers.phoenix import Phoenix, Spans
from tests.servers.server import fetch_json, poll
from tests.wiring.test_feedback import answered

from spanscore import OnlineScorer
from spanscore.config import Capture, Outputs
from spanscore.core.sample import UnitId
from spanscore.scorer import pipeline_of
from spanscore.testing import make_span, make_unit

PROJECT = "annotated"


def _annotations(phoenix: Phoenix, span_id: str, number: int) -> list[dict[str, Any]]:
    query = {"span_ids": span_id, "limit": "100"}
    annotations: list[dict[str, Any]] = fetch_json(f"{phoenix.url}/v1/projects/{PROJECT}/span_annotations", query)[
        "data"
    ]
    return annotations if len(annotations) == number else []


def _has_root(spans: Spans) -> bool:
    return any(span["parent_id"] is None for span in spans)


def _revise(scorer: OnlineScorer, ids: UnitId) -> None:
    """Score the unit twice more by a metric: the second score supersedes the first."""
    now = time_ns()
    root = make_span(trace_id=int(ids.trace_id, 16), span_id=int(ids.span_id, 16), start_ns=now, end_ns=now)
    scores = [score("revised", 0.75, id=None), score("revised", 0.25, id=None, revision=1)]
    line = pipeline_of(scorer)
    assert line.span_thread.call(lambda: line.sinks.emit(make_unit(root), scores), 10)


@pytest.mark.server
@pytest.mark.timeout(180)
def test_a_scored_span_has_one_annotation_per_metric_and_per_annotator(phoenix: Phoenix) -> None:
    resource = Resource({"service.name": "harbour", "openinference.project.name": PROJECT})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(phoenix.traces_endpoint)))
    metrics = [Grounded(), Failing(ValueError("no"), "failing")]
    outputs = Outputs(sinks=[{"phoenix": {"url": phoenix.url}}])
    with OnlineScorer(metrics, tracer_provider=provider, capture=Capture(content=True), outputs=outputs) as scorer:
        ids = answered(scorer)
        phoenix.spans(ids.trace_id, _has_root, project=PROJECT)
        _revise(scorer, ids)
        for value in (True, False):
            assert scorer.feedback(ids.trace_id, value, span_id=ids.span_id, annotator="ann")
        poll(lambda: scorer.status().sinks[0].sent == 5, deadline_s=20, what="the requests")
        annotations = poll(lambda: _annotations(phoenix, ids.span_id, 3), deadline_s=20, what="annotations")

    results = {
        (one["name"], one["annotator_kind"], one["result"]["score"], one["result"]["label"]) for one in annotations
    }
    assert results == {
        ("grounded", "CODE", 1.0, "pass"),
        ("revised", "CODE", 0.25, "fail"),
        ("user_feedback", "HUMAN", 0.0, "fail"),
    }
    assert [span["spanId"] for span in phoenix.filtered("annotations['revised'].score < 0.5")] == [ids.span_id]
    assert "looked for Paris is the capital of France." in {one["result"]["explanation"] for one in annotations}

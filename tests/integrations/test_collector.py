"""The Collector's configuration thins traces out, and never a scored one; and makes of deltas the counters that rules need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.integrations.stage import carrying
from tests.live import QUESTION, Grounded, rag
from tests.servers.otlp import OtlpReceiver
from tests.servers.prometheus import Prometheus
from tests.servers.server import poll

from spanscore import OnlineScorer, semconv

UNSCORED, SCORED = 200, 20
ARRIVES_WITHIN_S = 40.0
SCORES = 'sum(spanscore_scored_total{gen_ai_evaluation_name="grounded"})'


@pytest.mark.server
@pytest.mark.parametrize(
    ("scope", "attributes"),
    [
        ("app", {semconv.STATUS: "scored"}),
        ("app", {semconv.STATUS: "pending"}),
        (semconv.SCOPE, {}),
        (semconv.JUDGE_SCOPE, {}),
    ],
)
def test_every_scored_trace_is_kept_whole_and_of_the_others_a_share(
    collector: ModuleType, tmp_path: Path, scope: str, attributes: dict[str, str]
) -> None:
    with OtlpReceiver() as store, carrying(tmp_path, collector, {"TRACES_OTLP_ENDPOINT": store.endpoint}) as endpoint:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
        app, marked = provider.get_tracer("app"), provider.get_tracer(scope)
        for tracer, name, count, marks in ((app, "unscored", UNSCORED, {}), (marked, "scored", SCORED, attributes)):
            for _ in range(count):
                with (
                    app.start_as_current_span("POST /chat"),
                    tracer.start_as_current_span(name, attributes=marks),
                ):
                    pass
            provider.force_flush()

        arrived = store.wait_for(lambda: sum(span.name == "scored" for span in store.spans) == SCORED, 20)
        provider.shutdown()

    assert arrived
    whole = {span.trace_id for span in store.spans if span.name == "scored"}
    assert {span.trace_id for span in store.spans if span.name == "POST /chat"} >= whole
    assert sum(span.name == "unscored" for span in store.spans) < UNSCORED / 2


@pytest.mark.server
def test_an_application_that_prefers_deltas_has_counters_in_prometheus(
    collector: ModuleType, prometheus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    with (
        prometheus.running(tmp_path / "store") as store,
        carrying(tmp_path, collector, {"PROMETHEUS_WRITE_URL": store.remote_write}) as endpoint,
        measured(f"{endpoint}/v1/metrics") as scorer,
    ):
        for asked in (3, 5):  # two exports, each of a difference
            for _ in range(asked):
                rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
            assert scorer.flush(10)
            counted = partial(_is, store, scorer.status().outcomes["grounded"]["scored"])

            poll(counted, deadline_s=ARRIVES_WITHIN_S, what="as many scores in Prometheus as the scorer counts")


def _is(store: Prometheus, scores: int) -> bool:
    return [float(one["value"][1]) for one in store.query(SCORES)] == [scores]


@contextmanager
def measured(endpoint: str) -> Iterator[OnlineScorer]:
    """Yield a scorer that exports metrics to the Collector each second."""
    resource = Resource.create({"service.name": "bot"})
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint), export_interval_millis=1_000)
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    with OnlineScorer([Grounded()], tracer_provider=tracers, meter_provider=meters) as scorer:
        try:
            yield scorer
        finally:
            meters.shutdown()

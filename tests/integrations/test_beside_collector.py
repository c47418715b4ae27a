"""The Collector's files with ``spanscore serve``: the destination of each span, and no lost trace while the scorer is down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from tests.integrations.stage import INTEGRATIONS, carrying
from tests.servers.otlp import OtlpReceiver, dead_endpoint

from spanscore import semconv

pytestmark = pytest.mark.server

OURS = {semconv.SCOPE, semconv.JUDGE_SCOPE}
OTHERS = {"app", semconv.CAPTURE_SCOPE}
FULL = "exporters: {otlp_http/spanscore: {sending_queue: {queue_size: 2000, batch: {min_size: 1, max_size: 1000}}}}"
"""A queue that holds a span or two."""


class Answered(OTLPSpanExporter):
    """Remembers how each request ended for the application."""

    results: Counter[SpanExportResult]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self.results[result] += 1
        return result


@contextmanager
def application(endpoint: str) -> Iterator[tuple[TracerProvider, Counter[SpanExportResult]]]:
    """Yield a provider that sends each span by itself, and the responses."""
    exporter = Answered(f"{endpoint}/v1/traces", timeout=3)  # retries take a part of it
    exporter.results = Counter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter.results
    provider.shutdown()


@pytest.mark.parametrize("config", sorted(path.name for path in (INTEGRATIONS / "collector").glob("*.yaml")))
def test_every_configuration_is_valid(collector: ModuleType, config: str) -> None:
    collector.validate(INTEGRATIONS / "collector" / config)


def test_a_tee_copies_all_but_what_evaluators_do(collector: ModuleType, tmp_path: Path) -> None:
    with OtlpReceiver() as backend, OtlpReceiver() as scorer:
        to = {"TRACES_OTLP_ENDPOINT": backend.endpoint, "SCORER_OTLP_ENDPOINT": scorer.endpoint}
        with carrying(tmp_path, collector, to, "tee.yaml") as endpoint, application(endpoint) as (provider, _):
            for scope in [*OURS, *OTHERS]:
                provider.get_tracer(scope).start_span("work").end()

            assert backend.wait_for(lambda: {span.scope for span in backend.spans} == OURS | OTHERS, 20)
            assert scorer.wait_for(lambda: {span.scope for span in scorer.spans} == OTHERS, 20)


def test_a_tee_whose_scorer_is_away_costs_the_backend_nothing(collector: ModuleType, tmp_path: Path) -> None:
    (full := tmp_path / "full.yaml").write_text(FULL)
    with OtlpReceiver() as backend:
        to = {"TRACES_OTLP_ENDPOINT": backend.endpoint, "SCORER_OTLP_ENDPOINT": dead_endpoint()}
        with (
            carrying(tmp_path, collector, to, "tee.yaml", full) as endpoint,
            application(endpoint) as (provider, answers),
        ):
            for _ in range(20):
                provider.get_tracer("app").start_span("work", attributes={"text": "x" * 500}).end()

            assert backend.wait_for(lambda: len(backend.span_ids) == 20, 20)

    assert answers == {SpanExportResult.SUCCESS: 20}
    assert {*backend.span_ids.values()} == {1}


def test_a_proxy_that_is_away_loses_nothing(collector: ModuleType, tmp_path: Path) -> None:
    with OtlpReceiver() as scorer:
        scorer.answer(503)
        with (
            carrying(tmp_path, collector, {"SCORER_OTLP_ENDPOINT": scorer.endpoint}, "proxy.yaml") as endpoint,
            application(endpoint) as (provider, answers),
        ):
            for scope in [*OURS, *OTHERS]:
                provider.get_tracer(scope).start_span("work").end()
            assert scorer.wait_for(lambda: scorer.requests["traces"] >= 1, 20)
            scorer.answer(200)

            assert scorer.wait_for(lambda: {span.scope for span in scorer.spans} == OURS | OTHERS, 20)

    assert answers == {SpanExportResult.SUCCESS: 4}
    assert {*scorer.span_ids.values()} == {1}


def test_a_tee_beside_thinned_out_traces_is_whole_and_an_evaluation_is_kept(
    collector: ModuleType, tmp_path: Path
) -> None:
    thinned = INTEGRATIONS / "collector" / "otelcol.yaml"
    with OtlpReceiver() as backend, OtlpReceiver() as scorer:
        to = {"TRACES_OTLP_ENDPOINT": backend.endpoint, "SCORER_OTLP_ENDPOINT": scorer.endpoint}
        with carrying(tmp_path, collector, to, "tee.yaml", thinned) as endpoint, application(endpoint) as (provider, _):
            for _ in range(100):
                provider.get_tracer("app").start_span("work").end()
            provider.get_tracer(semconv.SCOPE).start_span("evaluation").end()

            assert scorer.wait_for(lambda: len(scorer.span_ids) == 100, 20)
            assert backend.wait_for(lambda: any(span.name == "evaluation" for span in backend.spans), 20)

    assert sum(span.name == "work" for span in backend.spans) < 50

"""Every scope of spanscore, on traces, metrics and logs, has spanscore's version and its conventions."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from tests.live import Grounded, rag
from tests.outputs.builders import score, unit
from tests.outputs.memory import Memory

from spanscore import OnlineScorer, SingleTurnSample, semconv
from spanscore.monitoring.scrape_endpoint import ScrapeEndpoint
from spanscore.outputs.score_spans import EvaluationSpans


def _ours(name: str) -> InstrumentationScope:
    return InstrumentationScope(name, version("spanscore"), "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev")


@pytest.fixture
def memory() -> Memory:
    memory = Memory()
    providers = memory.tracer_provider, memory.meter_provider, memory.logger_provider
    names = ("tracer_provider", "meter_provider", "logger_provider")
    with OnlineScorer([Grounded()], **dict(zip(names, providers, strict=True))) as scorer:
        rag().invoke("What is the capital of France?", config={"callbacks": [scorer.handler]})
        scorer.submit(SingleTurnSample(user_input="And of Spain?", response="Madrid", retrieved_contexts=["Madrid"]))
        assert scorer.flush(10)
        return memory


def test_scopes_of_spans_carry_version_and_schema(memory: Memory) -> None:
    scopes = {span.instrumentation_scope for span in memory.spans}

    assert scopes == {_ours(semconv.SCOPE), _ours(semconv.CAPTURE_SCOPE)}


def test_the_scope_of_metrics_carries_version_and_schema(memory: Memory) -> None:
    found: Any = memory.reader.get_metrics_data()

    assert {one.scope for resource in found.resource_metrics for one in resource.scope_metrics} == {
        _ours(semconv.SCOPE)
    }


def test_the_scope_of_events_carries_version_and_schema(memory: Memory) -> None:
    scopes = {record.instrumentation_scope for record in memory.log_exporter.get_finished_logs()}

    assert scopes == {_ours(semconv.SCOPE)}


def test_the_scope_of_a_external_units_evaluation_carries_version_and_schema() -> None:
    memory = Memory()

    EvaluationSpans(memory.providers).emit(unit(resource={"service.name": "shop"}), [score()])

    assert [span.instrumentation_scope for span in memory.spans] == [_ours(semconv.SCOPE)]


def test_the_scope_of_served_metrics_carries_version_and_schema() -> None:
    endpoint = ScrapeEndpoint(lambda: "shop", port=0, host="127.0.0.1")
    endpoint.close()

    meter: Any = endpoint.meter

    assert InstrumentationScope(meter.name, meter.version, meter.schema_url) == _ours(semconv.SCOPE)

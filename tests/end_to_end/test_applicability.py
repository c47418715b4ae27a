"""A metric with a condition, from the question to the operator's view: inapplicable units are counted, and in no mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import Failing, Trace, a_line, identity_holds, rag

from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.score import Outcome
from spanscore.metrics import AspectCritic
from spanscore.report.page import write

QUESTIONS = (
    "May I have a refund for my ticket?",
    "What is the capital of France?",
    "Will it rain in Paris?",
    "Who wrote it?",
    "Is it far?",
)
ROUNDS = 20


def refunds() -> AspectCritic:
    return AspectCritic(
        "lexical", name="refunds", definition="The deadline is told.", applies_when="the user asks for a refund"
    )


@pytest.fixture(scope="module")
def played() -> tuple[Any, Any, InMemoryMetricReader, Trace]:
    """A scorer that sampled about half of some traffic, a fifth of which asks for a refund."""
    reader = InMemoryMetricReader()
    metrics = (refunds(), Failing(None, "plain"))
    with a_line(*metrics, meter_provider=MeterProvider([reader]), sample_rate=0.5) as (scorer, trace):
        for question in QUESTIONS * ROUNDS:
            rag().invoke(question, config={"callbacks": [scorer.handler]})
        assert scorer.flush(20)
        assert identity_holds(scorer)
        return scorer.status(), sums_of(reader), reader, trace


def sums_of(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "spanscore.applicable.weight"
        for point in metric.data.data_points
    ]
    assert {point.attributes["gen_ai.evaluation.name"] for point in points} == {"refunds"}  # the other has no condition
    return {str(point.attributes["spanscore.evaluation.applicable"]): point.value for point in points}


def test_it_is_scored_where_it_applies_and_nothing_else_is_in_the_mean(played: Any) -> None:
    status, sums, _, _ = played
    outcomes = status.outcomes["refunds"]

    assert outcomes[Outcome.SCORED] + outcomes[Outcome.NOT_APPLICABLE] + outcomes[Outcome.NOT_SAMPLED] == 5 * ROUNDS
    assert status.reasons["refunds not_applicable"] == "not applicable"
    assert sums == {"true": 2 * outcomes[Outcome.SCORED], "false": 2 * outcomes[Outcome.NOT_APPLICABLE]}
    assert status.excluded == {}


def test_the_status_tells_the_share_and_none_of_what_has_no_condition(played: Any) -> None:
    status, sums, _, _ = played
    (share,) = status.applies.values()

    assert share.share == sums["true"] / (sums["true"] + sums["false"])
    assert 0 <= share.low < share.share < share.high <= 1
    assert f"refunds {share}" in " ".join(str(status).split())
    assert "plain applies" not in str(status)


def test_each_evaluation_span_says_whether_it_applies(played: Any) -> None:
    _, sums, _, trace = played
    said = [
        span.attributes.get("spanscore.evaluation.applicable") for span in trace.evaluations if "refunds" in span.name
    ]

    assert (said.count(True), said.count(False), len(said)) == (
        sums["true"] / 2,
        sums["false"] / 2,
        sum(sums.values()) / 2,
    )
    assert all(
        "spanscore.evaluation.applicable" not in span.attributes for span in trace.evaluations if "plain" in span.name
    )


def test_the_report_page_tells_the_same_share_of_the_same_spans(played: Any, tmp_path: Path) -> None:
    status, _, _, trace = played
    spans = list(read_spans([json_line(trace.spans)]))

    found = write(spans, tmp_path / "page.html")

    metric = next(one for one in found.metrics if one.metric == "refunds")
    assert metric.applies == pytest.approx(status.applies["refunds"], rel=1e-6)
    assert str(metric.applies) in (tmp_path / "page.html").read_text(encoding="utf-8")

"""A verdict that contradicts its own reason, over the line: counted, marked and logged, and unchanged."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import a_line, run_rag

from spanscore.metrics import AspectCritic
from spanscore.testing import ScriptedJudge

AGAINST = {"reason": "The response fails to name a source.", "verdict": 1}
FOR = {"reason": "It names one.", "verdict": 1}


def sourced(*answers: dict[str, object]) -> AspectCritic:
    judge = ScriptedJudge([{"step": "critique", "output": answer} for answer in answers])
    return AspectCritic(judge, name="sourced", definition="A source is named.")


def counted(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "spanscore.judge.self_contradictions"
        for point in metric.data.data_points
    ]
    return {str(point.attributes["gen_ai.evaluation.name"]): point.value for point in points}


def test_it_is_counted_marked_and_reported_and_the_verdict_stands() -> None:
    reader = InMemoryMetricReader()
    with a_line(sourced(AGAINST, FOR, AGAINST), meter_provider=MeterProvider([reader])) as (scorer, trace):
        run_rag(scorer, 3)
        status = scorer.status()
        assert counted(reader) == {"sourced": 2}

    marks = [span.attributes.get("spanscore.judge.self_contradictions") for span in trace.evaluations]
    assert sorted(mark or 0 for mark in marks) == [0, 1, 1]
    assert {span.attributes["gen_ai.evaluation.score.label"] for span in trace.evaluations} == {"pass"}
    assert status.contradictions == {"sourced": 2}
    assert "sourced: 2 verdicts contradict their own reason" in " ".join(str(status).split())


def test_where_there_is_none_nothing_is_reported_but_a_zero() -> None:
    reader = InMemoryMetricReader()
    with a_line(sourced(FOR), meter_provider=MeterProvider([reader])) as (scorer, trace):
        run_rag(scorer)
        assert "contradict" not in str(scorer.status())
        assert counted(reader) == {"sourced": 0}

    assert "spanscore.judge.self_contradictions" not in trace.evaluations[0].attributes

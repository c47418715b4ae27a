"""The searches in the READMEs find their spans, and an exemplar leads to its trace."""

from __future__ import annotations

import pytest
from tests.integrations.stage import SERVICE, Stage, expressions
from tests.servers.server import poll

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]  # the first one waits for the stage


@pytest.mark.parametrize("tags", expressions("jaeger"))
def test_tags_find_traces_in_jaeger(stage: Stage, tags: str) -> None:
    assert stage.jaeger.search(SERVICE, dict(tag.split("=", maxsplit=1) for tag in tags.split()))


@pytest.mark.parametrize("tags", expressions("jaeger"))
def test_tags_find_traces_in_zipkin(stage: Stage, tags: str) -> None:
    assert stage.zipkin.search(tags.replace(" ", " and "))


def test_a_verdict_finds_the_traces_that_fail_and_no_others(stage: Stage) -> None:
    failed = stage.jaeger.search(SERVICE, {"spanscore.label.harmless": "fail"})
    passed = stage.jaeger.search(SERVICE, {"spanscore.label.harmless": "pass"})

    assert (len(failed), len(passed)) == (3, 9)
    assert all("invoke_workflow small_talk" in {span["operationName"] for span in trace["spans"]} for trace in failed)


@pytest.mark.parametrize("condition", expressions("phoenix"))
def test_filters_find_spans(stage: Stage, condition: str) -> None:
    assert stage.phoenix.filtered(condition)


def test_no_evaluation_is_lost_in_the_collector(stage: Stage) -> None:
    sent = {
        span["id"]
        for trace in stage.zipkin.search("gen_ai.operation.name=evaluation")
        for span in trace
        if span["localEndpoint"]["serviceName"] == SERVICE and span["name"].startswith("evaluation")
    }

    def lost() -> set[str]:
        return sent - {span["spanId"] for span in stage.phoenix.filtered("span_kind == 'EVALUATOR'")}

    assert len(sent) > 30
    assert poll(lambda: not lost(), deadline_s=20, what="every evaluation to come through the Collector")


def test_what_a_judge_was_asked_leads_to_the_evaluation_and_back(stage: Stage) -> None:
    (asked,) = stage.jaeger.search(SERVICE, {"spanscore.judge.step": "fix_output_format"})
    linked = {reference["spanID"] for span in asked["spans"] for reference in span["references"]}

    found = stage.zipkin.search(f"spanscore.score.id={asked['traceID']} and gen_ai.operation.name=evaluation")
    messages = stage.phoenix.spans(asked["traceID"], lambda spans: len(spans) == len(asked["spans"]))

    assert {span["id"] for trace in found for span in trace if span["id"] in linked} == linked
    assert {span["span_kind"] for span in messages} == {"LLM"}
    assert any("llm.input_messages.1.message.content" in span["attributes"] for span in messages)


@pytest.mark.parametrize("ingestion", ["written", "scraped"])
def test_an_exemplar_leads_to_the_trace_with_its_score(stage: Stage, ingestion: str) -> None:
    series = stage.prometheus(ingestion).exemplars('spanscore_quality_bucket{gen_ai_evaluation_name="harmless"}')
    shown = series[0]["exemplars"][0]

    spans = stage.phoenix.spans(shown["labels"]["trace_id"])

    (scored,) = [span for span in spans if span["context"]["span_id"] == shown["labels"]["span_id"]]
    assert scored["attributes"]["spanscore.score.harmless"] == float(shown["value"])

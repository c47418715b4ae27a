from __future__ import annotations

from time import time_ns
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from tests.outputs.builders import END_NS, SPAN_ID, TRACE_ID, failed, score, undefined, unit
from tests.outputs.memory import Memory

from spanscore import semconv
from spanscore.outputs.score_events import EvaluationEvents


@pytest.fixture
def memory() -> Memory:
    return Memory()


def only(memory: Memory) -> Any:
    (event,) = memory.events
    return event


def test_it_is_the_conventions_event_in_the_scored_spans_context(memory: Memory) -> None:
    EvaluationEvents(memory.providers).emit(unit(**{semconv.RESPONSE_ID: "r1"}), [score(explanation="quote")])

    event = only(memory)
    assert event.event_name == "gen_ai.evaluation.result"
    assert (event.trace_id, event.span_id, int(event.trace_flags)) == (TRACE_ID, SPAN_ID, 1)
    assert event.severity_number is SeverityNumber.INFO
    assert dict(event.attributes) == {
        "gen_ai.evaluation.name": "faithfulness",
        "gen_ai.evaluation.score.value": 0.75,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.response.id": "r1",
        "spanscore.sampling.probability": 0.5,
        "spanscore.sampling.threshold": "80000000000000",
        "gen_ai.workflow.name": "support",
        "gen_ai.evaluation.target": "support",
        "spanscore.evaluator.id": "faithfulness",
        "spanscore.evaluator.version": "1+judge",
        "spanscore.evaluator.type": "deterministic",
        "spanscore.metric.kind": "continuous",
        "spanscore.metric.direction": "higher",
    }


def test_two_versions_of_a_prompt_are_distinguished_and_an_agent_is_the_target(memory: Memory) -> None:
    judged = [score(evaluator_version=f"{version}/judge/1", judge_model="judge", source="shadow") for version in "12"]
    EvaluationEvents(memory.providers).emit(unit(**{semconv.AGENT_NAME: "helper"}), judged)

    assert [event.attributes["spanscore.evaluator.version"] for event in memory.events] == ["1/judge/1", "2/judge/1"]
    kept = (
        "gen_ai.evaluation.target",
        "spanscore.evaluator.type",
        "spanscore.judge.model",
        "spanscore.evaluation.source",
    )
    assert [memory.events[0].attributes[name] for name in kept] == ["helper", "llm_judge", "judge", "shadow"]


def test_its_time_is_the_end_of_the_judged_span_and_it_is_observed_now(memory: Memory) -> None:
    before = time_ns()
    EvaluationEvents(memory.providers).emit(unit(), [score()])

    event = only(memory)
    assert (event.timestamp, event.observed_timestamp >= before) == (END_NS, True)


def test_an_unsampled_unit_has_its_event_with_the_flags_of_its_trace(memory: Memory) -> None:
    EvaluationEvents(memory.providers).emit(unit(flags=0), [score()])

    assert int(only(memory).trace_flags) == 0


def test_a_failed_evaluation_warns_and_has_no_value(memory: Memory) -> None:
    EvaluationEvents(memory.providers).emit(unit(), [failed()])

    event = only(memory)
    assert event.severity_number is SeverityNumber.WARN
    assert event.attributes["error.type"] == "timeout"
    assert "gen_ai.evaluation.score.value" not in event.attributes


def test_an_undefined_score_says_so_and_does_not_warn(memory: Memory) -> None:
    EvaluationEvents(memory.providers).emit(unit(), [undefined()])

    event = only(memory)
    assert event.severity_number is SeverityNumber.INFO
    assert event.attributes["spanscore.evaluation.outcome"] == "no_value"


def test_explanations_leave_only_where_content_is_on(memory: Memory) -> None:
    EvaluationEvents(memory.providers, content=True).emit(unit(), [score(explanation="quote")])

    assert only(memory).attributes["gen_ai.evaluation.explanation"] == "quote"


class Listening:
    """A logger like an API's before 1.40, or one with a method that returns whether its records are accepted."""

    def __init__(self) -> None:
        self.emitted: list[dict[str, Any]] = []

    def logger(self) -> Any:
        return self

    def emit(self, **event: Any) -> None:
        self.emitted.append(event)


class LaterListener(Listening):
    def enabled(self, *, event_name: str) -> bool:
        return event_name != semconv.EVALUATION_EVENT


def test_no_event_is_made_that_nobody_takes() -> None:
    later, early = LaterListener(), Listening()
    for one in (later, early):
        EvaluationEvents(one).emit(unit(), [score(), failed()])  # type: ignore[arg-type]

    assert later.emitted == []
    assert [event["event_name"] for event in early.emitted] == [semconv.EVALUATION_EVENT] * 2

"""Roots of units among the spans of this process, if their attributes come late, or a span above them is not a root."""

from __future__ import annotations

from typing import Any

import pytest
from tests.capture.processor.traced import SCOPE, TURN, Answered, running, scoring
from tests.live import ANSWER, QUESTION

from spanscore import semconv

OWN = "my.own.app"
"""A scope that no translation names."""


def test_a_tool_around_an_agent_hides_it_not_and_every_span_leaves_once() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with (
            running(tracer, semconv.EXECUTE_TOOL, "tool"),
            running(tracer, name="agent"),
            running(tracer, semconv.CHAT, "chat"),
        ):
            pass
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}
    assert sorted(exported.names) == ["agent", "chat", "tool"]
    assert [span.parent.span_id for span in exported.evaluations] == [exported.of("agent").context.span_id]


def test_a_root_whose_attributes_come_at_its_end_takes_in_the_call_below_it() -> None:
    with scoring() as (scorer, exported, provider):
        with provider.get_tracer(OWN).start_as_current_span("answer") as root:
            with running(provider.get_tracer(SCOPE), semconv.CHAT, "chat"):
                pass
            root.set_attributes({semconv.INPUT_VALUE: QUESTION, semconv.OUTPUT_VALUE: ANSWER})
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}
    assert exported.of("answer").attributes[semconv.STATUS] == "scored"
    assert sorted(exported.names) == ["answer", "chat"]


def test_a_call_below_an_open_span_does_not_wait_for_it_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanscore.capture.processor.external_spans.PLAIN_GRACE_NS", 1_000_000)
    with scoring() as (scorer, exported, provider):
        with provider.get_tracer(OWN).start_as_current_span("job") as job:
            with running(provider.get_tracer(SCOPE), semconv.CHAT, "chat"):
                pass
            assert scorer.flush(5)
            assert exported.of("chat").attributes[semconv.STATUS] == "scored"
            job.set_attribute(semconv.INPUT_VALUE, QUESTION)
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 1}
    assert [note for note in scorer.status().notes if note.startswith("1 spans got GenAI attributes only after")]


@pytest.mark.parametrize(
    ("attributes", "units"),
    [
        ({semconv.OPERATION_NAME: semconv.CHAT, **TURN}, 1),
        (TURN, 1),
        ({semconv.INPUT_VALUE: QUESTION}, 1),
        ({"traceloop.entity.input": '{"inputs": "2 + 2?"}', "traceloop.span.kind": "workflow"}, 1),
        ({semconv.OPERATION_NAME: semconv.EMBEDDINGS}, 0),
        ({semconv.OPENINFERENCE_KIND: "EVALUATOR", semconv.INPUT_VALUE: QUESTION}, 0),
        ({semconv.SYSTEM: "openai"}, 0),
        ({semconv.CONVERSATION_ID: "42"}, 0),
    ],
)
def test_a_span_of_an_unnamed_scope_is_a_unit_by_its_attributes(attributes: dict[str, Any], units: int) -> None:
    with scoring() as (scorer, exported, provider):
        with provider.get_tracer(OWN).start_as_current_span("span") as span:
            span.set_attributes(attributes)
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": units}
    assert exported.names == ["span"]


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_root_that_was_not_known_when_it_started_counts_once_at_any_rate(rate: float) -> None:
    with scoring(sample_rate=rate) as (scorer, exported, provider):
        tracer = provider.get_tracer(OWN)
        with tracer.start_as_current_span("answer") as root:
            with tracer.start_as_current_span("chat") as chat:
                chat.set_attributes({semconv.OPERATION_NAME: semconv.CHAT, **TURN})
            root.set_attributes({semconv.OPERATION_NAME: semconv.INVOKE_WORKFLOW, **TURN})
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 1}
    assert sorted(exported.names) == ["answer", "chat"]


def test_two_processors_of_one_provider_count_a_unit_once() -> None:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from tests.capture.processor.traced import Exported

    from spanscore import ScoringSpanProcessor

    second = Exported()
    with scoring(Answered(), sample_rate=0.0) as (scorer, _, provider):
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(second)))
        tracer = provider.get_tracer(SCOPE)
        with running(tracer, semconv.EXECUTE_TOOL, "tool"), running(tracer, name="agent"):
            pass

        assert scorer.status().eligible == {"answered": 1}
    assert sorted(second.names) == ["agent", "tool"]


def test_roots_below_a_tool_are_counted_however_many_spans_have_ended() -> None:
    with scoring(sample_rate=0.0) as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer, semconv.EXECUTE_TOOL, "tool"):
            for _ in range(3):
                with running(tracer, name="agent"):
                    for _ in range(90):
                        with running(tracer, semconv.CHAT, "chat"):
                            pass
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 3}
    assert len(exported.names) == 274

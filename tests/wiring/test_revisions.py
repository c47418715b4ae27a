"""A unit that is scored again: next to its first scores, and in no sum or outcome a second time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, Held, a_line, identity_holds
from tests.servers.server import poll
from tests.wiring.test_shadows import Stern, values_of

from spanscore import semconv
from spanscore.config import JudgeSettings, Limits, Outputs
from spanscore.core.score import Outcome, score_id
from spanscore.core.span import SpanData, Unit
from spanscore.scorer import pipeline_of
from spanscore.testing import MemorySink, make_span, make_unit


def answered(answer: str = ANSWER) -> Unit:
    """A unit as it comes over the wire."""
    content = {
        semconv.INPUT_MESSAGES: [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}],
        semconv.OUTPUT_MESSAGES: [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}],
    }
    root = make_span(attributes=content, resource={"service.name": "shop"})
    return make_unit(root, found(root))


def found(root: SpanData) -> SpanData:
    documents = {semconv.RETRIEVAL_DOCUMENTS: [{"content": CONTEXT}]}
    return make_span(semconv.RETRIEVAL, attributes=documents, trace_id=root.trace_id, parent_id=root.span_id)


def give(scorer: Any, *units: Unit) -> None:
    scorer.start_workers()
    now_ns = pipeline_of(scorer).span_thread.now_ns
    for unit in units:
        pipeline_of(scorer).span_thread.call(
            lambda unit=unit: pipeline_of(scorer).units.unit_complete(unit, {}, now_ns()), 5
        )


def again(unit: Unit, revision: int = 1) -> Unit:
    return replace(unit, revision=revision)


def revised(scorer: Any) -> dict[str, int]:
    """Outcome → how many revisions ended so."""
    outcomes = pipeline_of(scorer).revisions.ledger.outcomes()
    return {outcome.value: count for (_, outcome), count in outcomes.items()}


def until(condition: Callable[[], bool]) -> None:
    poll(condition, deadline_s=10, what="the scorer")


def test_its_scores_are_evaluation_spans_with_ids_of_their_own() -> None:
    unit = answered()
    with a_line(outputs=Outputs(sinks=[sink := MemorySink()])) as (scorer, trace):
        give(scorer, unit, again(unit))
        assert scorer.flush(10)

        spans = {span.attributes[semconv.SCORE_REVISION]: span for span in trace.evaluations}
    ids = {revision: score_id(unit.key, "grounded", sink.scores[0].version, revision) for revision in (0, 1)}
    assert {revision: span.attributes[semconv.SCORE_ID] for revision, span in spans.items()} == ids
    assert [score.revision for score in sink.scores] == [0, 1]


def test_it_is_in_no_sum_and_no_outcome_a_second_time() -> None:
    reader, unit = InMemoryMetricReader(), answered()
    with a_line(meter_provider=MeterProvider(metric_readers=[reader])) as (scorer, _):
        give(scorer, unit)
        assert scorer.flush(10)
        before = scorer.status().outcomes, values_of(reader, semconv.SCORED), values_of(reader, semconv.ELIGIBLE)
        give(scorer, again(unit), again(unit, 2))
        assert scorer.flush(10)

        assert (
            scorer.status().outcomes,
            values_of(reader, semconv.SCORED),
            values_of(reader, semconv.ELIGIBLE),
        ) == before
        assert revised(scorer) == {"scored": 2}
        assert identity_holds(scorer)


def test_it_waits_for_the_one_before_it_and_a_flush_waits_for_both() -> None:
    go_on, unit = threading.Event(), answered()
    with a_line(Held(go_on), outputs=Outputs(sinks=[sink := MemorySink()])) as (scorer, _):
        give(scorer, unit, again(unit), again(unit, 2))
        assert not scorer.flush(0.2)
        go_on.set()
        assert scorer.flush(10)

    assert sorted(score.revision for score in sink.scores) == [0, 1, 2]
    assert revised(scorer) == {"scored": 2}


def test_second_judges_are_not_asked_about_it() -> None:
    unit = answered()
    with a_line(Grounded(), judge=JudgeSettings(shadows=[Stern()])) as (scorer, _):
        give(scorer, unit, again(unit))
        assert scorer.flush(10)

        (shadow,) = scorer.status().shadows
    assert (shadow.eligible, shadow.outcomes) == (1, {"scored": 1})


def test_no_event_tells_of_it() -> None:
    from tests.outputs.builders import score, unit
    from tests.outputs.memory import Memory

    from spanscore.outputs.score_events import EvaluationEvents

    memory = Memory()
    EvaluationEvents(memory.providers).emit(unit(), [score(revision=1)])

    assert not memory.events


@pytest.mark.parametrize(
    ("options", "change", "outcome"),
    [
        ({"sample_rate": 0.0}, {}, Outcome.NOT_SAMPLED),
        ({}, {"complete": False}, Outcome.INCOMPLETE),
        ({"limits": Limits(queue_size=1)}, {}, Outcome.QUEUE_FULL),
    ],
)
def test_one_that_is_not_scored_has_its_outcome_too(options: Any, change: Any, outcome: Outcome) -> None:
    go_on = threading.Event()
    with a_line(Held(go_on), **options) as (scorer, _):
        give(scorer, answered())  # takes the only place
        give(scorer, again(replace(answered(), **change)))

        assert revised(scorer) == {outcome.value: 1}
        go_on.set()


def test_what_a_shutdown_finds_of_them_ends_as_shutdown() -> None:
    unit = answered()
    with a_line(Held(threading.Event())) as (scorer, _):
        give(scorer, unit, again(unit), again(unit, 2))
        scorer.shutdown(timeout=1)

    assert revised(scorer) == {"shutdown": 2}
    assert identity_holds(scorer)

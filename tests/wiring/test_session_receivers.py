"""Turns of a conversation by every way in which units come: others' spans, the wire, samples made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.capture.processor.traced import SCOPE, running, scoring
from tests.live import a_line, identity_holds
from tests.wiring.sessions import Turns, ends
from tests.wiring.test_received import agent, send

from spanscore import SingleTurnSample, semconv, session
from spanscore.config import Sampling, Sessions


def scored(scorer: Any, exported: Any) -> Any:
    """The one evaluation span of the conversation ``a``, when it has ended."""
    assert scorer.flush(10)  # of others' spans the id is known when they were read
    assert scorer.end_session("a")
    assert scorer.flush(10)
    assert identity_holds(scorer)
    (span,) = [span for span in exported.evaluations if span.name == "evaluation turns"]
    return span


def test_spans_of_another_instrumentation_inside_the_block_are_turns() -> None:
    with scoring(sessions=Sessions(metrics=[Turns()]), redactor=lambda text: text.replace("a", "[a]")) as (
        scorer,
        exported,
        provider,
    ):
        for _ in range(3):
            with session("a"), running(provider.get_tracer(SCOPE)):
                pass

        span = scored(scorer, exported)
    assert span.attributes[semconv.SESSION_TURNS] == 3
    assert span.attributes[semconv.CONVERSATION_ID] == "[a]"


def test_what_such_a_span_says_of_its_conversation_counts_where_there_is_no_block() -> None:
    with scoring(sessions=Sessions(metrics=[Turns()])) as (scorer, exported, provider):
        for _ in range(2):
            with running(provider.get_tracer(SCOPE)) as span:
                span.set_attribute(semconv.CONVERSATION_ID, "a")

        span = scored(scorer, exported)
    assert (span.attributes[semconv.SESSION_TURNS], span.attributes[semconv.CONVERSATION_ID]) == (2, "a")


def test_samples_that_are_submitted_inside_the_block_are_turns() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()])) as (scorer, trace):
        with session("a"):
            for turn in range(2):
                scorer.submit(SingleTurnSample(user_input=f"question {turn}", response=f"answer {turn}"))

        span = scored(scorer, trace)
    assert (span.attributes[semconv.SESSION_TURNS], span.attributes[semconv.CONVERSATION_ID]) == (2, "a")


def test_units_over_the_wire_are_turns_of_what_their_root_names() -> None:
    with a_line(sessions=Sessions(metrics=[Turns()]), sampling=Sampling(rates={"grounded": 0.0})) as (scorer, trace):
        for _ in range(3):
            send(scorer, agent(**{semconv.CONVERSATION_ID: "a"}))
        send(scorer, agent())

        span = scored(scorer, trace)
        assert scorer.status().sessions.without_id == 1
    assert (span.attributes[semconv.SESSION_TURNS], span.attributes[semconv.CONVERSATION_ID]) == (3, "a")


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_conversation_that_no_metric_takes_is_counted_once_however_its_units_come(rate: float) -> None:
    rates = {"grounded": 0.0, "turns": rate}
    with a_line(sessions=Sessions(metrics=[Turns()]), sampling=Sampling(rates=rates, key=b"k")) as (scorer, trace):
        for one in range(8):
            for _ in range(2):
                send(scorer, agent(**{semconv.CONVERSATION_ID: f"conversation {one}"}))
        assert scorer.flush(10)
        for one in range(8):
            scorer.end_session(f"conversation {one}")
        assert scorer.flush(10)

        outcomes = scorer.status().outcomes["turns"]
        assert (sum(outcomes.values()), identity_holds(scorer)) == (8 if rate else 0, True)
        assert len(ends(trace)) == outcomes.get("scored", 0)


def test_a_conversation_over_the_wire_is_named_as_the_redactor_leaves_it() -> None:
    redactor = lambda text: text.replace("a", "[a]")  # noqa: E731
    with a_line(
        sessions=Sessions(metrics=[Turns()]), sampling=Sampling(rates={"grounded": 0.0}), redactor=redactor
    ) as (scorer, trace):
        send(scorer, agent(**{semconv.CONVERSATION_ID: "a"}))

        span = scored(scorer, trace)
    assert span.attributes[semconv.CONVERSATION_ID] == "[a]"


@pytest.mark.parametrize(
    ("redactor", "shown"), [(lambda text: text.replace("a", "[a]"), "[a]"), (lambda text: 1 / 0, None)]
)
def test_a_units_own_score_names_the_conversation_of_others_as_the_redactor_leaves_it(
    redactor: Any, shown: Any
) -> None:
    with scoring(redactor=redactor) as (scorer, exported, provider):
        with running(provider.get_tracer(SCOPE)) as span:
            span.set_attribute(semconv.CONVERSATION_ID, "a")
        assert scorer.flush(10)

    assert {span.attributes.get(semconv.CONVERSATION_ID) for span in exported.evaluations} <= {shown}
    assert scorer.status().outcomes["answered"] == ({"scored": 1} if shown else {"redaction_error": 1})

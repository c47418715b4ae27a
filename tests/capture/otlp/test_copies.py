"""Copies of units that another process sampled: which copies are trusted, and how they are scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.live import ANSWER, CONTEXT, Grounded, Slow, a_line, identity_holds
from tests.service.backend import RawBackend

from spanscore import semconv, testing
from spanscore.config.serving import ForwardSettings
from spanscore.config.units import Units
from spanscore.core.codecs.job import request_of_unit, units_of
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.core.job import Decision
from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.span import NoContent, Unit, UpstreamDecision
from spanscore.scorer import receivers_of
from spanscore.service.otlp_endpoint import TRACES, ExportHandler, ExportRequest
from spanscore.service.proxy import Proxy
from spanscore.testing import make_span

ENDLESS = Units(idle_timeout=3_600)
TAKEN = Decision(True, 0.25, 3 << 54, "gold users")


def said(role: str, text: str) -> Any:
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def make_unit(**more: Any) -> Unit:
    """Return a unit of two spans: an agent and a retrieval."""
    content = {semconv.INPUT_MESSAGES: said("user", "Where?"), semconv.OUTPUT_MESSAGES: said("assistant", ANSWER)}
    found = {semconv.RETRIEVAL_DOCUMENTS: [{"id": "1", "content": CONTEXT}]}
    times: dict[str, Any] = {"start_ns": 1_700_000_000_000_000_000, "end_ns": 1_700_000_000_000_001_000, **more}
    root = make_span(semconv.INVOKE_AGENT, attributes=content, **times)
    below = make_span(semconv.RETRIEVAL, trace_id=root.trace_id, parent_id=root.span_id, attributes=found, **times)
    return testing.make_unit(root, below)


def copy_of(unit: Unit, *metrics: str, samples: Samples | None = None) -> bytes:
    """Return the copy of a unit that these metrics took."""
    content = {span.span_id: span.attributes for span in unit.spans}
    return request_of_unit(unit, dict.fromkeys(metrics, TAKEN), content, {"service.name": "shop"}, samples)


def receiver_of(scorer: Any, *, trusted: bool = True, units: Units = ENDLESS) -> Any:
    receiver = receivers_of(scorer).otlp_spans(units)
    receiver.copies.trusted = trusted
    return receiver


def test_a_copy_is_scored_at_once_by_what_was_decided_and_by_nothing_else() -> None:
    with a_line(Grounded(), Slow(0, "other"), sample_rate=0.0) as (scorer, trace):
        unit = make_unit()
        receiver_of(scorer).accept(parse_request(copy_of(unit, "grounded")))
        assert scorer.flush(10)
        status = scorer.status()

    (evaluation,) = trace.named("evaluation")
    assert (status.eligible, status.outcomes["grounded"]["scored"]) == ({"grounded": 1, "other": 0}, 1)
    assert evaluation.attributes[semconv.SAMPLING_RULE] == "gold users"
    assert evaluation.attributes[semconv.PROBABILITY + "grounded"] == 0.25
    assert evaluation.context.trace_id == unit.key.trace_id
    assert evaluation.resource.attributes == {"service.name": "shop"}


def test_who_has_no_token_decides_nothing() -> None:
    with a_line(sample_rate=0.0) as (scorer, _):
        receiver_of(scorer, trusted=False, units=Units(idle_timeout=0.05)).accept(
            parse_request(copy_of(make_unit(), "grounded"))
        )
        assert scorer.flush(10)
        status = scorer.status()

    assert status.outcomes["grounded"] == {"not_sampled": 1}
    assert any("spans of copies came without a token" in note for note in status.notes)


def test_a_copy_that_is_sent_again_is_scored_once() -> None:
    with a_line() as (scorer, trace):
        receiver, copy = receiver_of(scorer), copy_of(make_unit(), "grounded")
        for _ in range(3):
            receiver.accept(parse_request(copy))
            assert scorer.flush(10)

        assert len(trace.named("evaluation")) == 1
        assert scorer.status().eligible == {"grounded": 1}
        assert identity_holds(scorer)


def test_copies_in_one_request_are_units_each_and_other_spans_are_as_ever() -> None:
    with a_line() as (scorer, trace):
        request = b"".join(copy_of(make_unit(), "grounded") for _ in range(5))
        receiver_of(scorer).accept(parse_request(request))
        assert scorer.flush(10)

    assert len({span.context.trace_id for span in trace.named("evaluation")}) == 5


def test_a_metric_that_is_not_here_is_reported_and_the_others_go_on() -> None:
    with a_line() as (scorer, _):
        receiver_of(scorer).accept(
            parse_request(copy_of(make_unit(), "grounded", "nobody") + copy_of(make_unit(), "nobody"))
        )
        assert scorer.flush(10)
        status = scorer.status()

    assert status.outcomes["grounded"] == {"scored": 1}
    assert "2 copies of units came with the metric nobody, which this scorer does not have" in status.notes


def test_a_broken_copy_spoils_no_other() -> None:
    with a_line() as (scorer, _):
        bad = copy_of(make_unit(), "grounded").replace(b"c0000000000000 gold users", b"no threshold of a rule at")
        receiver_of(scorer).accept(parse_request(bad + copy_of(make_unit(), "grounded")))
        assert scorer.flush(10)
        status = scorer.status()

    assert status.outcomes["grounded"] == {"scored": 1}
    assert "1 copies of units came with unreadable spans" in status.notes


def test_a_submitted_sample_is_scored_as_it_is() -> None:
    sample = SingleTurnSample(user_input="Where?", response=ANSWER, retrieved_contexts=[CONTEXT])
    with a_line() as (scorer, trace):
        receiver_of(scorer).accept(parse_request(copy_of(make_unit(), "grounded", samples=Samples.of(sample))))
        assert scorer.flush(10)

    assert [span.attributes[semconv.EVALUATION_SCORE_VALUE] for span in trace.named("evaluation")] == [1.0]


def test_a_proxy_sends_no_copy_on_whoever_sent_it() -> None:
    for trusted in (True, False):
        with a_line() as (scorer, _), RawBackend() as backend:
            receiver = receiver_of(scorer, trusted=trusted)
            proxy = Proxy(ForwardSettings(endpoint=backend.endpoint), receiver, max_bytes=1_000_000)
            answer = ExportHandler(receiver, max_inflated_bytes=1_000_000, proxy=proxy).answer(
                ExportRequest(TRACES, copy_of(make_unit(), "grounded"))
            )
            scorer.shutdown(5)
            proxy.close(5)

            assert answer.status == 200
            assert backend.arrived == []


def test_a_unit_comes_back_from_its_copy_as_it_was() -> None:
    unit = make_unit(trace_state="ot=th:8", parent_is_remote=None, no_content=NoContent("none there", "switch it on"))
    ((back, samples),) = units_of(parse_request(copy_of(unit, "grounded")).spans, lambda error: None)

    assert (back.key, back.eligible_metrics, samples) == (unit.key, {"grounded"}, None)
    for one, other in zip(unit.spans, back.spans, strict=True):
        there = replace(other, attributes=dict(other.attributes), decided=None)
        assert there == replace(one, resource={"service.name": "shop"}, trace_flags=1)
    assert back.root is not None
    assert back.root.decided == {"grounded": UpstreamDecision(True, 3 << 54, "gold users")}

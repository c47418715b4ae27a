"""The reason for a missing score is on the request's root, for each metric that was chosen."""

from __future__ import annotations

import threading
from time import time_ns
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from tests.live import QUESTION, Grounded, Held, a_line, looked_at, model, rag
from tests.servers.server import poll
from tests.service.process import a_run

from spanscore import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample
from spanscore.config import Limits, Outputs, Sampling, Units
from spanscore.core.codecs.otlp_request import parse_request
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome
from spanscore.metrics import BaseMetric, Finding
from spanscore.pipeline.jobs import Hooks
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.testing import ManualClock


class Conversational(BaseMetric):
    """Takes conversations only."""

    name = "conversational"
    requires = {"multi_turn": ("user_input",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=1.0)


def unscored(root: Any) -> dict[str, str]:
    prefix = "spanscore.outcome."
    return {name.removeprefix(prefix): text for name, text in root.attributes.items() if name.startswith(prefix)}


def of_one(chain: Any, *metrics: Any, **options: Any) -> dict[str, str]:
    with a_line(*metrics, **options) as (scorer, trace):
        chain.invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
    (root,) = trace.roots
    return unscored(root)


def test_the_kind_of_sample_that_is_missing_is_named() -> None:
    assert of_one(rag(), Grounded(), Conversational()) == {"conversational": "missing_field multi_turn"}


def test_without_a_sample_every_chosen_metric_says_so() -> None:
    with a_line(Grounded(), Grounded("other")) as (scorer, trace):
        stream = rag().stream(QUESTION, config={"callbacks": [scorer.handler]})
        next(stream)
        stream.close()
        assert scorer.flush(5)

    assert unscored(trace.roots[0]) == {"grounded": "no_sample", "other": "no_sample"}


def test_what_a_filter_left_out_says_so() -> None:
    assert of_one(rag(), Grounded(), sample_filter=lambda _: False) == {"grounded": "filtered"}


@pytest.mark.parametrize("secret", ["Ann's plan", "What is it?"])
def test_a_filter_decides_over_each_form_of_a_unit(secret: str) -> None:
    turn = SingleTurnSample(user_input="And 2?", response="Two.", retrieved_contexts=["Ann's plan has two parts."])
    said = [HumanMessage(content="What is it?"), AIMessage(content="A plan."), HumanMessage(content="And 2?")]
    samples = Samples(turn, MultiTurnSample(user_input=said))

    kept = Hooks(keep=lambda sample: secret not in sample.model_dump_json()).apply(samples)

    assert kept == Samples(outcome=Outcome.FILTERED, reason="the filter returned false")
    assert Hooks(keep=lambda _: True).apply(samples) == samples


def test_what_was_not_sampled_was_not_chosen() -> None:
    assert of_one(rag(), Grounded(), sample_rate=0.0) == {}
    assert of_one(model(), Grounded(), Grounded("dear"), sampling=Sampling(rates={"dear": 0.0})) == {
        "grounded": "missing_field retrieved_contexts"
    }


def test_a_full_queue_reports_the_chosen_metric_only() -> None:
    go_on, both = threading.Event(), threading.Event()
    with a_line(Held(go_on), Grounded("dear"), sampling=Sampling(rates={"dear": 0.0}), limits=Limits(queue_size=1)) as (
        scorer,
        trace,
    ):
        pipeline_of(scorer).span_thread.ensure()
        pipeline_of(scorer).event_queue.post(lambda: both.wait(20))  # before the span thread reads of one there are two
        for _ in range(2):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        both.set()
        go_on.set()
        assert scorer.flush(5)
        outcomes = scorer.status().outcomes

    assert sorted(map(str, map(unscored, trace.roots))) == ["{'held': 'queue_full'}", "{}"]
    assert outcomes == {"held": {"scored": 1, "queue_full": 1}, "dear": {"not_sampled": 2}}


def test_an_incomplete_unit_says_so_of_every_metric() -> None:
    with a_line(Grounded(), Grounded("other")) as (scorer, trace):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(time_ns())
        scorer.handler.on_chain_start(None, {}, run_id=uuid4(), name="endless", metadata={})
        looked_at(scorer, clock, 10, 3_600)

    assert unscored(trace.roots[0]) == {"grounded": "incomplete", "other": "incomplete"}


def test_a_root_that_leaves_before_its_scores_is_pending_and_says_no_more() -> None:
    go_on = threading.Event()
    with a_line(Held(go_on), outputs=Outputs(hold=0.0)) as (scorer, trace):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        poll(lambda: trace.left_roots, deadline_s=5, what="the root to leave")
        go_on.set()
        assert scorer.flush(5)

    (root,) = trace.roots
    assert (root.attributes["spanscore.status"], unscored(root)) == ("pending", {})


@pytest.mark.parametrize("way", ["callback", "wire"])
def test_a_missing_field_is_no_evaluation_span_of_its_own(way: str) -> None:
    """As in a replay; the root shows it, or the outcomes count it."""
    with a_line(Conversational()) as (scorer, trace):
        if way == "callback":
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        else:
            request = encode_spans([a_run()]).SerializeToString()
            receivers_of(scorer).otlp_spans(Units(idle_timeout=0.05)).accept(parse_request(request))
        assert scorer.flush(5)
        assert scorer.status().outcomes["conversational"] == {"missing_field": 1}

    assert trace.evaluations == []

"""Below a remote parent whose trace was head-sampled, every score stands for what the head sampler left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, a_line, rag

from spanscore import OnlineScorer, SingleTurnSample
from spanscore.sampling.threshold import probability, threshold

TH = threshold(0.1)


def invoked(scorer: OnlineScorer) -> None:
    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})


def given(scorer: OnlineScorer) -> None:
    scorer.submit(SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT]))


def under_a_remote_parent(state: str, work: Callable[[OnlineScorer], None], **options: Any) -> Any:
    """Return the evaluation span of what is scored there."""
    members = [(name, value) for name, _, value in (one.partition("=") for one in state.split(",")) if name]
    parent = SpanContext(1 << 100, 7, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState(members))
    with a_line(Grounded(), **options) as (scorer, exported):
        token = context.attach(trace.set_span_in_context(NonRecordingSpan(parent)))
        work(scorer)
        context.detach(token)
        assert scorer.flush(5)
    (evaluation,) = exported.evaluations
    return evaluation


@pytest.mark.parametrize("work", [invoked, given])
def test_its_weight_is_that_of_upstream_and_ours(work: Callable[[OnlineScorer], None]) -> None:
    attributes = under_a_remote_parent(f"ot=th:{TH:014x}", work).attributes

    assert attributes["spanscore.probability.grounded"] == pytest.approx(0.1)
    assert attributes["spanscore.probability.grounded"] == probability(
        int(attributes["spanscore.sampling.threshold"], 16)
    )


@pytest.mark.parametrize("work", [invoked, given])
def test_without_th_upstream_is_as_configured(work: Callable[[OnlineScorer], None]) -> None:
    attributes = under_a_remote_parent("vendor=1", work, upstream_probability=0.25).attributes

    assert attributes["spanscore.probability.grounded"] == 0.25

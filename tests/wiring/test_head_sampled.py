"""Below a remote parent in a head-sampled trace, every score also represents the units that the head sampler dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from tests.live import ANSWER, CONTEXT, QUESTION, Grounded, a_line, rag

from spanscore import OnlineScorer, SingleTurnSample, semconv
from spanscore.config import Sampling
from spanscore.pipeline.sampling import probability, threshold

TH = threshold(0.1)


def invoked(scorer: OnlineScorer) -> None:
    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})


def given(scorer: OnlineScorer) -> None:
    scorer.submit(SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT]))


def under_a_remote_parent(state: str, work: Callable[[OnlineScorer], None], **options: Any) -> Any:
    """Return the evaluation span of the scored unit there."""
    with a_line(Grounded(), **options) as (scorer, exported):
        below(state, lambda: work(scorer))
        assert scorer.flush(5)
    (evaluation,) = exported.evaluations
    return evaluation


def below(state: str, work: Callable[[], None]) -> None:
    members = [(name, value) for name, _, value in (one.partition("=") for one in state.split(",")) if name]
    parent = SpanContext(1 << 100, 7, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState(members))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(parent)))
    work()
    context.detach(token)


@pytest.mark.parametrize("work", [invoked, given])
def test_its_weight_is_that_of_upstream_and_ours(work: Callable[[OnlineScorer], None]) -> None:
    attributes = under_a_remote_parent(f"ot=th:{TH:014x}", work).attributes

    assert attributes["spanscore.probability.grounded"] == pytest.approx(0.1)
    assert attributes["spanscore.probability.grounded"] == probability(
        int(attributes["spanscore.sampling.threshold"], 16)
    )


@pytest.mark.parametrize("work", [invoked, given])
def test_without_th_upstream_is_as_configured(work: Callable[[OnlineScorer], None]) -> None:
    attributes = under_a_remote_parent("vendor=1", work, sampling=Sampling(head_sampling_rate=0.25)).attributes

    assert attributes["spanscore.probability.grounded"] == 0.25


def counted(*states: str, **options: Any) -> tuple[Any, dict[str, int]]:
    """Return the status of a scorer after a unit below each trace state, and the instrument's points by reason."""
    reader = InMemoryMetricReader()
    with a_line(Grounded(), meter_provider=MeterProvider([reader]), **options) as (scorer, _):
        for state in states:
            below(state, lambda: invoked(scorer))
        assert scorer.flush(5)
        (result,) = (
            one
            for resource in reader.get_metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == semconv.HEAD_SAMPLING
        )
        return scorer.status(), {point.attributes["reason"]: point.value for point in result.data.data_points}


STATED = f"ot=th:{TH:014x}"


def test_units_with_and_without_th_are_counted_and_said_to_meet() -> None:
    status, points = counted(STATED, "vendor=1", STATED, STATED)

    assert status.head_sampling == points == {"th": 3, "configured": 0, "unknown": 1}
    status_text = " ".join(str(status).split())
    assert (
        "head sampling of the sampled units: ot=th on 3; without it 1, head_sampling_rate names the share of 0"
        in status_text
    )
    assert "besides units with ot=th, 1 unit without it and without a configured share" in status_text


def test_units_whose_share_is_configured_by_service_are_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "bot")
    by_service = {"by_service": {"bot": 0.25}, "default": 1}

    status, points = counted(STATED, "vendor=1", sampling=Sampling(head_sampling_rate=by_service))

    assert status.head_sampling == points == {"th": 1, "configured": 1, "unknown": 0}
    status_text = " ".join(str(status).split())
    assert "head_sampling_rate names the share of 1" in status_text
    assert "without a configured share" not in status_text


@pytest.mark.parametrize("state", [STATED, "vendor=1"])
def test_units_of_one_kind_are_no_news(state: str) -> None:
    status, _ = counted(state, state)

    assert "ot=th" not in str(status)

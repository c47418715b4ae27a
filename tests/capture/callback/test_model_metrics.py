"""The application's model runs are counted as dashboards read them: once, and only if no run would be missing."""

from __future__ import annotations

import asyncio
import urllib.request
from contextlib import suppress
from time import time_ns
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased
from tests.capture.callback.test_neighbours import patched
from tests.live import QUESTION, Grounded, a_line, a_trace, looked_at, model, rag, run_rag
from tests.outputs.memory import Memory

from spanscore import semconv
from spanscore.capture.callback.model_metrics import ModelMetrics, tracer_with_metrics
from spanscore.config import Capture, Outputs
from spanscore.metrics import Finding
from spanscore.scorer import pipeline_of
from spanscore.testing import ManualClock

HOUR = 3_600

TOKENS, DURATION = "gen_ai.client.token.usage", "gen_ai.client.operation.duration"
CHAT = {"gen_ai.operation.name": "chat"}
MODEL = {"gen_ai.provider.name": "acme", "gen_ai.request.model": "m-1"}

__all__ = ["patched"]


class Named(GenericFakeChatModel):
    """Returns its own name."""

    def _get_ls_params(self, *_: Any, **__: Any) -> Any:
        return {"ls_provider": "acme", "ls_model_name": "m-1"}


class Down(Named):
    """Fails every call."""

    def _generate(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError


def key(**attributes: str) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((CHAT | attributes).items()))


def counted(chain: Any, *metrics: Any, **options: Any) -> tuple[Memory, Any]:
    """Run a chain once, and return the measurements and the status."""
    memory = Memory()
    with a_line(*metrics, meter_provider=memory.meter_provider, **options) as (scorer, _):
        with suppress(ConnectionError):
            chain.invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
        return memory, scorer.status()


def test_tokens_and_duration_of_a_run_are_measured() -> None:
    said = AIMessage("hi", usage_metadata={"input_tokens": 11, "output_tokens": 7, "total_tokens": 18})
    said.response_metadata = {"model_name": "m-1-2026"}
    memory, _ = counted(Named(messages=iter([said])))

    run = {**MODEL, "gen_ai.response.model": "m-1-2026"}
    found = memory.points(TOKENS)
    assert {labels: point.sum for labels, point in found.items()} == {
        key(**run, **{"gen_ai.token.type": "input"}): 11,
        key(**run, **{"gen_ai.token.type": "output"}): 7,
    }
    assert [(p.count, p.explicit_bounds[:3], p.explicit_bounds[-1]) for p in found.values()] == [
        (1, (1, 4, 16), 67_108_864)
    ] * 2


def test_a_duration_is_measured_in_seconds_and_leads_to_the_models_span() -> None:
    memory = Memory()
    with a_line(meter_provider=memory.meter_provider) as (scorer, trace):
        (RunnableLambda(str) | Named(messages=iter([AIMessage("hi")]))).invoke(
            QUESTION, config={"callbacks": [scorer.handler]}
        )
        assert scorer.flush(5)

    ((labels, point),) = memory.points(DURATION).items()
    (span,) = trace.named("chat")
    assert labels == key(**MODEL)
    assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9)
    assert point.explicit_bounds[:2] == (0.01, 0.02)
    assert [exemplar.span_id for exemplar in point.exemplars] == [span.context.span_id]


def test_a_failure_is_reported_by_its_type_and_counts_no_tokens() -> None:
    memory, _ = counted(Down(messages=iter([])))

    assert set(memory.points(DURATION)) == {key(**MODEL, **{"error.type": "ConnectionError"})}
    assert memory.points(TOKENS) == {}


def test_tokens_that_nobody_reported_are_not_zero() -> None:
    memory, _ = counted(Named(messages=iter([AIMessage("hi")])))

    assert (set(memory.points(DURATION)), memory.points(TOKENS)) == ({key(**MODEL)}, {})


def test_a_run_that_never_ended_has_no_duration() -> None:
    memory = Memory()
    with a_line(meter_provider=memory.meter_provider) as (scorer, _):
        root, child = uuid4(), uuid4()
        scorer.handler.on_chain_start(None, {}, run_id=root, name="chain", metadata={})
        scorer.handler.on_chat_model_start(None, [[HumanMessage("q")]], run_id=child, parent_run_id=root)
        scorer.handler.on_chain_end({}, run_id=root)
        assert scorer.flush(5)

    assert memory.points(DURATION) == {}


def test_a_run_that_was_given_up_has_no_duration() -> None:
    memory = Memory()
    with a_line(meter_provider=memory.meter_provider) as (scorer, trace):
        pipeline_of(scorer).span_thread.now_ns = clock = ManualClock(time_ns())
        scorer.handler.on_chat_model_start(None, [[HumanMessage("q")]], run_id=uuid4(), name="endless")
        looked_at(scorer, clock, 10, HOUR)
        assert scorer.handler.receiver.abandoned == 1

    assert [root.attributes["spanscore.run.end"] for root in trace.roots] == ["abandoned"]
    assert memory.points(DURATION) == {}


COUNTED = {
    "unsampled": {"sample_rate": 0.0},
    "no instruments of scores": {"outputs": Outputs(evaluation_span=False, event=False, instruments=False)},
    "content": {"capture": Capture(content=True)},
}


@pytest.mark.parametrize("options", COUNTED.values(), ids=COUNTED)
def test_runs_are_counted_whatever_becomes_of_their_scores(options: dict[str, Any]) -> None:
    memory, _ = counted(rag(), **options)

    assert [point.count for point in memory.points(DURATION).values()] == [1]


def test_what_a_metric_asks_a_model_is_no_run_of_the_application() -> None:
    class Asks(Grounded):
        async def measure(self, sample: Any) -> Finding:
            await model().ainvoke("Is it grounded?")
            return await super().measure(sample)

    memory = Memory()
    with a_line(Asks(), meter_provider=memory.meter_provider) as (scorer, _):
        scorer.install()
        rag().invoke(QUESTION)
        assert scorer.flush(5)
        assert scorer.status().outcomes == {"grounded": {"scored": 1}}

    assert [point.count for point in memory.points(DURATION).values()] == [1]


@pytest.mark.parametrize("capture", [Capture(metrics=False), Capture(enabled=False)], ids=["metrics", "enabled"])
def test_the_switch_and_capture_turn_them_off(capture: Capture) -> None:
    memory, status = counted(rag(), capture=capture)

    assert memory.points(DURATION) == memory.points(TOKENS) == {}
    assert status.notes == []


@pytest.mark.parametrize(
    "sampler", [TraceIdRatioBased(1.0), ParentBased(TraceIdRatioBased(1.0))], ids=["ratio", "parent"]
)
def test_a_head_sampler_that_may_drop_runs_turns_them_off(sampler: Any) -> None:
    memory, status = counted(rag(), trace=a_trace(sampler=sampler))

    assert memory.points(DURATION) == {}
    assert [note for note in status.notes if "the head sampler drops runs" in note]


@pytest.mark.parametrize("sampler", [ALWAYS_ON, ParentBased(ALWAYS_ON)], ids=["always", "parent"])
def test_a_head_sampler_that_keeps_everything_leaves_them_on(sampler: Any) -> None:
    memory, status = counted(rag(), trace=a_trace(sampler=sampler))

    assert len(memory.points(DURATION)) == 1
    assert status.notes == []


def test_runs_below_a_dropped_span_are_missing_and_the_status_says_so() -> None:
    dropped = api.NonRecordingSpan(api.SpanContext(0xA1, 0xB2, is_remote=True, trace_flags=api.TraceFlags(0)))
    with api.use_span(dropped):
        memory, status = counted(rag())

    assert memory.points(DURATION) == {}
    assert status.notes == ["runs below unsampled spans are missing in the metrics of model runs"]


def test_another_instrumentation_of_langchain_turns_them_off(patched: str) -> None:
    memory, status = counted(rag())

    assert memory.points(DURATION) == {}
    assert status.notes == [f"no metrics of model runs (gen_ai.client.token.usage …), as {patched} counts them"]


def test_who_makes_spans_only_does_not_count() -> None:
    openinference = "OpenInference (openinference.instrumentation.langchain)"
    openllmetry = "OpenLLMetry (opentelemetry.instrumentation.langchain)"

    assert [tracer_with_metrics(active) for active in ([], [openinference], [openinference, openllmetry])] == [
        None,
        None,
        openllmetry,
    ]


def test_an_instrumentation_of_the_client_turns_them_off() -> None:
    memory = Memory()
    memory.meter_provider.get_meter("opentelemetry.instrumentation.openai_v2").create_histogram(TOKENS)
    with a_line(meter_provider=memory.meter_provider) as (scorer, _):
        run_rag(scorer)
        assert "as opentelemetry.instrumentation.openai_v2 counts them" in str(scorer.status())

    assert memory.points(DURATION) == {}


def test_a_second_scorer_on_the_same_meter_does_not_take_the_first_for_another() -> None:
    memory = Memory()
    for _ in range(2):
        with a_line(meter_provider=memory.meter_provider) as (scorer, _):
            run_rag(scorer)

    assert [point.count for point in memory.points(DURATION).values()] == [2]


def test_the_scrape_page_shows_them() -> None:
    pytest.importorskip("prometheus_client")
    with a_line() as (scorer, _):
        port = scorer.serve_metrics(0)
        run_rag(scorer)
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()

    assert 'gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name="chat"' in page
    assert 'gen_ai_token_type="input"' in page


def span() -> Any:
    return api.NonRecordingSpan(api.SpanContext(1, 2, is_remote=False))


def test_models_past_the_bound_are_folded_and_counted() -> None:
    memory, metrics = Memory(), ModelMetrics()
    metrics.export_to(memory.providers.meter())

    for n in range(502):
        metrics.record({**CHAT, "gen_ai.request.model": f"m-{n}"}, 1.0, span())

    found = memory.points(DURATION)
    assert (len(found), found[key(**{"gen_ai.request.model": "other"})].count) == (501, 2)
    assert metrics.overflowed == 2


@pytest.mark.parametrize(("tokens", "seconds"), [(-1, 1.0), (1, -1.0)])
def test_nothing_is_measured_that_the_sdk_would_warn_of(
    tokens: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    memory, metrics = Memory(), ModelMetrics()
    metrics.export_to(memory.providers.meter())

    metrics.record({**CHAT, "gen_ai.usage.input_tokens": tokens}, seconds, span())

    assert [point.sum for point in memory.points(TOKENS).values()] == [1] * (tokens > 0)
    assert [point.sum for point in memory.points(DURATION).values()] == [max(0.0, seconds)]
    assert caplog.records == []


def test_a_meter_that_raises_costs_no_span() -> None:
    class Raises(MeterProvider):
        def get_meter(self, *arguments: Any, **named: Any) -> Any:
            meter = super().get_meter(*arguments, **named)
            made = meter.create_histogram

            def create(name: str, *more: Any, **about: Any) -> Any:
                histogram = made(name, *more, **about)
                if name == DURATION:
                    histogram.record = lambda *_, **__: 1 / 0
                return histogram

            meter.create_histogram = create
            return meter

    with a_line(meter_provider=Raises()) as (scorer, trace):
        run_rag(scorer)

    assert trace.roots[0].attributes["spanscore.status"] == "scored"


class Asked(Named):
    """Counts how often it is asked."""

    def _generate(self, *arguments: Any, **given: Any) -> Any:
        result = super()._generate(*arguments, **given)
        result.generations[0].message.usage_metadata = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return result


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_of_langchains_cache_is_no_call(is_async: bool) -> None:
    memory, trace = Memory(), a_trace()
    chain = Asked(messages=iter([AIMessage("Paris.")]), cache=InMemoryCache())
    with a_line(Grounded(), meter_provider=memory.meter_provider, trace=trace) as (scorer, _):
        for _ in range(3):
            config: Any = {"callbacks": [scorer.handler]}
            answer = asyncio.run(chain.ainvoke(QUESTION, config)) if is_async else chain.invoke(QUESTION, config)
            assert answer.content == "Paris."
        assert scorer.flush(5)

    chats = [span.attributes for span in trace.spans if span.name.startswith("chat")]
    assert [one.get(semconv.RUN_CACHED) for one in chats] == [None, True, True]
    assert [one.get(semconv.USAGE_INPUT_TOKENS) for one in chats] == [10, None, None]
    points = memory.points(TOKENS)
    assert {point.count for point in points.values()} == {1}

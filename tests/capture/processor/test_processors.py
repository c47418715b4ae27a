"""Processors in an application's providers: the spans they pass on, several processors, and their shutdown."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from tests.capture.processor.test_units import Waits
from tests.capture.processor.traced import SCOPE, Answered, Exported, ask, running, scoring, started
from tests.live import QUESTION, identity_holds, rag
from tests.servers.server import poll

from spanscore import OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.core.codecs.sdk import with_attributes
from spanscore.outputs.provider_introspection import exporter_of, processors_beside


def a_full_span() -> ReadableSpan:
    """A span with dropped items, an event, a link, a parent and a state."""
    provider = TracerProvider(
        resource=Resource({"service.name": "bot"}),
        span_limits=SpanLimits(max_span_attributes=3, max_events=1, max_links=1),
    )
    provider.add_span_processor(SimpleSpanProcessor(exported := Exported()))
    above = SpanContext(7, 9, True, TraceFlags(1), TraceState([("a", "b")]))
    span = provider.get_tracer("some.scope", "1.2", "https://schema/1").start_span(
        "chat m",
        context=trace.set_span_in_context(trace.NonRecordingSpan(above)),
        kind=SpanKind.CLIENT,
        attributes={f"a{n}": ("x", "y") if n == 4 else n for n in range(5)},
        links=[Link(above, {"l": 1})] * 2,
        start_time=10,
    )
    for name in ("first", "second"):
        span.add_event(name, {"e": 1}, timestamp=11)
    span.set_status(StatusCode.ERROR, "why")
    span.end(end_time=20)
    (ended,) = exported.get_finished_spans()
    return ended


def test_a_span_with_scores_is_the_same_span_but_for_them() -> None:
    original = a_full_span()

    scored = with_attributes(original, {"spanscore.status": "scored"})

    public = [name for name in dir(ReadableSpan) if not name.startswith("_") and name != "instrumentation_info"]
    values = [name for name in public if not callable(getattr(original, name)) and name != "attributes"]
    assert {name: getattr(scored, name) for name in values} == {name: getattr(original, name) for name in values}
    assert scored.get_span_context() == original.get_span_context()
    assert dict(scored.attributes or {}) == {**(original.attributes or {}), "spanscore.status": "scored"}
    assert (original.dropped_attributes, original.dropped_events, original.dropped_links) == (2, 1, 1)


def test_on_the_wire_too_it_is_the_same_but_for_them() -> None:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    original = a_full_span()
    with_score = encode_spans([with_attributes(original, {"spanscore.status": "scored"})])
    (scored,), (plain,) = (sent.resource_spans for sent in (with_score, encode_spans([original])))

    assert scored.scope_spans[0].spans[0].attributes.pop().key == "spanscore.status"
    assert scored == plain


# --- flush, shutdown, fork ----------------------------------------------------------------------------------------------


def test_a_providers_flush_lets_nothing_go_before_its_scores() -> None:
    go_on = threading.Event()
    with scoring(Waits(go_on)) as (scorer, exported, provider):
        ask(provider.get_tracer(SCOPE))
        poll(lambda: scorer.status().hold["parked"] == 1, deadline_s=5, what="the unit to be held")
        provider.force_flush()
        assert exported.names == []
        go_on.set()
        assert scorer.flush(5)

    assert exported.of("agent").attributes[semconv.STATUS] == "scored"


def test_a_provider_that_is_shut_down_first_loses_no_span() -> None:
    go_on = threading.Event()
    with scoring(Waits(go_on)) as (scorer, exported, provider):
        for number in range(3):
            ask(provider.get_tracer(SCOPE), f"run {number}")
        poll(lambda: scorer.status().hold["parked"] == 3, deadline_s=5, what="the units to be held")
        provider.shutdown()
        assert {exported.of(f"run {number}").attributes[semconv.STATUS] for number in range(3)} == {"pending"}
        go_on.set()

    assert len(exported.names) == 6
    assert scorer.status().hold["lost"] == 3  # later scores, on evaluation spans
    assert identity_holds(scorer)


def test_a_provider_that_is_shut_down_at_once_sends_what_was_not_even_read() -> None:
    go_on = threading.Event()
    with scoring(Waits(go_on)) as (_, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        ask(tracer, "read")
        with running(tracer, name="waits for its child"):
            started(tracer, semconv.CHAT, "never ends")
        provider.shutdown()
        go_on.set()

    assert sorted(exported.names) == ["read", "read chat 0", "waits for its child"]


def test_a_provider_that_is_shut_down_below_a_running_root_sends_what_had_ended() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        with running(tracer):
            started(tracer, semconv.EMBEDDINGS, "embeds").end()
            provider.shutdown()
            assert exported.names == ["embeds"]

    assert identity_holds(scorer)


def test_after_the_scorers_shutdown_every_span_goes_on_at_once() -> None:
    with scoring() as (scorer, exported, provider):
        scorer.shutdown(timeout=2)
        ask(provider.get_tracer(SCOPE))

        assert exported.names == ["agent chat 0", "agent"]
    assert scorer.status().eligible == {"answered": 0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_counts_and_holds_what_is_its_own() -> None:
    with scoring() as (scorer, exported, provider):
        tracer = provider.get_tracer(SCOPE)
        ask(tracer, "before")
        open_one = started(tracer, name="open at the fork")
        assert scorer.flush(5)
        child = os.fork()
        if not child:
            exported.clear()
            open_one.end()
            ask(tracer, "in the child")
            whole = scorer.flush(5) and sorted(exported.names) == [
                "in the child",
                "in the child chat 0",
                "open at the fork",
            ]
            os._exit(0 if whole and scorer.status().outcomes == {"answered": {"scored": 1}} else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        open_one.end()
        assert scorer.flush(5)

    assert scorer.status().eligible == {
        "answered": 2 - (semconv.OUTPUT_MESSAGES not in exported.of("before").attributes)
    }


# --- several ------------------------------------------------------------------------------------------------------------


def test_two_processors_of_one_scorer_score_once_and_each_exporter_gets_each_span_once() -> None:
    scorer, provider, stores = OnlineScorer([Answered()]), TracerProvider(), (Exported(), Exported())
    for store in stores:
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(store)))
    for number in range(20):
        ask(provider.get_tracer(SCOPE), f"run {number}")
    assert scorer.flush(5)
    scorer.shutdown()

    for store in stores:
        assert len(store.names) == len(set(store.names)) == 40
        assert len(store.evaluations) == 20
    assert scorer.status().outcomes == {"answered": {"scored": 20}}


def test_one_processor_in_two_providers_holds_the_spans_of_both() -> None:
    scorer, exported, providers = OnlineScorer([Answered()]), Exported(), (TracerProvider(), TracerProvider())
    processor = ScoringSpanProcessor(scorer, SimpleSpanProcessor(exported))
    for number, provider in enumerate(providers):
        provider.add_span_processor(processor)
        ask(provider.get_tracer(SCOPE), f"run {number}")
    assert scorer.flush(5)
    scorer.shutdown()

    assert [exported.of(f"run {number}").attributes[semconv.STATUS] for number in (0, 1)] == ["scored"] * 2
    assert len(exported.names) == 4


def test_scores_leave_by_the_provider_of_the_spans_where_none_was_given() -> None:
    with scoring(observe=True) as (scorer, exported, provider):
        ask(provider.get_tracer(SCOPE))
        assert exported.names == ["agent chat 0", "agent"]
        assert scorer.flush(5)

    (evaluation,) = exported.evaluations
    assert evaluation.attributes["spanscore.score.answered"] == 1.0
    assert evaluation.parent.span_id == exported.of("agent").context.span_id
    assert semconv.STATUS not in exported.of("agent").attributes


def test_a_processor_beside_an_exporter_says_so_once_and_observes(caplog: pytest.LogCaptureFixture) -> None:
    with scoring(observe=True) as (scorer, exported, provider):
        second = Exported()
        provider.add_span_processor(ScoringSpanProcessor(scorer, BatchSpanProcessor(second)))
        with caplog.at_level(logging.WARNING, "spanscore"):
            for _ in range(2):
                ask(provider.get_tracer(SCOPE))
        assert scorer.flush(5)
        provider.force_flush()

    assert sorted(exported.names) == sorted(second.names) == ["agent"] * 2 + ["agent chat 0"] * 2
    assert not any(semconv.STATUS in span.attributes for span in (*exported.spans, *second.spans))
    assert len(exported.evaluations) == 2
    (line,) = [line for line in caplog.messages if "exports spans by" in line]
    assert line.count("Exported") == 2


def test_what_is_printed_for_a_person_is_no_second_store() -> None:
    with scoring() as (scorer, exported, provider):
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=open(os.devnull, "w"))))  # noqa: SIM115
        ask(provider.get_tracer(SCOPE))
        assert scorer.flush(5)

    assert exported.of("agent").attributes[semconv.STATUS] == "scored"


class Wrapper(SpanProcessor):
    """As vendors wrap the SDK's."""

    def __init__(self, processor: SpanProcessor) -> None:
        self.processor = processor


@pytest.mark.parametrize("wrap", [SimpleSpanProcessor, BatchSpanProcessor, lambda e: Wrapper(BatchSpanProcessor(e))])
def test_the_exporter_behind_a_processor_is_found_in_this_sdk(wrap: Any) -> None:
    exporter, provider = Exported(), TracerProvider()
    processor = wrap(exporter)
    provider.add_span_processor(processor)
    span = provider.get_tracer("app").start_span("x")

    assert processors_beside(span) == (processor,)
    assert exporter_of(processor) is exporter
    assert exporter_of(SpanProcessor()) is None


# --- other scorers at work --------------------------------------------------------------------------------------------------

INNER = "openinference.instrumentation.openai"
FRAMEWORK, ANOTHER = "openinference.instrumentation.langchain", "opentelemetry.instrumentation.langchain"


def chats(provider: Any, times: int = 2) -> None:
    for _ in range(times):
        with running(provider.get_tracer(INNER), semconv.CHAT, "chat"):
            pass


def test_a_model_called_alone_is_a_unit() -> None:
    with scoring() as (scorer, _, provider):
        chats(provider)
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 2}}


def test_a_model_call_without_a_parent_is_a_unit_beside_a_framework() -> None:
    with scoring() as (scorer, exported, provider):
        ask(provider.get_tracer(FRAMEWORK))
        chats(provider)
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 3}
    assert exported.names.count("chat") == 2


def test_of_two_instrumentations_of_a_framework_the_first_is_read(caplog: pytest.LogCaptureFixture) -> None:
    with scoring() as (scorer, exported, provider):
        for _ in range(2):
            ask(provider.get_tracer(FRAMEWORK))
            ask(provider.get_tracer(ANOTHER), "again")
        assert scorer.flush(5)

    assert scorer.status().eligible == {"answered": 2}
    assert exported.names.count("again") == 2
    assert len([line for line in caplog.messages if FRAMEWORK in line and ANOTHER in line]) == 1


def test_our_own_handler_in_the_same_process_is_not_heard_twice() -> None:
    exported, provider = Exported(), TracerProvider()
    with OnlineScorer([Answered()], tracer_provider=provider) as scorer:
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(exported)))
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        ask(provider.get_tracer(FRAMEWORK), "the same run")
        assert scorer.flush(5)

    assert scorer.status().outcomes == {"answered": {"scored": 1}}
    assert len({span.context.span_id for span in exported.spans}) == len(exported.spans) == 5

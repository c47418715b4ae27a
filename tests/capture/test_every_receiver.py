"""Whatever units come in by, the line sees the same of it. The span thread does not run here: a test is it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.capture.otlp.builders import a_wire_span, taken
from tests.contracts.found import implementations
from tests.core.test_fork import in_child
from tests.live import ANSWER, CONTEXT, QUESTION, a_line, identity_holds, rag

from spanscore import OnlineScorer, ScoringSpanProcessor, SingleTurnSample
from spanscore.capture.callback.recorder import Recorder
from spanscore.capture.otlp.spans import OtlpSpans
from spanscore.capture.processor.external_spans import ExternalSpans
from spanscore.capture.whole_units import StoredUnits, SubmittedSamples
from spanscore.config import Units
from spanscore.protocols import Receiver
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.testing import make_span, make_unit
from spanscore.wiring.span_thread import SpanThread

HOUR_NS = 3_600 * 10**9
AT_ONCE = Units(idle_timeout=0)
TRACES = count(1)


def call(scorer: OnlineScorer) -> None:
    rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})


def begin(scorer: OnlineScorer) -> None:
    scorer.handler.on_chain_start(None, {}, run_id=uuid4(), name="endless", metadata={})


def submit(scorer: OnlineScorer) -> None:
    scorer.submit(SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT]))


def agent(scorer: OnlineScorer) -> Any:
    provider = TracerProvider()
    provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(InMemorySpanExporter())))
    return provider.get_tracer("app").start_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"})


def trace(scorer: OnlineScorer) -> None:
    agent(scorer).end()


def send(scorer: OnlineScorer) -> None:
    receivers_of(scorer).otlp_spans(AT_ONCE).accept(taken([a_wire_span(trace=next(TRACES))]))


def replay(scorer: OnlineScorer) -> None:
    receivers_of(scorer).stored_units().put(make_unit(make_span()))


WAYS: dict[type, Callable[[OnlineScorer], None]] = {
    Recorder: call,
    SubmittedSamples: submit,
    ExternalSpans: trace,
    OtlpSpans: send,
    StoredUnits: replay,
}
"""How a whole unit comes in by each."""


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(SpanThread, "ensure", lambda self: None)
    with a_line() as (scorer, _):
        receivers = receivers_of(scorer)
        receivers.callback(), receivers.spans(), receivers.otlp_spans(AT_ONCE), receivers.stored_units()
        yield scorer


def of(scorer: Any, kind: type) -> Any:
    (found,) = [receiver for receiver in pipeline_of(scorer).receivers if type(receiver) is kind]
    return found


def eligible(scorer: OnlineScorer) -> int:
    return scorer.status().eligible["grounded"]


def test_every_receiver_is_tried_here():
    assert set(implementations("capture", Receiver)) == set(WAYS)


@pytest.mark.parametrize(("kind", "way"), WAYS.items())
def test_a_unit_is_unread_until_the_span_thread_has_read_it(scorer, kind, way):
    way(scorer)
    assert (of(scorer, kind).unread_count(), eligible(scorer)) == (1, 0)

    pipeline_of(scorer).span_thread.tick()

    assert (of(scorer, kind).unread_count(), eligible(scorer)) == (0, 1)


@pytest.mark.parametrize(("kind", "way"), WAYS.items())
def test_what_is_never_read_ends_as_shutdown(scorer, kind, way):
    way(scorer)

    scorer.shutdown(timeout=0.2)

    assert scorer.status().outcomes["grounded"] == {"shutdown": 1}
    assert identity_holds(scorer)


@pytest.mark.parametrize(("kind", "way"), WAYS.items())
def test_a_closed_receiver_lets_nothing_in(scorer, kind, way):
    of(scorer, kind).close()

    way(scorer)
    pipeline_of(scorer).span_thread.tick()

    assert (of(scorer, kind).unread_count(), eligible(scorer)) == (0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(("kind", "way"), WAYS.items())
def test_a_forked_child_begins_at_nothing(scorer, kind, way):
    way(scorer)

    def state() -> str:
        receiver = of(scorer, kind)
        return str((receiver.unread_count(), receiver.in_flight(), receiver.next_due_ns(), receiver.drain(0)))

    assert in_child(state) == "(0, set(), None, [])"


@pytest.mark.parametrize("kind", WAYS)
def test_a_receiver_of_nothing_waits_for_nothing(scorer, kind):
    receiver = of(scorer, kind)
    receiver.tick(HOUR_NS)

    assert (receiver.unread_count(), receiver.in_flight(), receiver.next_due_ns(), receiver.drain(0)) == (
        0,
        set(),
        None,
        [],
    )


def test_what_has_not_ended_is_handed_on_as_it_is_when_it_is_detached(scorer):
    begin(scorer)
    pipeline_of(scorer).span_thread.tick()
    receiver = of(scorer, Recorder)
    assert receiver.next_due_ns() is not None

    (key,) = receiver.drain(pipeline_of(scorer).span_thread.now_ns())

    assert key in pipeline_of(scorer).units.hold.in_flight
    assert (receiver.drain(0), receiver.next_due_ns()) == ([], None)


def sample():
    return SingleTurnSample(user_input=QUESTION, response=ANSWER, retrieved_contexts=[CONTEXT])


def test_a_sample_that_a_stuck_span_thread_has_not_read_ends_as_shutdown(monkeypatch):
    monkeypatch.setattr(SpanThread, "ensure", lambda self: None)  # as if it hung in an exporter
    with a_line() as (scorer, _):
        scorer.submit(sample())
        scorer.shutdown(timeout=0.5)

        assert scorer.status().outcomes["grounded"] == {"shutdown": 1}
        assert identity_holds(scorer)

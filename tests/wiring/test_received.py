"""A scorer of received spans: its scores, waits, display and counts."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from itertools import count
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.capture.otlp.builders import a_wire_span, taken
from tests.core.test_fork import in_child
from tests.live import ANSWER, QUESTION, a_line, identity_holds

from spanscore import semconv
from spanscore.config import Units
from spanscore.core.codecs.otlp_request import WireSpan
from spanscore.metrics import BaseMetric, Finding
from spanscore.scorer import pipeline_of, receivers_of

QUICK = Units(idle_timeout=0.05)
ENDLESS = Units(idle_timeout=3_600)
_traces = count(1)


class Answered(BaseMetric):
    """1 for any answer, once it may go on."""

    name = "answered"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, go_on: threading.Event | None = None) -> None:
        self._go_on = go_on

    async def measure(self, sample: Any) -> Finding:
        while self._go_on is not None and not self._go_on.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return Finding(value=1.0)


def said(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def agent(**more: Any) -> WireSpan:
    content = {semconv.INPUT_MESSAGES: said("user", QUESTION), semconv.OUTPUT_MESSAGES: said("assistant", ANSWER)}
    return a_wire_span(trace=next(_traces), **content, **more)


def send(scorer: Any, *spans: WireSpan, units: Units = QUICK) -> Any:
    receiver = receivers_of(scorer).otlp_spans(units)
    receiver.accept(taken(spans))
    return receiver


def instruments(reader: InMemoryMetricReader) -> dict[str, float]:
    return {
        metric.name: sum(point.value for point in metric.data.data_points)
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith(("spanscore.receive.", "spanscore.units.")) and metric.data.data_points
    }


def test_a_flush_waits_for_what_has_its_root_and_its_scores_are_evaluation_spans() -> None:
    root = agent(resource={"service.name": "shop", "region": "eu"})
    with a_line(Answered()) as (scorer, trace):
        send(scorer, root)
        assert scorer.flush(10)

        [scored] = trace.evaluations
    assert (scored.context.trace_id, scored.parent.span_id) == (
        int.from_bytes(root.trace_id),
        int.from_bytes(root.span_id),
    )
    assert scored.resource.attributes["region"] == "eu"
    assert trace.spans == [scored]


def test_what_has_its_root_at_a_shutdown_is_scored_and_the_rest_is_counted() -> None:
    orphan = a_wire_span(parent=agent(), trace=99, **{semconv.OUTPUT_MESSAGES: said("assistant", ANSWER)})
    with a_line(Answered()) as (scorer, trace):
        send(scorer, agent(), orphan, units=ENDLESS)
        scorer.shutdown(timeout=5)

        assert scorer.status().outcomes["answered"] == {"scored": 1, "shutdown": 1}
        assert identity_holds(scorer)
    assert len(trace.evaluations) == 1


def test_what_a_judge_holds_up_at_a_shutdown_ends_as_shutdown() -> None:
    with a_line(Answered(threading.Event())) as (scorer, _):
        send(scorer, agent(), units=ENDLESS)
        scorer.shutdown(timeout=0.5)

        assert scorer.status().outcomes["answered"] == {"shutdown": 1}


def test_nothing_is_taken_after_a_shutdown() -> None:
    with a_line(Answered()) as (scorer, _):
        scorer.shutdown(timeout=1)

        send(scorer, agent())

        assert (scorer.status().eligible, scorer.status().units) == ({"answered": 0}, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_begins_at_nothing() -> None:
    with a_line(Answered()) as (scorer, _):
        receiver = send(scorer, agent(), a_wire_span(None, scope="http"), units=ENDLESS)
        receiver.counts.count_request(100)

        def counts() -> str:
            received = scorer.status().received
            assert received is not None
            return str((received.requests, received.spans, received.open, receiver.unread_count()))

        assert in_child(counts) == "(0, 0, 0, 0)"


def test_the_status_has_a_row_for_each_part_of_the_way() -> None:
    late, missing = agent(), agent()
    with a_line(Answered()) as (scorer, _):
        receiver = send(scorer, agent(), agent(scope=semconv.SCOPE), a_wire_span(None, scope="http", trace=98), late)
        receiver.counts.count_request(1_500_000)
        receiver.counts.refuse("traces")
        receiver.forward = lambda: (3, 1, "503 at 12:00:00")
        assert scorer.flush(10)
        receiver.accept(taken([agent(parent=late)._replace(trace_id=late.trace_id)], {"a trace id of zeros": 2}))
        pipeline_of(scorer).span_thread.call(lambda: None, 5)
        receiver.accept(taken([a_wire_span("execute_tool", parent=missing)]))
        pipeline_of(scorer).span_thread.call(lambda: None, 5)

        shown = " ".join(str(scorer.status()).split())
    assert (
        "received: 1 request, 6 spans, 1.5 MB; refused 1 traces; invalid spans: 2 a trace id of zeros;"
        " 1 evaluation left out: spans of evaluations are not scored" in shown
    )
    assert "units: 1 trace open, 1 of them waiting for a root; 1 span came when their unit had closed" in shown
    assert "dialects: genai 2; 1 span of other things" in shown
    assert "forward: 3 requests sent on, 1 failed; 503 at 12:00:00" in shown


def test_the_instruments_of_a_receiver_report_the_same() -> None:
    reader = InMemoryMetricReader()
    with a_line(Answered(), meter_provider=MeterProvider(metric_readers=[reader])) as (scorer, _):
        scorer.start_workers()
        pipeline_of(scorer).span_thread.call(lambda: None, 5)
        assert instruments(reader) == {}

        receiver = send(scorer, agent(), units=ENDLESS)
        receiver.counts.count_request(1_000)
        receiver.counts.refuse("event_queue")
        pipeline_of(scorer).span_thread.call(lambda: None, 5)

        values = instruments(reader)
    assert {name.removeprefix("spanscore."): value for name, value in values.items()} == {
        "receive.requests": 1,
        "receive.spans": 1,
        "receive.bytes": 1_000,
        "receive.refused": 1,
        "receive.unread": 0,
        "receive.rejected": 0,
        "units.open": 1,
        "units.orphans": 0,
        "units.late": 0,
    }

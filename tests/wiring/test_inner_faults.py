"""Books of roots and of inner units add up, and each span is exported once, whatever fails."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.live import EXTERNAL, QUESTION, Held, a_line, identity_holds, rag
from tests.servers.server import poll

from spanscore import OnlineScorer, ScoringSpanProcessor, metric, semconv
from spanscore.config import Limits, Outputs, Spool, Units
from spanscore.core.score import Outcome
from spanscore.metrics import BaseMetric, Finding
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.testing import MemorySink, make_span, make_unit

RETRIEVER, CHAT = {"kind": "retriever"}, {"kind": "chat"}


class Waiting(BaseMetric):
    """Scores any sample, when it may go on."""

    name = "waiting"
    requires = {"single_turn": ("user_input",)}  # noqa: RUF012

    def __init__(self, go_on: threading.Event) -> None:
        self._held = Held(go_on, "waiting")

    async def measure(self, sample: Any) -> Finding:
        filled = sample.model_copy(update={"response": "a", "retrieved_contexts": ["a"]})
        return await self._held.measure(filled)


@metric
def raising(sample) -> bool:
    raise RuntimeError("no")


@metric
def polite(sample) -> bool:
    return True


def books_hold(scorer: OnlineScorer) -> bool:
    """Eligible = Σ outcomes + pending, for roots and for each entry, and in the instruments."""
    inner = scorer.status().inner
    telemetry = pipeline_of(scorer).telemetry
    eligible, pending, ended = telemetry.eligible(), telemetry.pending(), Counter[Any]()
    for labels, units in telemetry.evaluations().items():
        ended[tuple(label for label in labels if label[0] != semconv.OUTCOME)] += units
    return (
        identity_holds(scorer)
        and all(state.eligible == sum(state.outcomes.values()) + state.pending for state in inner)
        and all(units == ended[labels] + pending[labels] for labels, units in eligible.items())
    )


def totals(scorer: OnlineScorer) -> dict[str, int]:
    """Return outcome → inner units."""
    counts = Counter[str]()
    for state in scorer.status().inner:
        counts.update(state.outcomes)
    return dict(counts)


def ask(scorer: OnlineScorer, runs: int = 1) -> None:
    for _ in range(runs):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})


def retrievals(number: int) -> Any:
    """Return a stored unit with so many retrievers."""
    root = make_span()
    spans = [
        make_span(
            "retrieval",
            trace_id=root.trace_id,
            parent_id=root.span_id,
            attributes={semconv.RETRIEVAL_QUERY: "q", semconv.RETRIEVAL_DOCUMENTS: [{"content": "d"}]},
        )
        for _ in range(number)
    ]
    return make_unit(root, *spans)


FAULTS: dict[str, tuple[Any, dict[str, Any], dict[str, int]]] = {
    "a metric that raises": (raising, {}, {"metric_error": 6}),
    "a filter that raises": (polite, {"sample_filter": lambda sample: 1 / 0}, {"filtered": 6}),
    "a redactor that returns no text": (polite, {"redactor": lambda text: None}, {"redaction_error": 6}),
    "a queue that is too small": (polite, {"limits": Limits(queue_bytes=1)}, {}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_books_hold_under(fault: str) -> None:
    broken, options, expected = FAULTS[fault]
    with a_line(broken, units=Units(also=[RETRIEVER, CHAT]), **options) as (scorer, trace):
        ask(scorer, 3)
        assert scorer.flush(10)

        assert books_hold(scorer)
        assert sum(totals(scorer).values()) == 6
        assert totals(scorer) == (expected or totals(scorer))
    assert [len(trace.named(name)) for name in ("invoke_workflow", "retrieval", "chat")] == [3, 3, 3]


def test_an_incomplete_unit_has_incomplete_inner_units() -> None:
    unit = retrievals(3)
    with a_line(polite, units=Units(also=[RETRIEVER])) as (scorer, _):
        line = pipeline_of(scorer)
        unit.complete = False
        receivers_of(scorer).stored_units().put(unit)
        assert scorer.flush(10)

        assert totals(scorer) == {Outcome.INCOMPLETE: 3}
        assert scorer.status().outcomes["polite"] == {Outcome.INCOMPLETE: 1}
        assert line.units.inner_deciders.keys()
        assert books_hold(scorer)


def test_ten_thousand_open_inner_units_are_within_the_bounds_and_each_is_scored() -> None:
    go_on, exporter, provider = threading.Event(), InMemorySpanExporter(), TracerProvider()
    limits = Limits(queue_size=20_000, timeout=120)
    with a_line(Waiting(go_on), units=Units(also=[RETRIEVER]), limits=limits) as (scorer, _):
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(exporter)))
        tracer, attributes = provider.get_tracer(EXTERNAL), {"gen_ai.operation.name": "retrieval"}
        attributes["gen_ai.retrieval.query.text"] = "q"
        for _ in range(10):
            with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
                for _ in range(1_000):
                    tracer.start_span("retrieval docs", attributes=attributes).end()
        hold = pipeline_of(scorer).hold
        poll(lambda: scorer.status().inner[0].eligible == 10_000, deadline_s=60, what="10,000 inner units")
        state = scorer.status().inner[0]
        assert (state.pending, books_hold(scorer)) == (10_000, True)
        # The last unit is counted before the span thread has made room for it.
        poll(
            lambda: len(hold) <= hold.max_units and hold.spans <= hold.max_spans, deadline_s=30, what="room in the hold"
        )

        go_on.set()
        assert scorer.flush(120)
        assert totals(scorer) == {"scored": 10_000}
        assert books_hold(scorer)
        assert hold.spans == len(hold) == 0
    assert len({span.context.span_id for span in exporter.get_finished_spans()}) == 10_010
    assert len(exporter.get_finished_spans()) == 10_010


def test_beyond_the_queue_inner_units_end_as_queue_full() -> None:
    go_on = threading.Event()
    with a_line(Waiting(go_on), units=Units(also=[RETRIEVER]), limits=Limits(queue_size=100)) as (scorer, _):
        receivers_of(scorer).stored_units().put(retrievals(300))
        poll(lambda: totals(scorer) == {"queue_full": 201}, deadline_s=30, what="99 places, as the root has one")
        go_on.set()
        assert scorer.flush(30)

        assert totals(scorer) == {"queue_full": 201, "scored": 99}
        assert books_hold(scorer)


def test_a_shutdown_while_inner_units_are_open_settles_each() -> None:
    go_on = threading.Event()
    with a_line(Waiting(go_on), units=Units(also=[RETRIEVER])) as (scorer, _):
        receivers_of(scorer).stored_units().put(retrievals(50))
        poll(lambda: scorer.status().inner[0].pending == 50, deadline_s=30, what="open units")
        scorer.shutdown(timeout=1)

        assert totals(scorer) == {"shutdown": 50}
        assert books_hold(scorer)


def test_a_cancelled_run_has_inner_units_as_its_spans_say() -> None:
    class Cancels(BaseCallbackHandler):
        raise_error = True

        def on_chat_model_start(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    with a_line(polite, units=Units(also=[RETRIEVER, CHAT])) as (scorer, trace):
        with pytest.raises(KeyboardInterrupt):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler, Cancels()]})
        assert scorer.flush(15)
        assert books_hold(scorer)
        assert scorer.status().inner[0].outcomes == {"scored": 1}
    assert len(trace.named("retrieval")) == 1


def test_a_late_span_makes_no_second_score_of_an_inner_unit() -> None:
    unit = retrievals(2)
    with a_line(polite, units=Units(also=[RETRIEVER], late="rescore")) as (scorer, trace):
        receivers_of(scorer).stored_units().put(unit)
        assert scorer.flush(10)
        again = retrievals(0)
        again.key, again.spans, again.revision = unit.key, unit.spans, 1
        receivers_of(scorer).stored_units().put(again)
        assert scorer.flush(10)

        assert totals(scorer) == {"scored": 2}
        assert len(trace.evaluations) == 2  # the root has no sample


def test_inner_units_go_through_a_spool_with_the_same_ids(tmp_path: Any) -> None:
    units, spool = Units(also=[RETRIEVER, CHAT]), tmp_path / "spool.db"
    with a_line(polite, units=units) as (scorer, trace):
        ask(scorer)
        assert scorer.flush(10)
    names = {
        span.attributes["spanscore.unit.kind"]
        for span in trace.evaluations
        if span.attributes.get("spanscore.unit.kind")
    }
    sink = MemorySink()
    with a_line(polite, units=units, spool=Spool(path=spool, score_here=False)) as (scorer, live):
        ask(scorer)
        assert scorer.flush(10)
        assert totals(scorer) == {"delegated": 2}
        assert books_hold(scorer)
    with a_line(polite, spool=Spool(path=spool), outputs=Outputs(sinks=[sink])) as (worker, done):
        worker.start_workers()
        poll(lambda: len(sink.scores) == 3, deadline_s=20, what="three scores")
        assert worker.flush(10)

        assert totals(worker) == {"scored": 2}
        assert books_hold(worker)
        assert worker.status().outcomes["polite"] == {"scored": 1}
    spans = {span.context.span_id for span in live.spans}
    assert {span.parent.span_id for span in done.evaluations} <= spans
    assert {span.attributes.get(semconv.UNIT_KIND) for span in done.evaluations} == {None, *names}

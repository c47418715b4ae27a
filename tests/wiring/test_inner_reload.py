"""Reloads with ``units.also``: an inner unit keeps the metrics, judges and rates of the start of its root."""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.capture.otlp.builders import a_wire_span, taken
from tests.live import EXTERNAL, QUESTION, Trace, a_trace, rag, run_rag
from tests.servers.openai_api import OpenAIServer
from tests.servers.server import poll
from tests.wiring.constant_metrics import Gated
from tests.wiring.test_inner_faults import books_hold
from tests.wiring.test_reload import (
    APPROVES,
    CRITIC,
    GATED,
    constant,
    made_of,
    read_counters,
    run_around,
    write,
)

from spanscore import ConfigurationError, OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.config import Outputs, Units
from spanscore.core.threads import start_daemon
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.testing import MemorySink

CHAT: dict[str, Any] = {"also": [{"kind": "chat"}]}
TEXTS = {
    "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"Why?"}]}]',
    "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"So."}]}]',
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spanscore.yaml"


def inner(scorer: OnlineScorer) -> dict[str, dict[str, int]]:
    """Metric → outcomes of the inner units of the only entry."""
    return {state.metric: dict(state.outcomes) for state in scorer.status().inner}


def versions_by_unit(trace: Trace) -> dict[int, list[set[tuple[str, str]]]]:
    """Trace id → (metric, evaluator version) of the scores, one set for each unit of the trace."""
    units: dict[Any, set[tuple[str, str]]] = defaultdict(set)
    for score in trace.evaluations:
        attributes = score.attributes
        units[score.context.trace_id, score.parent.span_id].add(
            (attributes[semconv.EVALUATION_NAME], attributes[semconv.EVALUATOR_VERSION])
        )
    by_trace = defaultdict(list)
    for (trace_id, _), versions in units.items():
        by_trace[trace_id].append(versions)
    return by_trace


# --- the configuration of the start of the root --------------------------------------------------------------------


def test_inner_units_keep_the_metrics_of_the_start_of_their_root(file: Path) -> None:
    with made_of(write(file, constant("kept"), constant("left_out"), units=CHAT)) as scorer:

        def reload() -> None:
            write(file, constant("kept", 0.5), constant("added"), units=CHAT)
            scorer.reload()

        run_around(scorer, reload)
        during = inner(scorer)
        run_rag(scorer)

        assert during == {"kept": {"scored": 1}, "added": {}, "left_out": {"scored": 1}}
        assert inner(scorer) == {"kept": {"scored": 2}, "added": {"scored": 1}, "left_out": {"scored": 1}}
        assert books_hold(scorer)


def test_an_added_metric_scores_the_inner_units_of_later_roots_with_its_own_value(file: Path) -> None:
    with made_of(write(file, constant("kept"), units=CHAT)) as scorer:
        write(file, constant("kept"), constant("added", 0.25), units=CHAT)
        scorer.reload()
        run_rag(scorer, 2)
        kept, added = scorer.status().inner

    assert (kept.mean[0], added.mean[0]) == (1.0, 0.25)
    assert (kept.rate, added.rate) == (1.0, 1.0)


def test_a_removed_metric_keeps_its_counts_of_inner_units_and_has_no_rate(file: Path) -> None:
    with made_of(write(file, constant("left_out"), constant("kept"), units=CHAT)) as scorer:
        run_rag(scorer, 2)
        write(file, constant("kept"), units=CHAT)
        scorer.reload()
        run_rag(scorer)
        kept, left_out = scorer.status().inner

        assert (kept.metric, kept.rate, kept.eligible) == ("kept", 1.0, 3)
        assert (left_out.rate, left_out.mean, left_out.eligible, left_out.outcomes) == (None, None, 2, {"scored": 2})
        assert books_hold(scorer)


def test_a_metric_that_is_removed_before_its_first_inner_unit_is_in_no_count(file: Path) -> None:
    with made_of(write(file, constant("left_out"), units=CHAT)) as scorer:
        write(file, constant("added"), units=CHAT)
        scorer.reload()
        run_rag(scorer)

        assert inner(scorer) == {"added": {"scored": 1}}


def test_the_rates_of_the_roots_start_are_in_the_probability_of_an_inner_score(file: Path) -> None:
    sink = MemorySink()
    with made_of(write(file, units=CHAT), outputs=Outputs(sinks=[sink])) as scorer:

        def reload() -> None:
            write(file, units=CHAT, sampling={"rate": 0.5})
            scorer.reload()

        run_around(scorer, reload)
        run_rag(scorer, 20)
        probabilities = [score.probability for unit, scores in sink.emitted for score in scores if unit.inner]

        assert (probabilities[0], {*probabilities[1:]}) == (1.0, {0.5})
        assert scorer.status().inner[0].eligible == len(probabilities) < 21
        assert books_hold(scorer)


def test_a_recorded_root_has_its_inner_units_if_a_reload_samples_no_later_root(file: Path) -> None:
    with made_of(write(file, units=CHAT)) as scorer:

        def reload() -> None:
            write(file, units=CHAT, sampling={"rate": 0.0})
            scorer.reload()

        run_around(scorer, reload)
        run_rag(scorer, 3)

        assert inner(scorer) == {"constant": {"scored": 1}}
        assert scorer.status().outcomes == {"constant": {"scored": 1, "not_sampled": 3}}


def test_a_root_that_was_not_recorded_at_its_start_has_no_inner_units_after_a_reload(file: Path) -> None:
    with made_of(write(file, units=CHAT, sampling={"rate": 0.0})) as scorer:

        def reload() -> None:
            write(file, units=CHAT, sampling={"rate": 1.0})
            scorer.reload()

        run_around(scorer, reload)

        assert scorer.status().outcomes == {"constant": {"not_sampled": 1}}
        assert scorer.status().inner[0].eligible == 0


def test_inner_units_that_are_being_scored_are_scored_by_their_metric(file: Path) -> None:
    Gated.gate.clear()
    Gated.begun.clear()
    with made_of(write(file, {GATED: {"name": "gated"}}, units=CHAT)) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        poll(lambda: scorer.status().inner[0].pending, deadline_s=20, what="an open inner unit")
        for name in ("second", "third"):
            write(file, constant(name), units=CHAT)
            scorer.reload()
        pending = {state.metric: state.pending for state in scorer.status().inner}
        Gated.gate.set()
        assert scorer.flush(10)

        assert pending == {"third": 0, "gated": 1}
        assert inner(scorer) == {"third": {}, "gated": {"scored": 1}}
        assert books_hold(scorer)


def test_inner_units_ask_the_judge_of_their_roots_start_and_another_judge_begins_a_new_mean(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with OpenAIServer(lambda _: APPROVES) as provider:
        judged = {"base_url": provider.url, "api_key_env": "OPENAI_API_KEY", "structured": "json"}
        with made_of(write(file, CRITIC, units=CHAT, judge={"model": "openai:small", **judged})) as scorer:

            def reload() -> None:
                write(file, CRITIC, units=CHAT, judge={"model": "openai:large", **judged})
                scorer.reload()

            run_around(scorer, reload)
            (state,) = scorer.status().inner
            run_rag(scorer)
            (after,) = scorer.status().inner

        assert [body["model"] for body in provider.requests] == ["small", "small", "large", "large"]
    assert (state.outcomes, state.mean) == ({"scored": 1}, None)
    assert (after.outcomes, after.mean is not None) == ({"scored": 2}, True)


# --- the other receivers, and a spool -------------------------------------------------------------------------------


def test_inner_spans_of_another_instrumentation_keep_the_metrics_of_their_trace(file: Path) -> None:
    with made_of(write(file, constant("before"), units=CHAT)) as scorer:
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(exporter)))
        tracer = provider.get_tracer(EXTERNAL)
        root, chat = ({"gen_ai.operation.name": name, **TEXTS} for name in ("invoke_agent", "chat"))
        with tracer.start_as_current_span("invoke_agent a", attributes=root):
            tracer.start_span("chat m", attributes=chat).end()
            write(file, constant("after"), units=CHAT)
            scorer.reload()
            tracer.start_span("chat m", attributes=chat).end()
        assert scorer.flush(10)

        assert inner(scorer) == {"after": {}, "before": {"scored": 2}}
        assert scorer.status().outcomes == {"after": {}, "before": {"scored": 1}}
        assert books_hold(scorer)
    assert len(exporter.get_finished_spans()) == 3


def test_inner_spans_that_arrive_after_a_reload_keep_the_metrics_of_their_trace(file: Path) -> None:
    Gated.gate.clear()
    with made_of(write(file, {GATED: {"name": "before"}}, units=CHAT)) as scorer:
        spans = receivers_of(scorer).otlp_spans(Units(idle_timeout=100.0))
        root = a_wire_span(trace=1, **TEXTS)
        spans.accept(taken([a_wire_span("chat", trace=1, parent=root, **TEXTS)]))
        assert pipeline_of(scorer).span_thread.call(lambda: None, 10)
        for name in ("second", "after"):
            write(file, constant(name), units=CHAT)
            scorer.reload()
        later = a_wire_span(trace=2, **TEXTS)
        spans.accept(taken([a_wire_span("chat", trace=1, parent=root, **TEXTS), root]))
        spans.accept(taken([a_wire_span("chat", trace=2, parent=later, **TEXTS), later]))
        pipeline_of(scorer).span_thread.call(lambda: spans.drain(0), 10)
        write(file, constant("last"), units=CHAT)
        scorer.reload()  # the traces have closed, and their units are being scored
        Gated.gate.set()
        assert scorer.flush(20)

        assert inner(scorer) == {"last": {}, "before": {"scored": 2}, "after": {"scored": 1}}
        assert books_hold(scorer)


def test_jobs_of_inner_units_in_a_spool_keep_their_metrics(file: Path, tmp_path: Path) -> None:
    Gated.gate.clear()
    spool = {"spool": {"path": str(tmp_path / "spool.db")}, "units": CHAT}
    with made_of(write(file, {GATED: {"name": "gated"}}, **spool)) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        poll(lambda: scorer.status().spool.depth == 2, deadline_s=20, what="both jobs on the disk")
        write(file, constant("after"), **spool)
        scorer.reload()
        Gated.gate.set()
        assert scorer.flush(20)
        run_rag(scorer)

        assert inner(scorer) == {"after": {"scored": 1}, "gated": {"scored": 1}}
        assert books_hold(scorer)
        poll(lambda: scorer.status().spool.depth == 0, deadline_s=20, what="an empty spool")


def test_a_worker_keeps_the_counts_of_inner_units_that_only_other_processes_have(file: Path, tmp_path: Path) -> None:
    spool = str(tmp_path / "spool.db")
    settings = {"units": CHAT, "spool": {"path": spool, "score_here": False}}
    with made_of(write(tmp_path / "app.yaml", **settings)) as application:
        run_rag(application)
        with made_of(write(file, spool={"path": spool})) as worker:
            worker.start_workers()
            poll(lambda: inner(worker) == {"constant": {"scored": 1}}, deadline_s=20, what="the first inner score")
            write(file, constant("constant", 0.5), constant("added"), spool={"path": spool})
            worker.reload()
            run_rag(application)
            poll(lambda: inner(worker) == {"constant": {"scored": 2}}, deadline_s=20, what="the second inner score")
            assert worker.flush(10)

            assert books_hold(worker)
            assert scored_by_root(worker) == {"constant": {"scored": 2}, "added": {}}


def scored_by_root(scorer: OnlineScorer) -> dict[str, dict[str, int]]:
    """Metric → outcomes of roots."""
    return {metric: dict(outcomes) for metric, outcomes in scorer.status().outcomes.items()}


# --- keys that cannot change ----------------------------------------------------------------------------------------


def test_changed_entries_need_a_restart_and_the_other_keys_are_applied(file: Path) -> None:
    with made_of(write(file, units=CHAT)) as scorer:
        also = [{"kind": "chat", "rate": 0.0}, {"kind": "retriever"}]
        write(file, constant("other"), units={"also": also})
        result = scorer.reload()
        run_rag(scorer)

        assert (result.changed, result.after_restart) == (("metrics",), ("units.also",))
        assert inner(scorer) == {"other": {"scored": 1}}


def test_a_reload_does_not_remove_a_metric_that_an_entry_names(file: Path) -> None:
    also = {"also": [{"kind": "chat", "metrics": ["constant"]}]}
    with made_of(write(file, units=also)) as scorer:
        write(file, constant("other"), units=also)
        with pytest.raises(ConfigurationError, match=r"units\.also names 'constant' for chat, which is not a metric"):
            scorer.reload()
        run_rag(scorer)

        assert inner(scorer) == {"constant": {"scored": 1}}
        assert "units.also names 'constant'" in scorer.status().reloads.fault


def test_an_entry_with_metrics_keeps_them_over_a_reload(file: Path) -> None:
    also = {"also": [{"kind": "chat", "metrics": ["named"]}]}
    with made_of(write(file, constant("named"), constant("left_out"), units=also)) as scorer:
        write(file, constant("added"), constant("named", 0.5), units=also)
        scorer.reload()
        run_rag(scorer)
        (state,) = scorer.status().inner

        assert (state.metric, state.mean[0], state.outcomes) == ("named", 0.5, {"scored": 1})


# --- under traffic --------------------------------------------------------------------------------------------------

VARIANTS: list[tuple[list[Any], dict[str, Any]]] = [
    ([constant("one"), constant("two")], {}),
    ([constant("two", 0.5)], {"sampling": {"rate": 0.5}}),
    ([constant("three"), constant("one", 0.25)], {"sampling": {"rules": [{"when": {"status": "ok"}, "rate": 0.7}]}}),
]


def test_books_of_roots_and_inner_units_balance_over_reloads_under_traffic(file: Path, tmp_path: Path) -> None:
    over, reader = threading.Event(), InMemoryMetricReader()
    lasting = {"units": {"also": [{"kind": "chat", "rate": 0.5}, {"kind": "retriever"}]}}
    lasting["spool"] = {"path": str(tmp_path / "spool.db")}
    metrics, settings = VARIANTS[0]
    with made_of(
        write(file, *metrics, **lasting, **settings), meter_provider=MeterProvider(metric_readers=[reader])
    ) as scorer:
        run_rag(scorer)
        threads = traffic(scorer, over)
        counters = read_counters(reader)
        for turn in range(1, 25):
            metrics, settings = VARIANTS[turn % 3]
            write(file, *metrics, **lasting, **settings)
            scorer.reload()
            before, counters = counters, read_counters(reader)
            assert {key: value for key, value in before.items() if counters.get(key, -1) < value} == {}
        over.set()
        for thread in threads:
            thread.join()
        assert scorer.flush(60)

        assert books_hold(scorer)
        assert {state.pending for state in scorer.status().inner} == {0}
        assert {state.metric for state in scorer.status().inner} == {"one", "two", "three"}


@pytest.mark.parametrize("receiver", ["callback", "otlp"])
def test_each_inner_unit_has_the_evaluator_versions_of_its_root_under_traffic(file: Path, receiver: str) -> None:
    over, trace = threading.Event(), a_trace()
    lasting = {"units": CHAT, "limits": {"queue_size": 100_000}}
    with made_of(write(file, constant("one"), **lasting), trace) as scorer:
        run_rag(scorer)
        threads = traffic(scorer, over) if receiver == "callback" else traffic_over_otlp(scorer, over)
        for turn in range(24):
            write(file, constant("one", turn / 24), *([constant("two")] if turn % 2 else []), **lasting)
            scorer.reload()
        over.set()
        for thread in threads:
            thread.join()
        assert scorer.flush(60)

        assert books_hold(scorer)
        poll(lambda: not pipeline_of(scorer).scoring.earlier, deadline_s=30, what="earlier metrics to be forgotten")
        assert scorer.flush(10)
        eligible = scorer.status().eligible["one"]
        assert pipeline_of(scorer).account_quotas.fill() == 0
    units = versions_by_unit(trace)
    assert len(units) == eligible > 1
    assert [len(versions) for versions in units.values()] == [2] * len(units)
    assert [trace_id for trace_id, (one, other) in units.items() if one != other] == []


def test_the_books_of_earlier_metrics_are_forgotten_with_their_last_unit(file: Path) -> None:
    with made_of(write(file, units=CHAT)) as scorer:
        for turn in range(20):

            def reload(turn: int = turn) -> None:
                write(file, constant("constant", turn / 20), units=CHAT)
                scorer.reload()

            run_around(scorer, reload)

        units = pipeline_of(scorer).units
        poll(lambda: not units.earlier_samplers(), deadline_s=30, what="the earlier books to be forgotten")
        assert inner(scorer) == {"constant": {"scored": 20}}


def traffic(scorer: OnlineScorer, over: threading.Event) -> list[threading.Thread]:
    """Run chains on three threads until ``over`` is set."""
    chain, config = rag(), {"callbacks": [scorer.handler]}

    def ask() -> None:
        while not over.is_set():
            chain.invoke(QUESTION, config=config)

    threads = [start_daemon(ask, "test-traffic") for _ in range(3)]
    return [thread for thread in threads if thread is not None]


def traffic_over_otlp(scorer: OnlineScorer, over: threading.Event) -> list[threading.Thread]:
    """Send each trace in two requests, the model call first, until ``over`` is set."""
    spans = receivers_of(scorer).otlp_spans(Units(idle_timeout=0))

    def send() -> None:
        for number in count(1):
            root = a_wire_span(trace=number, **TEXTS)
            spans.accept(taken([a_wire_span("chat", trace=number, parent=root, **TEXTS)]))
            if over.wait(0.001):
                spans.accept(taken([root]))
                return
            spans.accept(taken([root]))

    thread = start_daemon(send, "test-traffic")
    return [] if thread is None else [thread]

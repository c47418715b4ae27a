"""A configuration file that is read again: the changes, the configuration of open units, and books that balance."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain_core.runnables import RunnableLambda
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.capture.otlp.builders import a_wire_span, taken
from tests.live import QUESTION, Trace, a_trace, identity_holds, rag, run_rag
from tests.servers.openai_api import OpenAIServer
from tests.servers.server import poll
from tests.wiring.constant_metrics import Constant, Gated

from spanscore import ConfigurationError, OnlineScorer, ScoringSpanProcessor
from spanscore.config import Sampling, Units
from spanscore.core.threads import start_daemon
from spanscore.pipeline.evaluation import Evaluation
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.service.lifetime import describe_outcomes

CONSTANT, GATED, CONVERSATION = (
    f"tests.wiring.constant_metrics:{name}" for name in ("Constant", "Gated", "Conversation")
)
APPROVES = '{"reason": "fine", "verdict": 1}'
CRITIC = {"aspect_critic": {"name": "polite", "definition": "Is it polite?"}}


def constant(name: str = "constant", value: float = 1.0) -> dict[str, Any]:
    return {CONSTANT: {"name": name, "value": value}}


def write(file: Path, *metrics: Any, **settings: Any) -> Path:
    file.write_text(yaml.safe_dump({"metrics": [*metrics] or [constant()], **settings}))
    return file


class Soon(threading.Event):
    """The end of a pipeline. A wait for it, as between two checks of the file, takes a fortieth of the time."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else timeout / 40)


@contextmanager
def made_of(file: Path, trace: Trace | None = None, **overrides: Any) -> Iterator[OnlineScorer]:
    """Yield a scorer of a file; shut down at the end."""
    overrides.setdefault("meter_provider", MeterProvider(metric_readers=[InMemoryMetricReader()]))
    scorer = OnlineScorer.from_config(file, tracer_provider=(trace or a_trace()).provider, **overrides)
    pipeline_of(scorer).ended = Soon()
    try:
        yield scorer
    finally:
        scorer.shutdown(timeout=2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "spanscore.yaml")


def run_around(scorer: OnlineScorer, work: Callable[[], object]) -> None:
    """Run a chain, and do the work in the middle of it."""
    chain = RunnableLambda(lambda question: (work(), question)[1]) | rag()
    chain.invoke(QUESTION, config={"callbacks": [scorer.handler]})
    assert scorer.flush(10)


def read_counters(reader: InMemoryMetricReader) -> dict[tuple[str, str], float]:
    """(Name, attributes) → value of every counter and of every histogram's count."""
    data: Any = reader.get_metrics_data()
    metrics = [metric for of in data.resource_metrics for scope in of.scope_metrics for metric in scope.metrics]
    return {
        (metric.name, str(sorted((point.attributes or {}).items()))): getattr(
            point, "count", getattr(point, "value", 0)
        )
        for metric in metrics
        if getattr(metric.data, "is_monotonic", True) and not type(metric.data).__name__.startswith("Gauge")
        for point in metric.data.data_points
    }


# --- new units ------------------------------------------------------------------------------------------------------


def test_rates_metrics_and_rules_hold_for_units_that_begin_later(file: Path) -> None:
    with made_of(write(file, constant("kept"), constant("left_out"))) as scorer:
        run_rag(scorer, 2)
        write(file, constant("kept"), constant("added"), sampling={"rates": {"kept": 0.0}, "rate": 1.0})
        result = scorer.reload()
        run_rag(scorer, 3)
        status = scorer.status()

    assert (result.changed, result.after_restart) == (("sampling.rates", "metrics"), ())
    assert status.outcomes == {
        "kept": {"scored": 2, "not_sampled": 3},
        "added": {"scored": 3},
        "left_out": {"scored": 2},
    }
    assert status.eligible == {"kept": 5, "added": 3, "left_out": 2}


def test_a_metric_that_is_removed_before_its_first_unit_is_in_no_count(file: Path) -> None:
    with made_of(write(file, constant("left_out"))) as scorer:
        write(file, constant("added"))
        scorer.reload()
        run_rag(scorer)

        assert identity_holds(scorer)
        assert [*describe_outcomes(scorer.status())] == ["added: eligible 1: scored 1"]


def test_a_rule_of_the_new_file_reads_metadata_that_no_rule_read_before(file: Path) -> None:
    with made_of(write(file, sampling={"rate": 0.0})) as scorer:
        run_rag(scorer)
        write(file, sampling={"rate": 0.0, "rules": [{"when": {"metadata": {"tier": "gold"}}, "rate": 1.0}]})
        scorer.reload()
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler], "metadata": {"tier": "gold"}})
        assert scorer.flush(10)

        assert scorer.status().outcomes == {"constant": {"not_sampled": 1, "scored": 1}}
        assert {rule.name: rule.taken for rule in scorer.preview().rules} == {"base": 0, "rule_1": 1}


def test_a_rate_that_was_0_takes_the_very_next_root(file: Path) -> None:
    """Ids and decisions of future roots are drawn ahead."""
    with made_of(write(file, sampling={"rate": 0.0})) as scorer:
        run_rag(scorer, 5)
        write(file, sampling={"rate": 1.0})
        scorer.reload()
        run_rag(scorer, 5)

        assert scorer.status().outcomes == {"constant": {"not_sampled": 5, "scored": 5}}


def test_books_balance_and_counters_never_go_back_under_traffic(file: Path) -> None:
    variants: list[tuple[list[Any], dict[str, Any]]] = [
        ([constant("one"), constant("two")], {}),
        ([constant("two", 0.5)], {"sampling": {"rate": 0.5}}),
        (
            [constant("three"), constant("one", 0.25)],
            {"sampling": {"rules": [{"when": {"status": "ok"}, "rate": 0.7}]}},
        ),
    ]
    over, reader, looks = threading.Event(), InMemoryMetricReader(), list[str]()
    with made_of(write(file, *variants[0][0]), meter_provider=MeterProvider(metric_readers=[reader])) as scorer:
        chain, config = rag(), {"callbacks": [scorer.handler]}

        def traffic() -> None:
            while not over.is_set():
                chain.invoke(QUESTION, config=config)

        def look() -> None:
            while not over.is_set():
                looks.append(str(scorer.status()))

        run_rag(scorer)
        threads = [*(start_daemon(traffic, "test-traffic") for _ in range(3)), start_daemon(look, "test-status")]
        counters = read_counters(reader)
        for turn in range(9):
            metrics, settings = variants[turn % 3]
            write(file, *metrics, **settings)
            scorer.reload()
            before, counters = counters, read_counters(reader)
            assert {key: value for key, value in before.items() if counters.get(key, -1) < value} == {}
        over.set()
        for thread in threads:
            assert thread is not None
            thread.join()
        assert scorer.flush(30)
        status = scorer.status()

        assert identity_holds(scorer)
    assert looks
    assert {*status.pending.values()} == {0}
    assert sum(status.eligible.values()) >= status.units  # each unit is eligible for one metric or more
    assert max(status.eligible.values()) <= status.units


# --- open units -----------------------------------------------------------------------------------------------------


def test_a_run_keeps_the_metrics_and_rates_of_its_start(file: Path) -> None:
    with made_of(write(file, constant("before"))) as scorer:

        def reload() -> None:
            write(file, constant("after"), sampling={"rate": 0.0})
            scorer.reload()

        run_around(scorer, reload)
        assert scorer.status().outcomes == {"after": {}, "before": {"scored": 1}}
        run_rag(scorer)

        assert scorer.status().outcomes == {"after": {"not_sampled": 1}, "before": {"scored": 1}}
        assert identity_holds(scorer)


def test_a_run_that_ends_while_its_end_was_not_read_keeps_its_metrics(file: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with made_of(write(file, constant("before"), units={"also": [{"kind": "chat"}]})) as scorer:
        run_rag(scorer)
        line = pipeline_of(scorer)
        new = line.check([Constant(name="after")], line.settings)
        waiting = RunnableLambda(lambda question: (begun.set(), go_on.wait(20), question)[2]) | rag()
        config = {"callbacks": [scorer.handler]}
        thread = start_daemon(lambda: waiting.invoke(QUESTION, config=config), "test-run")
        assert begun.wait(20)

        def end_run_and_change() -> None:
            assert thread is not None
            go_on.set()
            thread.join()
            line.change(new)

        assert line.span_thread.call(end_run_and_change, 30)
        assert scorer.flush(10)

        assert scorer.status().outcomes == {"after": {}, "before": {"scored": 2}}
        assert {state.metric: state.outcomes for state in scorer.status().inner} == scorer.status().outcomes


def test_a_run_across_two_reloads_keeps_the_first_configuration(file: Path) -> None:
    with made_of(write(file, constant("first"))) as scorer:

        def reload_twice() -> None:
            for name in ("second", "third"):
                write(file, constant(name))
                scorer.reload()

        run_around(scorer, reload_twice)

        assert scorer.status().outcomes == {"third": {}, "first": {"scored": 1}}


def test_a_run_that_was_not_sampled_at_its_start_stays_unsampled(file: Path) -> None:
    with made_of(write(file, constant("before"), sampling={"rate": 0.0})) as scorer:

        def reload() -> None:
            write(file, constant("after"), sampling={"rate": 1.0})
            scorer.reload()

        run_around(scorer, reload)
        status = scorer.status()

        assert status.outcomes == {"after": {}, "before": {"not_sampled": 1}}
        assert identity_holds(scorer)


def test_a_unit_that_is_being_scored_is_scored_by_its_metric(file: Path) -> None:
    Gated.gate.clear()
    Gated.begun.clear()
    with made_of(write(file, {GATED: {"name": "gated"}})) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert Gated.begun.wait(10)
        write(file, constant("after"))
        scorer.reload()
        pending = scorer.status().pending
        Gated.gate.set()
        assert scorer.flush(10)

        assert pending == {"after": 0, "gated": 1}
        assert scorer.status().outcomes == {"after": {}, "gated": {"scored": 1}}


def test_a_metric_that_reads_another_metrics_score_finds_it_after_a_reload(file: Path) -> None:
    """The rules of the start decide, even if their condition metric is left out now."""
    Gated.gate.clear()
    Gated.begun.clear()
    rule = {"when": {"score": {"metric": "gated", "below": 0.5}}, "rate": 1.0}
    low = {GATED: {"name": "gated", "value": 0.0}}
    with made_of(
        write(file, low, constant("read"), sampling={"rate": 0.0, "rates": {"gated": 1.0}, "rules": [rule]})
    ) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert Gated.begun.wait(10)
        write(file, constant("after"))
        scorer.reload()
        Gated.gate.set()
        assert scorer.flush(10)

        assert scorer.status().outcomes == {"after": {}, "gated": {"scored": 1}, "read": {"scored": 1}}


def test_a_span_of_another_instrumentation_keeps_the_metrics_of_its_start(file: Path) -> None:
    trace = a_trace()
    with made_of(write(file, constant("before")), trace) as scorer:
        trace.provider.add_span_processor(ScoringSpanProcessor(scorer))
        tracer = trace.provider.get_tracer("app")
        told = '[{"role": "assistant", "parts": [{"type": "text", "content": "Paris"}]}]'
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": told}
        with tracer.start_as_current_span("invoke_agent", attributes=attributes):
            write(file, constant("after"))
            scorer.reload()
        assert scorer.flush(10)
        with tracer.start_as_current_span("invoke_agent", attributes=attributes):
            pass
        assert scorer.flush(10)

        assert scorer.status().outcomes == {"after": {"scored": 1}, "before": {"scored": 1}}


def test_a_trace_that_arrives_in_parts_keeps_the_metrics_of_its_first_span(file: Path) -> None:
    with made_of(write(file, constant("before"))) as scorer:
        spans = receivers_of(scorer).otlp_spans(Units(idle_timeout=100.0))
        root = a_wire_span(trace=1)
        spans.accept(taken([a_wire_span("chat", trace=1, parent=root)]))
        assert pipeline_of(scorer).span_thread.call(lambda: None, 10)
        write(file, constant("after"), sampling={"rate": 0.0})
        scorer.reload()
        spans.accept(taken([root, a_wire_span(trace=2)]))
        pipeline_of(scorer).span_thread.call(lambda: spans.drain(0), 10)
        assert scorer.flush(10)
        eligible = scorer.status().eligible

    assert eligible == {"after": 1, "before": 1}


# --- judges, budgets, alerts ----------------------------------------------------------------------------------------


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with OpenAIServer(lambda _: APPROVES) as server:
        yield server


def test_another_judge_is_named_with_its_evaluator_version_and_begins_a_new_mean(
    file: Path, provider: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spanscore")
    judged = {"base_url": provider.url, "api_key_env": "OPENAI_API_KEY", "structured": "json"}
    with made_of(write(file, CRITIC, judge={"model": "openai:small", **judged})) as scorer:
        run_rag(scorer, 2)
        write(file, CRITIC, judge={"model": "openai:large", **judged})
        result = scorer.reload()
        mean = scorer.status().means["polite"]
        run_rag(scorer)
        status = scorer.status()

    ((metric, (before, after)),) = result.evaluator_versions.items()
    assert (metric, before.split("/")[1], after.split("/")[1]) == ("polite", "small", "large")
    assert (status.evaluator_version, status.judges) == ({"polite": after}, {"polite": "large"})
    assert (mean, status.means["polite"] is not None) == (None, True)
    assert status.outcomes == {"polite": {"scored": 3}}
    assert [body["model"] for body in provider.requests] == ["small", "small", "large"]
    assert status.reloads is not None
    assert [(change.metric, change.before, change.after) for change in status.reloads.evaluator_changes] == [
        ("polite", before, after)
    ]
    assert f"polite: evaluator version {before} → {after} at " in " ".join(caplog.messages)
    assert f"polite: evaluator version {before} → {after} at " in " ".join(str(status).split())


def test_money_that_was_spent_in_the_window_counts_against_a_changed_budget(file: Path, provider: OpenAIServer) -> None:
    judged = {"model": "openai:m", "base_url": provider.url, "api_key_env": "OPENAI_API_KEY", "structured": "json"}

    def budgeted(calls: int) -> Path:
        return write(file, CRITIC, judge={**judged, "budget": [{"calls": calls, "per": "30d"}]})

    with made_of(budgeted(10)) as scorer:
        run_rag(scorer, 2)
        budgeted(2)
        scorer.reload()
        run_rag(scorer, 3)
        spent_out = scorer.status()
        budgeted(4)
        scorer.reload()
        run_rag(scorer, 2)
        status = scorer.status()

    assert [(state.spent, state.limit) for state in spent_out.budgets] == [(2.0, 2.0)]
    assert len(provider.requests) == 4
    assert [(state.spent, state.limit) for state in status.budgets] == [(4.0, 4.0)]
    assert sum(status.outcomes["polite"].values()) == 7


def test_a_second_judge_is_added_by_a_reload(file: Path, provider: OpenAIServer) -> None:
    judged = {"model": "openai:m", "base_url": provider.url, "api_key_env": "OPENAI_API_KEY", "structured": "json"}
    with made_of(write(file, CRITIC, judge=judged)) as scorer:
        run_rag(scorer)
        shadowed = {"aspect_critic": {**CRITIC["aspect_critic"], "shadow": "openai:other"}}
        write(file, shadowed, judge=judged)
        scorer.reload()
        run_rag(scorer)
        (shadow,) = scorer.status().shadows

    assert (shadow.eligible, shadow.outcomes, shadow.compared.pairs) == (1, {"scored": 1}, 1)


def test_alerts_are_checked_against_the_evaluator_versions_of_the_new_file(file: Path) -> None:
    with made_of(file) as scorer:
        write(file, alerts={"constant": {"threshold": 0.5, "evaluator_version": "another"}})
        with pytest.raises(ConfigurationError, match=r"alerts\.constant\.evaluator_version: 'another'"):
            scorer.reload()
        write(file, alerts={"constant": {"threshold": 0.5}})

        assert scorer.reload().changed == ("alerts",)


# --- wrong files, other keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("metrics: [exact_match]\nsampling: {rate: 3}\nlimits: {workers: none}", ["sampling.rate", "limits.workers"]),
        ("metrics: [exact_mach]", ["exact_mach", "exact_match"]),
        ("metrics: [exact_match", ["spanscore.yaml"]),
        (
            "metrics: [exact_match]\njudge: {budget: [{usd: 1, per: 1h, metric: nonesuch}]}",
            ["judge.budget", "nonesuch"],
        ),
    ],
    ids=["values", "a metric", "no YAML", "a budget"],
)
def test_a_wrong_file_changes_nothing_and_is_named_in_one_line(file: Path, text: str, named: list[str]) -> None:
    with made_of(file) as scorer:
        file.write_text(text)
        with pytest.raises(ConfigurationError) as raised:
            scorer.reload()
        run_rag(scorer)
        status = scorer.status()

    assert all(name in str(raised.value) for name in named)
    assert "\n" not in str(raised.value)
    assert status.outcomes == {"constant": {"scored": 1}}
    assert status.reloads is not None
    assert status.reloads.fault == str(raised.value)


def test_keys_that_need_a_restart_are_named_and_the_others_are_applied(file: Path) -> None:
    with made_of(file) as scorer:
        workers = pipeline_of(scorer).settings.limits.workers
        write(file, sampling={"rate": 0.0, "key": "other"}, limits={"workers": 3}, service_name="app")
        result = scorer.reload()
        run_rag(scorer)
        again = scorer.reload()

        assert (result.changed, {*result.after_restart}) == (
            ("sampling.rate",),
            {"sampling.key", "limits.workers", "service_name"},
        )
        assert (again.changed, {*again.after_restart}) == ((), {*result.after_restart})
        assert pipeline_of(scorer).settings.limits.workers == workers
        assert scorer.status().outcomes == {"constant": {"not_sampled": 1}}
        assert "after a restart:" in str(scorer.status())


def test_metrics_of_conversations_keep_their_configuration(file: Path) -> None:
    def talked(value: float) -> dict[str, Any]:
        return {CONVERSATION: {"name": "talked", "value": value, "per": "session"}}

    with made_of(write(file, constant(), talked(1.0))) as scorer:
        write(file, constant(), talked(0.5), sampling={"rate": 0.5})
        result = scorer.reload()

        assert result.after_restart == ("metrics with per: session",)
        assert scorer.status().rates == {"constant": (0.5, 0.5), "talked": (1.0, 1.0)}
        assert result.evaluator_versions == {}


def test_overrides_stay_in_force(file: Path) -> None:
    with made_of(file, sampling=Sampling(rate=0.0)) as scorer:
        write(file, constant("other"), sampling={"rate": 1.0})
        scorer.reload()
        run_rag(scorer)

        assert scorer.status().outcomes == {"other": {"not_sampled": 1}}


def test_another_file_takes_the_place_of_the_first(file: Path, tmp_path: Path) -> None:
    with made_of(file) as scorer:
        scorer.reload(write(tmp_path / "other.yaml", constant("other")))
        write(tmp_path / "other.yaml", constant("third"))
        scorer.reload()
        run_rag(scorer)

        assert scorer.status().outcomes == {"third": {"scored": 1}}


def test_a_scorer_without_a_file_names_the_remedy() -> None:
    scorer = OnlineScorer([Gated()], tracer_provider=a_trace().provider)

    with pytest.raises(ConfigurationError, match="from_config"):
        scorer.reload()


# --- the file -------------------------------------------------------------------------------------------------------


def test_a_file_that_is_replaced_behind_a_symbolic_link_is_read(tmp_path: Path) -> None:
    """So Kubernetes replaces the files of a ConfigMap."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "spanscore.yaml", constant(name), reload=True)
    (tmp_path / "data").symlink_to("first")
    (tmp_path / "spanscore.yaml").symlink_to("data/spanscore.yaml")
    with made_of(tmp_path / "spanscore.yaml") as scorer:
        run_rag(scorer)
        (tmp_path / "new").symlink_to("second")
        (tmp_path / "new").rename(tmp_path / "data")
        poll(lambda: "second" in scorer.status().rates, deadline_s=30, what="the changed file to be read")


def test_a_wrong_file_is_logged_once_and_the_corrected_one_is_read_by_itself(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with made_of(write(file, reload=True)) as scorer:
        run_rag(scorer)
        file.write_text("metrics: [exact_mach]\n")
        poll(lambda: scorer.status().reloads.fault, deadline_s=30, what="the wrong file to be read")
        write(file, constant("other"), reload=True)
        poll(lambda: scorer.status().reloads.fault == "", deadline_s=30, what="the corrected file to be read")

        lines = [message for message in caplog.messages if "was not reloaded" in message]
        assert len(lines) == 1
        assert "other" in scorer.status().rates


# --- life -----------------------------------------------------------------------------------------------------------


def test_reloads_during_a_shutdown_change_no_book(file: Path) -> None:
    with made_of(file) as scorer:
        run_rag(scorer, 3)
        shutting_down = start_daemon(lambda: scorer.shutdown(5), "test-shutdown")
        refused: list[ConfigurationError] = []
        while not refused:
            write(file, constant("other"))
            try:
                scorer.reload()
            except ConfigurationError as error:
                refused.append(error)
        assert shutting_down is not None
        shutting_down.join()

        assert "shut down" in str(refused[0])
        assert scorer.status().outcomes["constant"] == {"scored": 3}
        assert identity_holds(scorer)


def test_two_threads_reload_at_once(file: Path) -> None:
    with made_of(file) as scorer:
        write(file, constant("other"))
        results: list[Any] = []
        threads = [start_daemon(lambda: results.append(scorer.reload()), "test-reload") for _ in range(4)]
        for thread in threads:
            assert thread is not None
            thread.join()

        assert sorted(result.changed for result in results) == [(), (), (), ("metrics",)]


def test_thirty_reloads_leave_nothing_behind(file: Path) -> None:
    with made_of(file) as scorer:
        evaluations: list[weakref.ref[Evaluation]] = []
        for turn in range(30):
            write(file, constant("constant", turn / 30))
            scorer.reload()
            run_rag(scorer)
            evaluations.append(weakref.ref(pipeline_of(scorer).scoring.now.evaluation))

        def left() -> int:
            gc.collect()
            return sum(reference() is not None for reference in evaluations)

        poll(lambda: left() == 1, deadline_s=30, what="the earlier metrics to be forgotten")
        assert scorer.status().outcomes == {"constant": {"scored": 30}}
        assert len(scorer.status().reloads.evaluator_changes) == 10


def test_receivers_call_the_samplers_own_functions(file: Path) -> None:
    """A reload adds no call to the path of a request."""
    with made_of(file) as scorer:
        scorer.reload()
        line = pipeline_of(scorer)

        assert line.intake.sampler.could_sample == line.sampler.could_sample
        assert line.intake.sampler.could_sample_trace == line.sampler.could_sample_trace

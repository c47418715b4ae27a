"""``units.also``: spans below a root are units of their own, with their own samples, scores, counts and means."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from tests.live import ANSWER, CONTEXT, QUESTION, Failing, Grounded, Held, a_line, identity_holds, rag, run_rag

from spanscore import ConfigurationError, OnlineScorer, metric, semconv
from spanscore.config import Limits, Outputs, RemoteScoring, Sampling, Units
from spanscore.core.codecs.otlp import json_line, read_spans
from spanscore.core.span import InnerGroup
from spanscore.outputs.aggregates import labels_of_source
from spanscore.report.spans import Spans
from spanscore.scorer import pipeline_of

RETRIEVER, CHAT = {"kind": "retriever"}, {"kind": "chat"}


@metric
def polite(sample) -> bool:
    return True


@metric
def answered(sample) -> bool:
    return sample.response is not None


def books_hold(scorer: OnlineScorer) -> bool:
    """Eligible = Σ outcomes + pending, for roots and for each entry of inner units."""
    inner = scorer.status().inner
    return identity_holds(scorer) and all(
        state.eligible == sum(state.outcomes.values()) + state.pending for state in inner
    )


def outcomes(scorer: OnlineScorer) -> dict[str, dict[str, int]]:
    return {f"{state.kind} {state.metric}": dict(state.outcomes) for state in scorer.status().inner}


def run(*metrics: Any, runs: int = 1, also: Any = (RETRIEVER, CHAT), **options: Any):
    with a_line(*metrics, units=Units(also=also), **options) as (scorer, trace):
        run_rag(scorer, runs)
        return scorer, scorer.status(), trace


def test_each_span_is_scored_by_its_own_input_and_output():
    seen: list[Any] = []

    @metric
    def noted(sample) -> bool:
        seen.append((sample.user_input, sample.response, sample.retrieved_contexts))
        return True

    run(noted)

    root, retriever, chat = seen
    assert root == (QUESTION, ANSWER, [CONTEXT])
    assert retriever == (QUESTION, None, [CONTEXT])
    assert chat[0].startswith("Use [Document(")
    assert chat[1:] == (ANSWER, None)


def test_roots_and_inner_units_are_counted_apart():
    scorer, status, _ = run(answered, runs=3)

    assert status.eligible == {"answered": 3}
    assert status.outcomes == {"answered": {"scored": 3}}
    assert outcomes(scorer) == {"retriever answered": {"scored": 3}, "chat answered": {"scored": 3}}
    assert [state.mean[0] for state in status.inner] == [0.0, 1.0]
    assert status.means["answered"][0] == 1.0
    assert "retriever: answered 0.00" in str(status)


def test_scores_are_on_the_span_itself_and_below_it():
    _, _, trace = run(answered, also=[RETRIEVER])

    (retriever,) = trace.named("retrieval")
    (evaluation,) = [e for e in trace.evaluations if e.parent.span_id == retriever.context.span_id]
    assert retriever.attributes["spanscore.verdict"] == "fail"
    assert retriever.attributes[semconv.EVALUATION_SOURCE] == "inner"
    assert evaluation.attributes[semconv.UNIT_KIND] == "retriever"
    assert trace.roots[0].attributes["spanscore.verdict"] == "pass"


def test_a_named_entry_holds_for_its_spans_alone():
    also = [{"kind": "retriever", "name": "Library", "metrics": ["polite"]}, RETRIEVER, {"kind": "chat", "name": "gpt"}]

    _, status, _ = run(polite, answered, also=also)

    assert [(state.kind, state.name, state.metric, state.eligible) for state in status.inner] == [
        ("retriever", "Library", "polite", 1),
        ("retriever", None, "polite", 0),
        ("retriever", None, "answered", 0),
        ("chat", "gpt", "polite", 0),
        ("chat", "gpt", "answered", 0),
    ]


def test_a_tool_has_its_arguments_and_its_result():
    seen: list[Any] = []

    @metric
    def noted(sample) -> bool:
        seen.append(sample)
        return True

    @tool
    def search(query: str, limit: int) -> str:
        """Search."""
        return f"{limit} results for {query}"

    chain = RunnableLambda(lambda question: search.invoke({"query": question, "limit": 2}))
    with a_line(noted, units=Units(also=[{"kind": "tool", "name": "search"}])) as (scorer, _):
        chain.invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(10)

    of_tool = seen[-1]
    assert of_tool.user_input == f'{{"query":"{QUESTION}","limit":2}}'
    assert of_tool.response == f"2 results for {QUESTION}"


def test_sums_have_the_kind_and_the_source_so_that_queries_of_roots_leave_them_out():
    scorer, _, _ = run(polite, also=[{"kind": "retriever", "name": "Library"}])

    telemetry = pipeline_of(scorer).telemetry
    own = set(labels_of_source(InnerGroup("retriever", "Library")))
    assert own == {
        ("spanscore.evaluation.source", "inner"),
        ("spanscore.unit.kind", "retriever"),
        ("spanscore.unit.name", "Library"),
    }
    scored = {labels: units for labels, units in telemetry.sums(semconv.SCORED).items() if units}
    assert sorted(own <= set(labels) for labels in scored) == [False, True]
    assert sum(units for labels, units in telemetry.eligible().items() if own <= set(labels)) == 1


def test_nothing_is_inside_unless_it_is_configured():
    scorer, status, trace = run(answered, also=())

    assert status.inner == ()
    assert pipeline_of(scorer).units.inner == {}  # no span is looked at
    assert len(trace.evaluations) == 1


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_each_span_is_sampled_by_its_own_rate(rate):
    scorer, status, _ = run(polite, runs=40, also=[{"kind": "retriever", "rate": rate}])

    (state,) = status.inner
    scored = state.outcomes.get("scored", 0)
    assert books_hold(scorer)
    assert (state.eligible, status.outcomes["polite"]["scored"]) == (40, 40)
    assert scored == {0.0: 0, 1.0: 40}.get(rate, scored)
    assert rate != 0.5 or 5 < scored < 35


def test_a_root_that_was_not_recorded_has_no_inner_units():
    _, status, _ = run(polite, runs=40, sampling=Sampling(rate=0.5), also=[RETRIEVER])

    (state,) = status.inner
    assert state.eligible == state.outcomes["scored"] == status.outcomes["polite"]["scored"]
    assert 0 < state.eligible < 40


def test_an_error_of_a_metric_is_an_outcome_of_the_inner_unit():
    scorer, status, trace = run(Failing(RuntimeError("no")))

    assert books_hold(scorer)
    assert status.inner[0].outcomes == {"missing_field": 1}
    assert len(trace.named("retrieval")) == 1


def test_the_reason_is_the_latest_one_also_if_its_outcome_was_there_before():
    ends = iter([RuntimeError("no"), None, RuntimeError("no")])

    @metric
    def fickle(sample) -> bool | None:
        if sample.response is not None:
            return True
        if (end := next(ends)) is not None:
            raise end
        return None

    with a_line(fickle, units=Units(also=(RETRIEVER,))) as (scorer, _):
        reasons = []
        for _ in range(3):
            run_rag(scorer)
            reasons.append(scorer.status().inner[0].reason.partition(":")[0])

    assert reasons == ["metric_error", "no_value", "metric_error"]


def test_a_redactor_that_fails_leaves_no_inner_unit_without_an_outcome():
    def broken(text: str) -> str:
        raise RuntimeError("no")

    scorer, status, trace = run(polite, redactor=broken)

    assert books_hold(scorer)
    assert [state.outcomes for state in status.inner] == [{"redaction_error": 1}] * 2
    assert CONTEXT not in trace.text()
    assert ANSWER not in trace.text()


def test_a_full_queue_is_an_outcome_of_the_inner_unit_and_its_span_is_exported():
    go_on = threading.Event()
    with a_line(Held(go_on), units=Units(also=[RETRIEVER]), limits=Limits(queue_size=1)) as (scorer, trace):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        go_on.set()
        assert scorer.flush(10)
        (state,) = scorer.status().inner

        assert state.outcomes == {"queue_full": 1}
        assert books_hold(scorer)
        assert trace.named("retrieval")[0].attributes["spanscore.outcome.held"] == "queue_full"


def test_a_shutdown_ends_open_inner_units_and_exports_each_span_once():
    go_on = threading.Event()
    with a_line(Held(go_on), units=Units(also=[CHAT]), limits=Limits(timeout=30)) as (scorer, trace):
        for _ in range(3):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        scorer.shutdown(timeout=1)

    assert books_hold(scorer)
    assert not any(state.pending for state in scorer.status().inner)
    assert len(trace.named("chat")) == len(trace.named("retrieval")) == 3


def test_a_unit_is_explained_with_its_inner_units():
    scorer, _, trace = run(polite)

    explained = scorer.explain(trace.roots[0].context.trace_id)

    assert [entry["kind"] for entry in explained] == ["workflow", "retriever", "chat"]
    assert [entry["metrics"]["polite"]["outcome"] for entry in explained] == ["scored"] * 3


def test_without_spans_held_the_scores_are_on_evaluation_spans():
    _, status, trace = run(polite, outputs=Outputs(span=False), also=[RETRIEVER])

    (retriever,) = trace.named("retrieval")
    assert status.inner[0].outcomes == {"scored": 1}
    assert semconv.VERDICT not in retriever.attributes
    assert [e for e in trace.evaluations if e.parent.span_id == retriever.context.span_id]


def test_an_unknown_metric_is_an_error():
    with pytest.raises(
        ConfigurationError, match=r"units\.also names 'polit' for retriever, which is not a metric .* polite"
    ):
        OnlineScorer([polite], units=Units(also=[{"kind": "retriever", "metrics": ["polit"]}]))


def test_a_repeated_entry_is_an_error():
    with pytest.raises(ConfigurationError, match=r"has retriever twice; the first matching entry holds"):
        OnlineScorer([polite], units=Units(also=[RETRIEVER, RETRIEVER]))


def test_another_process_gets_no_inner_units(tmp_path):
    (tmp_path / "token").write_text("a-token-of-some-length")
    remote = RemoteScoring(endpoint="http://127.0.0.1:1/", token_file=str(tmp_path / "token"))

    with pytest.raises(ConfigurationError, match=r"units\.also cannot be combined with remote_scoring: a unit is sent"):
        OnlineScorer([polite], units=Units(also=[RETRIEVER]), remote_scoring=remote)


def test_a_report_has_rows_of_their_own_for_inner_units():
    _, _, trace = run(
        answered, Grounded(), also=[{"kind": "chat", "name": "GenericFakeChatModel"}, {**RETRIEVER, "rate": 0}]
    )

    rows = Spans.read(read_spans(json_line([span]) for span in trace.spans)).rows()

    assert Counter((row.metric, row.outcome) for row in rows) == {
        ("answered", "scored"): 1,
        ("grounded", "scored"): 1,
        ("answered (chat GenericFakeChatModel)", "scored"): 1,
        ("grounded (chat GenericFakeChatModel)", "missing_field"): 1,
    }
    (retriever,) = trace.named("retrieval")
    assert (retriever.attributes[semconv.UNIT_KIND], retriever.attributes[semconv.STATUS]) == (
        "retriever",
        "not_sampled",
    )

"""``explain``: why a request was scored or was not, in plain values."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from tests.live import QUESTION, Failing, Grounded, Held, a_line, model, rag
from tests.servers.server import poll

from spanscore import ConfigurationError
from spanscore.config import Rule, RuleCondition, Sampling
from spanscore.pipeline.sampling import probability, threshold

GOLD = Rule(rate=0.0, name="gold", when=RuleCondition(metadata={"tier": "gold"}))


def invoked(scorer: Any, **config: Any) -> str:
    """Run a chain and return its trace's id."""
    run: list[Any] = []
    with_ids = rag().with_listeners(on_start=lambda one: run.append(one.id))
    with_ids.invoke(QUESTION, config={"callbacks": [scorer.handler], **config})
    found: str = scorer.trace_id(run[0])
    return found


def of_metric(scorer: Any, trace_id: str | int, name: str = "grounded") -> dict[str, Any]:
    (unit,) = scorer.explain(trace_id)
    explained: dict[str, Any] = unit["metrics"][name]
    return explained


def test_a_scored_unit_says_what_chose_it_and_how_it_ended() -> None:
    rules = [
        Rule(rate=1.0, name="gold", when=RuleCondition(metadata={"tier": "gold"})),
        Rule(rate=0.9, name="any", when=RuleCondition(workflow="RunnableSequence")),
    ]
    with a_line(Grounded(), Grounded("dear"), sampling=Sampling(rules=rules, rates={"grounded": 0.2, "dear": 0.1})) as (
        scorer,
        exported,
    ):
        trace_id = invoked(scorer, metadata={"tier": "gold"})
        assert scorer.flush(5)
        (unit,) = scorer.explain(trace_id)

    explained = unit["metrics"]["grounded"]
    root = exported.roots[0].context
    assert (unit["trace_id"], unit["span_id"]) == (trace_id, f"{root.span_id:016x}")
    assert (explained["rates"], explained["rule"], explained["outcome"]) == (
        {"base": 0.2, "gold": 1.0, "any": 0.9},
        "gold",
        "scored",
    )
    assert (explained["probability"], explained["threshold"], explained["head_sampling_rate"]) == (1.0, "0" * 14, 1.0)
    assert len(explained["randomness"]) == 14
    assert unit["metrics"]["dear"]["rates"]["base"] == 0.1


@pytest.mark.parametrize("rules", [[], [GOLD]])
def test_a_unit_that_was_not_sampled_says_which_threshold_it_missed(rules: list[Rule]) -> None:
    with a_line(Grounded(), sampling=Sampling(rate=1e-9, rules=rules)) as (scorer, _):
        trace_id = invoked(scorer, metadata={"tier": "gold"})
        assert scorer.flush(5)

        explained = of_metric(scorer, int(trace_id, 16))

    assert (explained["outcome"], explained["rule"], explained["probability"]) == (
        "not_sampled",
        "base",
        pytest.approx(1e-9, rel=1e-6),
    )
    assert explained["randomness"] < explained["threshold_met"] == explained["threshold"] == f"{threshold(1e-9):014x}"


@pytest.mark.parametrize(
    "condition", [{"status": "error"}, {"any_error": True}, {"min_tool_calls": 3}, {"slower_than": 100.0}]
)
def test_a_rule_that_did_not_match_is_not_reported_of_a_unit_that_was_not_sampled(condition: dict[str, Any]) -> None:
    rule = Rule(rate=1e-9, name="another", when=RuleCondition(**condition))
    with a_line(Grounded(), sampling=Sampling(rate=0.0, rules=[rule])) as (scorer, _):
        trace_id = invoked(scorer)
        assert scorer.flush(5)

        explained = of_metric(scorer, trace_id)

    assert (explained["rates"], explained["rule"]) == ({"base": 0.0}, "base")


def test_a_rule_on_a_score_is_not_reported_of_the_metric_that_gives_it() -> None:
    rules = [Rule(rate=1.0, name="low", when=RuleCondition(score={"metric": "first", "below": 0.5}))]
    with a_line(
        Grounded("first"), Grounded(), sampling=Sampling(rates={"first": 1.0, "grounded": 0.5}, rules=rules)
    ) as (scorer, _):
        trace_id = invoked(scorer)
        assert scorer.flush(5)

        assert of_metric(scorer, trace_id, "first")["rates"] == {"base": 1.0}


def test_below_a_remote_parent_both_thresholds_are_reported() -> None:
    state = TraceState([("ot", f"th:{threshold(0.1):014x}")])
    parent = SpanContext(1 << 100, 7, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    with a_line(
        Grounded(), sampling=Sampling(rules=[Rule(rate=1.0, name="all", when=RuleCondition(status="ok"))], rate=0.5)
    ) as (scorer, _):
        token = context.attach(trace.set_span_in_context(NonRecordingSpan(parent)))
        invoked(scorer)
        context.detach(token)
        assert scorer.flush(5)

        explained = of_metric(scorer, 1 << 100)

    assert (explained["threshold_met"], explained["head_sampling_rate"]) == ("0" * 14, pytest.approx(0.1))
    assert probability(int(explained["threshold"], 16)) == explained["probability"] == pytest.approx(0.1)


def test_an_outcome_that_comes_later_is_filled_in() -> None:
    go_on = threading.Event()
    with a_line(Held(go_on)) as (scorer, _):
        trace_id = invoked(scorer)
        poll(lambda: scorer.explain(trace_id), deadline_s=5, what="the unit to close")
        before = of_metric(scorer, trace_id, "held")["outcome"]
        go_on.set()
        assert scorer.flush(5)

        assert (before, of_metric(scorer, trace_id, "held")["outcome"]) == (None, "scored")


def test_a_unit_without_a_score_says_why_and_the_status_leads_to_it() -> None:
    with a_line(Grounded(), Failing(None)) as (scorer, _):
        run: list[Any] = []
        model().with_listeners(on_start=lambda one: run.append(one.id)).invoke(
            QUESTION, config={"callbacks": [scorer.handler]}
        )
        assert scorer.flush(5)
        status, trace_id = scorer.status(), scorer.trace_id(run[0])

        explained = of_metric(scorer, status.traces["grounded missing_field"])

    assert set(status.traces.values()) == {trace_id}
    assert (explained["outcome"], explained["reason"]) == ("missing_field", status.reasons["grounded missing_field"])
    assert f"scorer.explain('{trace_id}')" in str(status)


def test_a_score_has_no_reason() -> None:
    with a_line(Grounded()) as (scorer, _):
        trace_id = invoked(scorer)
        assert scorer.flush(5)

        assert of_metric(scorer, trace_id)["reason"] is None
        assert "explain" not in str(scorer.status())


def test_it_is_plain_and_quotes_nothing() -> None:
    with a_line(Grounded(), sampling=Sampling(rules=[GOLD])) as (scorer, _):
        trace_id = invoked(scorer, metadata={"tier": "gold", "secret": "Bletchley"})
        assert scorer.flush(5)

        explained = json.dumps(scorer.explain(trace_id))

    assert not [text for text in ("Paris", "Bletchley", "tier") if text in explained]


def test_of_a_trace_that_is_not_known_nothing_is_reported() -> None:
    with a_line(Grounded()) as (scorer, _):
        assert scorer.explain("0" * 31 + "1") == []


@pytest.mark.parametrize("trace_id", ["1", "x" * 32, "", -1, 1 << 128, None])
def test_what_is_no_trace_id_is_refused(trace_id: Any) -> None:
    with (
        a_line(Grounded()) as (scorer, _),
        pytest.raises(ConfigurationError, match="is not a trace id; allowed are 32 hex digits, or the number"),
    ):
        scorer.explain(trace_id)


def test_the_root_of_a_unit_that_was_not_sampled_names_the_rule_that_matched() -> None:
    known, inside = (
        Rule(rate=1e-8, name="gold", when=RuleCondition(metadata={"tier": "gold"})),
        Rule(rate=1e-9, name="all", when=RuleCondition(slower_than=0)),
    )
    with a_line(
        Grounded(),
        sampling=Sampling(
            rate=0.0, rules=[known, inside, Rule(rate=1e-7, name="errors", when=RuleCondition(any_error=True))]
        ),
    ) as (
        scorer,
        t,
    ):
        for tier in ("gold", "free"):
            invoked(scorer, metadata={"tier": tier})
        assert scorer.flush(5)

    assert [root.attributes.get("spanscore.sampling.rule") for root in t.roots] == ["gold", "all"]


def test_a_unit_that_was_decided_on_at_its_end_names_it_too() -> None:
    rules = [
        Rule(rate=1.0, name="slow", when=RuleCondition(slower_than=100)),
        Rule(rate=1e-9, name="gold", when=RuleCondition(metadata={"tier": "gold"})),
    ]
    with a_line(Grounded(), sampling=Sampling(rate=0.0, rules=rules)) as (scorer, t):
        for tier in ("gold", "free"):
            invoked(scorer, metadata={"tier": tier})
        assert scorer.flush(5)

    assert [root.attributes.get("spanscore.sampling.rule") for root in t.roots] == ["gold", None]


def test_a_unit_whose_spans_are_there_names_its_root_and_the_place_of_each_part() -> None:
    with a_line(Grounded()) as (scorer, exported):
        trace_id = invoked(scorer)
        assert scorer.flush(5)
        (unit,) = scorer.explain(trace_id)

    assert (unit["root"], unit["kind"], unit["change"]) == (exported.roots[0].name, "workflow", [])
    assert {one["claimed_by"] for one in unit["spans"]} == {"genai"}
    places = [(part["field"], part["attribute"], part["text"]) for part in unit["parts"]]
    assert places == [
        ("user_input", "input.value", None),
        ("response", "output.value", None),
        ("retrieved_contexts", "gen_ai.retrieval.documents", None),
    ]
    assert unit["metrics"]["grounded"]["outcome"] == "scored"


def test_a_unit_is_explained_when_its_outcomes_are_there_and_not_before() -> None:
    go_on = threading.Event()
    with a_line(Held(go_on)) as (scorer, _):
        trace_id = invoked(scorer)
        poll(lambda: scorer.explain(trace_id), deadline_s=5, what="the unit to close")
        before = scorer.explain(trace_id)[0]
        go_on.set()
        assert scorer.flush(5)

        assert ("parts" in before, "parts" in scorer.explain(trace_id)[0]) == (False, True)

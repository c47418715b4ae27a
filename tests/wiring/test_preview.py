"""``scorer.preview()``: the units that rules and rates would sample among the last closed ones, and the cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from tests.capture.processor.traced import ask, scoring
from tests.judges.models import Answers
from tests.live import QUESTION, Grounded, a_line, rag

from spanscore import ConfigurationError, Rule, SingleTurnSample, semconv
from spanscore.config import Budget, Capture, JudgeSettings, RuleCondition, Sampling
from spanscore.judges import judge
from spanscore.metrics import AspectCritic
from spanscore.wiring.preview import SamplingPreview

GOOD = '{"reason": "r", "verdict": 1}'
COST = (10 * 0.15 + 2 * 0.60) / 1e6
GOLD = Rule(rate=1.0, name="gold", when=RuleCondition(metadata={"tier": "gold"}))


def invoked(scorer: Any, times: int = 1, chain: Any = None, **metadata: Any) -> None:
    """Run a chain so often, and wait for the last."""
    for _ in range(times):
        (chain or rag()).invoke(QUESTION, config={"callbacks": [scorer.handler], "metadata": metadata})
    assert scorer.flush(5)


def harmless(**more: Any) -> AspectCritic:
    return AspectCritic(judge(Answers(GOOD), **more), name="harmless", definition="Is it harmless?")


def by_name(previews: Any) -> dict[str, SamplingPreview]:
    return {one.name: one for one in previews}


def test_what_is_in_force_takes_what_was_taken() -> None:
    with a_line(sample_rate=0.4) as (scorer, trace):
        invoked(scorer, 60)

        preview = scorer.preview()

        taken = {
            f"{span.context.trace_id:032x}" for span in trace.roots if semconv.SCORE + "grounded" in span.attributes
        }
        assert (preview.units, preview.taken) == (60, scorer.status().outcomes["grounded"]["scored"])
    assert preview.taken == len(taken) > 0
    assert {unit.trace_id for unit in preview.named} <= taken
    assert preview.metrics[0].expected == pytest.approx(24)


def test_a_larger_rate_takes_what_a_smaller_one_takes_and_more() -> None:
    with a_line(sample_rate=0.1) as (scorer, _):
        invoked(scorer, 40)

        taken = [scorer.preview([], rate=rate).taken for rate in (0.0, 0.1, 0.5, 1.0)]

    assert taken == sorted(taken)
    assert (taken[0], taken[-1]) == (0, 40)


def test_a_rate_of_one_metric_stands_beside_that_of_all() -> None:
    with a_line(Grounded(), Grounded("dear")) as (scorer, _):
        invoked(scorer, 5)

        metrics = by_name(scorer.preview(rate=0.0, rates={"dear": 1.0}).metrics)

    assert {name: one.taken for name, one in metrics.items()} == {"grounded": 0, "dear": 5}


def test_a_new_rule_is_tried_on_what_is_known_of_units_that_nobody_followed() -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    rules = [
        GOLD,
        Rule(rate=1.0, name="failed", when=RuleCondition(status="error")),
        Rule(rate=1.0, name="tools", when=RuleCondition(min_tool_calls=1)),
    ]
    with a_line(sample_rate=1e-9, capture=Capture(metadata=["tier"])) as (scorer, _):
        invoked(scorer, 3, tier="gold")
        invoked(scorer, 4, tier="free")
        with pytest.raises(ValueError, match="France"):
            invoked(scorer, chain=rag() | RunnableLambda(fail))
        assert scorer.flush(5)

        preview = scorer.preview(rules)

    found = by_name(preview.rules)
    assert {name: (one.matched, one.taken, one.unknown) for name, one in found.items()} == {
        "base": (8, 0, 0),
        "gold": (3, 3, 0),
        "failed": (1, 1, 0),
        "tools": (0, 0, 8),
    }
    assert {unit.why for unit in preview.named} == {"gold 1", "failed 1"}
    unknown = "tools: it is unknown whether the rule matches 8 units"
    assert any(unknown in note and "excluded them" in note for note in preview.notes)


def test_a_rule_on_metadata_that_nobody_listed_says_how_to_have_them_kept() -> None:
    with a_line() as (scorer, _):
        invoked(scorer, 2, tier="gold")

        preview = scorer.preview([GOLD], rate=0.0)

    assert (by_name(preview.rules)["gold"].unknown, preview.taken) == (2, 0)
    assert any("metadata tier are not kept; capture.metadata: [tier] keeps them" in note for note in preview.notes)


def test_a_rule_on_scores_says_that_they_are_not_known() -> None:
    low = Rule(rate=1.0, name="low", when=RuleCondition(score={"metric": "grounded", "below": 0.5}))
    with a_line() as (scorer, _):
        invoked(scorer)

        preview = scorer.preview([low], rate=0.0)

    assert by_name(preview.rules)["low"].unknown == 1
    assert any("their score of grounded, which it reads, is unknown" in note for note in preview.notes)


def test_units_of_others_that_were_left_out_when_they_began_are_tried_on_rates_alone() -> None:
    with scoring(sample_rate=1e-9) as (scorer, _, provider):
        for number in range(10):
            ask(provider.get_tracer("opentelemetry.util.genai.handler"), f"agent {number}")
        assert scorer.flush(5)

        everything, ruled = (
            scorer.preview(rate=1.0),
            scorer.preview([Rule(rate=1.0, name="slow", when=RuleCondition(slower_than=0.0001))]),
        )

    assert (everything.units, everything.taken) == (10, 10)
    assert everything.named[0].began is None
    assert (by_name(ruled.rules)["slow"].unknown, ruled.taken) == (10, 0)


def test_a_unit_whose_first_scores_decide_on_the_rest_is_counted_once() -> None:
    low = Rule(rate=0.5, name="low", when=RuleCondition(score={"metric": "short", "below": 0.5}))
    with a_line(
        Grounded("short"), Grounded("dear"), sampling=Sampling(rules=[low], rates={"short": 1.0, "dear": 0.5})
    ) as (scorer, _):
        invoked(scorer, 3)

        assert scorer.preview().units == 3


def test_what_was_submitted_to_be_scored_is_not_among_them() -> None:
    with a_line() as (scorer, _):
        scorer.submit(SingleTurnSample(user_input=QUESTION, response="Paris", retrieved_contexts=["Paris"]))
        assert scorer.flush(5)

        assert scorer.preview().units == 0


def test_a_cost_is_what_the_judge_has_cost_per_unit_so_far() -> None:
    with a_line(harmless(prices={"answers-1": (0.15, 0.60)}), Grounded(), sample_rate=0.5) as (scorer, _):
        invoked(scorer, 30)

        preview = scorer.preview(rate=1.0)

    costs = by_name(preview.metrics)
    assert (costs["harmless"].calls, costs["harmless"].tokens) == (pytest.approx(30), pytest.approx(360))
    assert costs["harmless"].usd == pytest.approx(30 * COST)
    assert (costs["grounded"].calls, costs["grounded"].usd) == (0, 0)
    assert preview.rules[0].usd == pytest.approx(30 * COST)


def test_a_cost_that_nobody_knows_is_none() -> None:
    with a_line(harmless(), sample_rate=1e-9) as (scorer, _):
        invoked(scorer, 2)
        without_request = scorer.preview(rate=1.0).metrics[0]
    with a_line(harmless()) as (scorer, _):
        invoked(scorer, 2)
        unpriced = scorer.preview().metrics[0]

    assert (without_request.taken, without_request.calls, without_request.tokens, without_request.usd) == (
        2,
        None,
        None,
        None,
    )
    assert (unpriced.calls, unpriced.usd) == (2, None)


def test_a_second_judges_cost_is_not_reported_as_the_metrics_own() -> None:
    stern = AspectCritic(judge(Answers(GOOD)), name="harmless", definition="Is it kind?")
    with a_line(harmless(), judge=JudgeSettings(shadows=[stern])) as (scorer, _):
        invoked(scorer, 2)

        assert scorer.preview().metrics[0].calls is None


def test_a_budget_is_said_to_have_no_say() -> None:
    with a_line(harmless(prices={"answers": (0.15, 0.60)}), budget=[Budget(usd=1, per="1h")]) as (scorer, _):
        assert any("budgets may lower the rates" in note for note in scorer.preview().notes)


def test_nothing_of_content_or_of_metadata_is_reported() -> None:
    planted = "PLANTED-7731"
    with a_line(capture=Capture(content=True, metadata=["tier"])) as (scorer, _):
        chain = rag(f"Paris {planted}")
        config = {"callbacks": [scorer.handler], "metadata": {"tier": planted, "other": planted}, "tags": [planted]}
        chain.invoke(f"Where? {planted}", config=config)
        assert scorer.flush(5)

        preview = scorer.preview([Rule(rate=1.0, name="tier", when=RuleCondition(metadata={"tier": planted}))])

    assert preview.taken == 1
    assert planted not in f"{preview}{json.dumps(preview.as_json())}"


def test_it_is_printed_as_tables_that_fit_and_as_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with a_line(sample_rate=0.5) as (scorer, _):
        invoked(scorer, 12)
        preview = scorer.preview([Rule(rate=0.9, name="slow", when=RuleCondition(slower_than=1e-6))])

    result = str(preview)
    assert f"{preview.taken} of 12 units would be scored; no judge was asked" in result
    assert all(one in result for one in ("by rule", "by metric", "some of them", "slow"))
    assert max(map(len, result.splitlines())) <= 80
    plain = json.loads(json.dumps(preview.as_json()))
    assert plain["rules"][1]["name"] == "slow"
    assert plain["named"][0]["taken"] == {"grounded": {"rule": "slow", "probability": pytest.approx(0.9)}}


REFUSED: dict[str, dict[str, Any]] = {
    "allowed is 0 to 1": {"rate": 1.5},
    "names 'unknown', which is not a metric of this scorer": {"rates": {"unknown": 0.5}},
    r"rules has 'slow'; write \[Rule\(rate=0\.5, when=RuleCondition\(": {"rules": ["slow"]},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_rate_or_rule_is_refused(message: str) -> None:
    with a_line() as (scorer, _), pytest.raises(ConfigurationError, match=message):
        scorer.preview(**REFUSED[message])


def test_a_scorer_that_has_seen_nothing_tells_so() -> None:
    with a_line() as (scorer, _):
        preview = scorer.preview()

    assert (preview.units, preview.taken, preview.named) == (0, 0, ())
    assert "0 of 0 units" in str(preview)

"""Rules use the known facts of a unit: unknown facts count as a match, and rules never see the random draw."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore import ConfigurationError
from spanscore.config import Rule, RuleCondition
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.sampling import RateSampler, matches

KEY = UnitKey(1, 2)
LOW = {"metric": "short", "below": 0.5}
MATCHING: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "any error": ({"any_error": True}, {"any_error": True}, {"any_error": False}),
    "tool calls": ({"min_tool_calls": 3}, {"tool_calls": 3}, {"tool_calls": 2}),
    "a model": ({"model": "gpt-4o"}, {"models": {"gpt-4o", "small"}}, {"models": {"gpt-4o-mini"}}),
    "a low score": ({"score": LOW}, {"scores": {"short": 0.49}}, {"scores": {"short": 0.5}}),
    "no score": ({"score": LOW}, {"scores": {"short": 0.0}}, {"scores": {"short": None}}),
    "no score at all": ({"score": LOW}, {"scores": {"short": 0.0}}, {"scores": {}}),
}
"""Name → a rule's condition, facts that match, facts that do not."""


@pytest.mark.parametrize("what", MATCHING)
def test_a_rule_matches_by_what_is_known_of_the_unit(what: str) -> None:
    condition, matching, other = MATCHING[what]
    rule = Rule(rate=1.0, name="rule", when=RuleCondition(**condition))

    assert [matches(rule, SamplingContext(KEY, **known)) for known in (matching, other)] == [True, False]


@pytest.mark.parametrize("what", MATCHING)
def test_what_is_not_known_yet_counts_as_a_match(what: str) -> None:
    condition, _, _ = MATCHING[what]
    sampler = RateSampler({"m": 0.0}, rules=[Rule(rate=1.0, name="rule", when=RuleCondition(**condition))])

    assert sampler.could_sample(SamplingContext(KEY))


def test_the_largest_matching_rate_wins() -> None:
    rules = [
        Rule(rate=0.3, name="agents", when=RuleCondition(min_tool_calls=1)),
        Rule(rate=0.7, name="errors", when=RuleCondition(any_error=True)),
    ]
    sampler = RateSampler({"m": 0.05}, rules=rules)

    seen = [SamplingContext(KEY, any_error=failed, tool_calls=calls) for failed in (False, True) for calls in (0, 1)]
    found = [sampler.decide(facts, "m") for facts in seen]

    assert [(one.rule, one.probability) for one in found] == [
        ("base", pytest.approx(0.05)),
        ("agents", pytest.approx(0.3)),
        ("errors", pytest.approx(0.7)),
        ("errors", pytest.approx(0.7)),
    ]
    assert found[3].rates == (("base", 0.05), ("agents", 0.3), ("errors", 0.7))


@pytest.mark.parametrize(
    "score", [{"metric": "short"}, {"metric": "short", "below": 0}, {**LOW, "above": 1}, {"metric": 1, "below": 0.5}]
)
def test_a_score_that_is_no_condition_is_refused(score: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"sampling\.rules\.when\.score\.(metric|below|above): "):
        RuleCondition(score=score)  # type: ignore[arg-type]

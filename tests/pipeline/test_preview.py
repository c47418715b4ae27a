"""Previewed rules and rates sample like the sampler; unknown facts of a unit are counted as such."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.config import Rule, RuleCondition
from spanscore.core.span import SamplingContext, UnitKey, UpstreamDecision
from spanscore.errors import ConfigurationError
from spanscore.pipeline.sampling import PreviewTally, RateSampler, SamplingCount, threshold

SLOW = Rule(rate=0.5, name="slow", when=RuleCondition(slower_than=1.0))
GOLD = Rule(rate=0.9, name="gold", when=RuleCondition(metadata={"tier": "gold"}))
LOW = Rule(rate=1.0, name="low", when=RuleCondition(score={"metric": "screen", "below": 0.5}))
ALL = {
    "name": "bot",
    "status": "ok",
    "duration_ns": 2_000_000_000,
    "metadata": {},
    "any_error": False,
    "tool_calls": 0,
    "models": frozenset(),
    "scores": {},
}


def facts(number: int, **known: Any) -> SamplingContext:
    return SamplingContext(UnitKey(number, 1), is_trace_root=True, **{**ALL, **known})


def counted(tally: PreviewTally, *units: SamplingContext) -> PreviewTally:
    for unit in units:
        tally.add(unit)
    return tally


def test_a_unit_is_taken_where_the_sampler_takes_it_and_by_the_largest_rate() -> None:
    rates, rules = {"one": 0.1, "other": 0.7}, [SLOW, GOLD]
    units = [facts(number, metadata={"tier": "gold"} if number % 4 == 0 else {}) for number in range(1_000)]
    sampler = RateSampler(rates, rules=rules)

    tally = counted(PreviewTally(rates, rules), *units)

    taken = {metric: sum(sampler.decide(unit, metric).take for unit in units) for metric in rates}
    assert {metric: count.taken for metric, count in tally.metrics.items()} == taken
    by_rule = [(unit, decision) for unit in units if (decision := sampler.decide(unit, "one")).take]
    assert tally.rules["gold"].taken == sum(decision.rule == "gold" for _, decision in by_rule)
    assert (tally.rules["gold"].matched, tally.rules["base"].matched) == (250, 1_000)
    assert tally.scores["gold", "one"] + tally.scores["slow", "one"] == taken["one"]


def test_what_is_expected_is_the_sum_of_the_probabilities_of_what_each_rule_takes() -> None:
    units = [facts(number, duration_ns=2_000_000_000 if number < 300 else 0) for number in range(1_000)]

    tally = counted(PreviewTally({"one": 0.1, "other": 0.02}, [SLOW]), *units)

    expected = {name: pytest.approx(count.expected) for name, count in tally.rules.items()}
    assert expected == {
        "base": 70.0,
        "slow": 150.0,
    }  # both metrics share a unit's random draw, so the larger rate decides
    assert {name: pytest.approx(count.expected) for name, count in tally.metrics.items()} == {
        "one": 220.0,
        "other": 164.0,
    }
    assert abs(tally.rules["slow"].taken - 150) < 5 * (300 * 0.25) ** 0.5


def test_a_rule_that_another_rate_exceeds_takes_nothing() -> None:
    tally = counted(PreviewTally({"one": 1.0}, [SLOW]), facts(1), facts(2))

    assert tally.rules["slow"] == SamplingCount(matched=2, taken=0, expected=0.0)


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        (SLOW, "duration_ns"),
        (GOLD, "metadata"),
        (Rule(rate=1.0, name="named", when=RuleCondition(workflow="bot")), "name"),
        (Rule(rate=1.0, name="fails", when=RuleCondition(status="error")), "status"),
        (Rule(rate=1.0, name="went well", when=RuleCondition(status="ok")), "status"),
        (Rule(rate=1.0, name="inside", when=RuleCondition(any_error=True)), "any_error"),
        (Rule(rate=1.0, name="tools", when=RuleCondition(min_tool_calls=1)), "tool_calls"),
        (Rule(rate=1.0, name="model", when=RuleCondition(model="gpt-x")), "models"),
        (LOW, "scores"),
    ],
)
def test_a_rule_that_looks_at_what_is_not_known_takes_nothing_and_says_so(rule: Rule, lacks: str) -> None:
    tally = counted(PreviewTally({"one": 0.0}, [rule]), *(facts(number, **{lacks: None}) for number in range(20)))

    assert tally.rules[rule.name] == SamplingCount(unknown=20)
    assert tally.taken == 0


def test_a_rule_of_which_another_condition_does_not_hold_is_known_not_to_match() -> None:
    rule = Rule(rate=1.0, name="slow gold", when=RuleCondition(slower_than=5.0, metadata={"tier": "gold"}))

    tally = counted(PreviewTally({"one": 0.0}, [rule]), facts(1, metadata=None))

    assert tally.rules["slow gold"] == SamplingCount()


def test_a_rule_on_metadata_that_units_would_not_show_is_not_known_to_match() -> None:
    tally = counted(PreviewTally({"one": 0.0}, [GOLD], metadata=["region"]), facts(1))

    assert tally.rules["gold"].unknown == 1
    assert tally.unlisted(GOLD) == ("tier",)


def test_a_score_that_is_known_decides_and_another_does_not() -> None:
    tally = PreviewTally({"one": 0.0}, [LOW])

    counted(tally, facts(1, scores={"screen": 0.2}), facts(2, scores={"screen": 0.8}), facts(3, scores={"else": 0.2}))

    assert tally.rules["low"] == SamplingCount(matched=1, taken=1, expected=1.0, unknown=1)


def test_what_was_decided_elsewhere_has_no_say() -> None:
    tally = PreviewTally({"one": 0.0})

    tally.add(facts(1, decided={"one": UpstreamDecision(True, threshold(1.0), "base")}))

    assert tally.taken == 0


def test_what_upstream_left_out_is_in_the_probability_and_not_in_what_is_expected_of_the_rest() -> None:
    tally = PreviewTally({"one": 0.5}, head_sampling_rate=0.1)

    counted(tally, *map(facts, range(200)))

    assert tally.metrics["one"].expected == pytest.approx(100.0)
    assert [unit.taken["one"] for unit in tally.named()] == [("base", pytest.approx(0.05))] * 10


def test_ten_units_are_named_each_rules_among_them_in_the_order_in_which_they_began() -> None:
    tally = PreviewTally({"one": 0.8}, [GOLD])
    for number in range(500):
        tally.add(facts(number, metadata={"tier": "gold"} if number > 480 else {}), 1_000 - number)

    named = tally.named()

    assert len({unit.key for unit in named}) == 10
    assert {rule for unit in named for rule, _ in unit.taken.values()} == {"base", "gold"}
    assert [unit.began_ns for unit in named] == sorted(unit.began_ns or 0 for unit in named)


def test_two_rules_of_one_name_are_reported_as_one() -> None:
    tally = PreviewTally(
        {"one": 0.0},
        [
            Rule(rate=1.0, name="both", when=RuleCondition(workflow="bot")),
            Rule(rate=0.5, name="both", when=RuleCondition(slower_than=1.0)),
        ],
    )

    counted(tally, facts(1), facts(2, name="other"))

    assert tally.rules["both"].matched == 2


@pytest.mark.parametrize("rates", [{"one": 1.5}, {"one": -0.1}])
def test_a_rate_that_is_none_is_refused(rates: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="allowed is 0 to 1"):
        PreviewTally(rates)


@given(
    st.lists(st.tuples(st.integers(0, 2**64), st.booleans(), st.integers(0, 3)), max_size=40),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_every_unit_that_is_taken_is_taken_by_one_rule_per_metric(
    drawn: list[tuple[int, bool, int]], base: float, rate: float
) -> None:
    tally = PreviewTally(
        {"one": base, "other": 0.3}, [Rule(rate=rate, name="gold", when=RuleCondition(metadata={"tier": "gold"}))]
    )

    for number, gold, seconds in drawn:
        tally.add(facts(number, metadata={"tier": "gold"} if gold else {}, duration_ns=seconds * 10**9))

    for metric, count in tally.metrics.items():
        assert sum(units for (_, one), units in tally.scores.items() if one == metric) == count.taken
        assert count.taken <= tally.taken <= tally.units == count.matched
    assert all(0 <= count.taken <= count.matched for count in tally.rules.values())

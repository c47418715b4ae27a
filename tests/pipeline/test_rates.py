"""STATISTICS: the OpenTelemetry rule, upstream samplers, nesting, rules."""

import secrets
from random import Random

import pytest

from spanscore.config import Rule, RuleCondition
from spanscore.core.job import BASE
from spanscore.core.span import SamplingContext, UnitKey, UpstreamDecision
from spanscore.errors import ConfigurationError
from spanscore.pipeline.sampling import RateSampler, decode_threshold, probability, threshold

EVERY = RuleCondition()


def facts(trace_id, span_id=1, **more):
    return SamplingContext(key=UnitKey(trace_id, span_id), **{"is_trace_root": True, **more})


def trace_ids(n, seed=7):
    random = Random(seed)
    return [random.getrandbits(128) for _ in range(n)]


@pytest.mark.parametrize(("rate", "th"), [(1 / 3, "aaaaaaaaaaaaac"), (0.01, "fd70a3d70a3d71"), (1.0, "0"), (0.5, "8")])
def test_a_rate_becomes_the_threshold_of_the_specification(rate, th):
    assert decode_threshold(th) == threshold(rate)


def test_a_sampler_that_states_its_share_and_decides_by_its_own_hash_costs_no_units() -> None:
    """The Collector's tail sampler does so for traces without ``ot``: three quarters of them have an R below its T."""
    sampler, random = RateSampler({"m": 0.5}), Random(7)
    arriving = [facts(random.getrandbits(128), trace_state="ot=th:c") for _ in range(4_000)]

    decisions = [sampler.decide(unit, "m") for unit in arriving]

    assert sum(decision.take for decision in decisions) == pytest.approx(2_000, abs=120)
    assert {round(decision.probability, 12) for decision in decisions} == {0.125}


def test_probability_is_derived_from_the_threshold():
    assert probability(decode_threshold("fd70a")) == pytest.approx(0.010000228, abs=1e-9)
    assert probability(threshold(1.0)) == 1.0


@pytest.mark.parametrize("text", ["", "g0", "123456789012345", "-8", "+8", "0x1", "1_0", " 8", "\u0668"])
def test_what_is_no_threshold_is_none(text):
    assert decode_threshold(text) is None


def test_a_smaller_rate_takes_a_subset():
    sampler = RateSampler({"small": 0.05, "large": 0.2})

    violations = sum(
        sampler.decide(facts(t), "small").take and not sampler.decide(facts(t), "large").take for t in trace_ids(20_000)
    )

    assert violations == 0


@pytest.mark.parametrize("upstream", [1.0, 0.1, 0.01, 0.002])
def test_behind_the_sdks_ratio_sampler_the_share_is_the_rate(upstream):
    random = Random(3)
    low = [random.getrandbits(64) << 64 | int(random.random() * upstream * 2**64) for _ in range(20_000)]
    sampler = RateSampler({"m": 0.1})

    share = sum(sampler.decide(facts(t), "m").take for t in low) / len(low)

    assert 0.09 <= share <= 0.11


def test_behind_a_consistent_sampler_the_rate_is_of_what_arrives():
    th = f"{threshold(0.1):014x}"
    arriving = [t for t in trace_ids(200_000) if (t & (2**56 - 1)) >= threshold(0.1)]
    sampler = RateSampler({"m": 0.1})

    taken = [sampler.decide(facts(t, trace_state=f"x=y,ot=th:{th}"), "m") for t in arriving]

    assert 0.09 <= sum(d.take for d in taken) / len(taken) <= 0.11
    assert taken[0].probability == pytest.approx(0.01, rel=1e-9)


def test_explicit_randomness_is_used_where_th_is_present():
    sampler = RateSampler({"m": 0.5})

    high = sampler.decide(facts(0, trace_state="ot=th:0;rv:ffffffffffffff"), "m")
    low = sampler.decide(facts(2**128 - 1, trace_state="ot=th:0;rv:00000000000000"), "m")

    assert (high.take, low.take) == (True, False)


def test_units_under_one_trace_are_sampled_apart():
    sampler = RateSampler({"m": 0.1})

    taken = sum(sampler.decide(facts(42, span, is_trace_root=False), "m").take for span in range(1, 10_001))

    assert 900 <= taken <= 1100


def test_the_traces_own_randomness_does_not_speak_for_a_unit_below_its_root():
    sampler = RateSampler({"m": 0.1})
    state = "ot=th:0;rv:ffffffffffffff"

    taken = sum(sampler.decide(facts(42, s, is_trace_root=False, trace_state=state), "m").take for s in range(1, 1001))

    assert 60 <= taken <= 140


def test_same_facts_same_decision_in_every_process():
    sampler = RateSampler({"m": 0.5})

    decisions = "".join("x" if sampler.decide(facts(t), "m").take else "." for t in trace_ids(32, seed=1))

    assert decisions == "x.xxxx..xxxxx.xx....x.xxxxxx.xx."


def test_another_key_decides_otherwise():
    key = secrets.token_bytes(16)
    one, other = RateSampler({"m": 0.5}), RateSampler({"m": 0.5}, key=key)

    assert any(one.decide(facts(t), "m").take != other.decide(facts(t), "m").take for t in trace_ids(200))


def test_a_rule_raises_the_rate_and_names_itself():
    sampler = RateSampler({"m": 0.0}, rules=[Rule(rate=1.0, name="errors", when=RuleCondition(status="error"))])

    failed = sampler.decide(facts(1, status="error"), "m")

    assert (failed.take, failed.probability, failed.rule) == (True, 1.0, "errors")
    assert not sampler.decide(facts(1, status="unset"), "m").take


def test_what_a_rule_could_still_take_may_be_scored():
    sampler = RateSampler(
        {"m": 0.0}, rules=[Rule(rate=1.0, name="gold", when=RuleCondition(metadata={"tier": "gold"}, status="error"))]
    )

    assert sampler.could_sample(facts(1, metadata={"tier": "gold"}))
    assert not sampler.could_sample(facts(1, metadata={"tier": "free"}))


def test_may_never_rules_out_what_decide_takes():
    sampler = RateSampler(
        {"a": 0.05, "b": 0.2}, rules=[Rule(rate=0.6, name="slow", when=RuleCondition(slower_than=1.0))]
    )

    for t in trace_ids(2_000):
        if any(sampler.decide(facts(t, duration_ns=2 * 10**9), m).take for m in ("a", "b")):
            assert sampler.could_sample(facts(t))


def test_what_is_foreseen_of_a_traces_first_span_is_what_may_says():
    sampler = RateSampler({"a": 0.05, "b": 0.2})

    said = [(sampler.could_sample_trace(t.to_bytes(16)), sampler.could_sample(facts(t))) for t in trace_ids(500)]

    assert all(foreseen is may for foreseen, may in said)
    assert {may for _, may in said} == {True, False}
    assert (
        RateSampler({"a": 0.05}, rules=[Rule(rate=0.6, name="slow", when=EVERY)]).could_sample_trace(bytes(16)) is None
    )


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_that_is_none_is_refused_with_its_name(rate):
    with pytest.raises(ConfigurationError, match="faithfulness"):
        RateSampler({"faithfulness": rate})


def test_what_another_process_decided_stands():
    decided = {"harm": UpstreamDecision(True, threshold(0.25), "refunds"), "tone": UpstreamDecision(False, 0, "base")}
    unit = facts(1, decided=decided)
    sampler = RateSampler({"harm": 0.0, "tone": 1.0, "here": 1.0})

    harm = sampler.decide(unit, "harm")

    assert sampler.could_sample(unit)
    assert (harm.take, harm.probability, harm.threshold, harm.rule) == (True, 0.25, threshold(0.25), "refunds")
    assert not sampler.decide(unit, "tone").take
    assert sampler.decide(unit, "here").take  # without a decision so far


def test_of_a_unit_of_which_others_took_nothing_no_metric_takes_anything_at_rate_zero():
    unit = facts(1, decided={"harm": UpstreamDecision(False, 0, "base")})

    assert not RateSampler({"harm": 0.0}).could_sample(unit)


@pytest.mark.parametrize(("base", "named"), [(0.1, "first"), (0.5, BASE)])
def test_of_equal_rates_the_first_is_named_and_a_metrics_own_before_rules(base, named):
    sampler = RateSampler(
        {"m": base},
        rules=[Rule(rate=0.5, name="first", when=EVERY), Rule(rate=0.5, name="second", when=EVERY)],
    )

    assert {sampler.decide(facts(t), "m").rule for t in trace_ids(20)} == {named}

"""Behind a head sampler the scored units represent all traffic: both roots and units with a remote parent."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from spanscore import ConfigurationError
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.monitoring.estimates import interval, mean, moments
from spanscore.pipeline.sampling import RateSampler, probability, threshold

HEAD = 0.1
TH = f"ot=th:{threshold(HEAD):014x}"
QUALITY = {True: 0.7, False: 0.95}
"""Quality of a unit that is its trace's root, and of one below a remote parent."""


def arriving(units: int, *, state: str = TH, seed: int = 11) -> Iterator[tuple[SamplingContext, float]]:
    """Yield the units that a head sampler lets through, every other one the root of its trace, with their qualities."""
    random = Random(seed)
    for number in range(units):
        is_root, trace_id = number % 2 == 0, random.getrandbits(128)
        y = float(random.random() < QUALITY[is_root])
        if trace_id % 2**56 >= threshold(HEAD):
            yield SamplingContext(UnitKey(trace_id, number + 1), is_root, state), y


def scored(sampler: RateSampler, units: int, **more: str) -> list[tuple[bool, float, float]]:
    """Return whether it is a root, quality and probability of each unit that is taken."""
    decided = ((facts, y, sampler.decide(facts, "m")) for facts, y in arriving(units, **more))
    return [(facts.is_trace_root, y, d.probability) for facts, y, d in decided if d.take]


def test_roots_and_children_under_a_head_sampler_give_the_mean_of_all_traffic() -> None:
    units = 300_000

    found = scored(RateSampler({"m": 0.2}), units)

    sums, truth = moments((y, p) for _, y, p in found), sum(QUALITY.values()) / 2
    low, high = interval(sums)
    weights = {kind: sum(1 / p for is_root, _, p in found if is_root is kind) for kind in QUALITY}
    assert abs(mean(sums) - truth) <= 0.01
    assert low <= truth <= high
    assert weights == pytest.approx(dict.fromkeys(QUALITY, units / 2), rel=0.05)


def test_a_unit_below_a_remote_parent_is_chosen_by_our_rate_and_weighs_as_both_say() -> None:
    sampler = RateSampler({"m": 0.5})
    facts = SamplingContext(UnitKey(1, 2), trace_state=TH)

    decision = sampler.decide(facts, "m")

    assert decision.probability == pytest.approx(0.05, rel=1e-9)
    assert decision.probability == probability(decision.threshold)
    assert (decision.met, decision.upstream) == (threshold(0.5), pytest.approx(HEAD))
    assert decision.take is sampler.could_sample(facts) is (decision.randomness >= decision.met)


def test_where_no_th_is_the_configured_probability_stands_for_it() -> None:
    sampler, units = RateSampler({"m": 0.5}, head_sampling_rate=HEAD), 100_000

    found = scored(sampler, units, state="")

    assert {p for _, _, p in found} == {probability(sampler.decide(SamplingContext(UnitKey(1, 2)), "m").threshold)}
    assert sum(1 / p for _, _, p in found) == pytest.approx(units, rel=0.05)


def test_a_th_outranks_the_configured_probability() -> None:
    sampler = RateSampler({"m": 1.0}, head_sampling_rate=0.5)

    assert sampler.decide(SamplingContext(UnitKey(1, 2), trace_state=TH), "m").upstream == pytest.approx(HEAD)


def test_a_weight_is_finite_however_small_both_probabilities_are() -> None:
    sampler = RateSampler({"m": 1e-9}, head_sampling_rate=1e-16)

    assert sampler.decide(SamplingContext(UnitKey(1, 2)), "m").probability > 0


@pytest.mark.parametrize("upstream", [0.0, -0.1, 1.1, float("nan")])
def test_an_upstream_probability_that_is_none_is_refused(upstream: float) -> None:
    with pytest.raises(
        ConfigurationError, match=r"sampling\.head_sampling_rate\.default: must be (greater than 0|1 or less)"
    ):
        RateSampler({"m": 1.0}, head_sampling_rate=upstream)

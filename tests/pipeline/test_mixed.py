"""Units with and without ``ot=th`` in one process: the settings that give both their true weight, and the count of each."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from spanscore import ConfigurationError
from spanscore.config import HeadSampling, Sampling
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.monitoring.estimates import interval, mean, moments
from spanscore.pipeline.sampling import RateSampler, threshold
from spanscore.testing import make_span, make_unit

HEAD = 0.1
TH = f"ot=th:{threshold(HEAD):014x}"
QUALITY = {"front": 0.95, "search": 0.7}
"""The service behind a sampler that writes ``th``, and the one behind a sampler that writes none."""
TRUTH = sum(QUALITY.values()) / 2
BY_SERVICE = HeadSampling(by_service={"search": HEAD}, default=1)


def arriving(units: int, seed: int = 5) -> Iterator[tuple[SamplingContext, float]]:
    """Yield a tenth of the units of two services, half of the traffic each, with their qualities."""
    random = Random(seed)
    for number in range(units):
        service = "front" if number % 2 else "search"
        trace_id, y = random.getrandbits(128), float(random.random() < QUALITY[service])
        if trace_id % 2**56 >= threshold(HEAD):
            state = TH if service == "front" else ""
            yield SamplingContext(UnitKey(trace_id, number + 1), True, state, service_name=service), y


def scored(upstream: Any, units: int = 200_000) -> list[tuple[float, float]]:
    sampler = RateSampler({"m": 0.5}, head_sampling_rate=upstream)
    decided = ((sampler.decide(facts, "m"), y) for facts, y in arriving(units))
    return [(y, decision.probability) for decision, y in decided if decision.take]


def test_a_silent_sampler_beside_one_that_writes_th_moves_the_mean() -> None:
    sums = moments(scored(1.0))

    low, high = interval(sums)
    assert mean(sums) == pytest.approx(0.928, abs=0.005)
    assert not low <= TRUTH <= high


def test_the_share_of_the_silent_service_gives_the_mean_of_all_traffic() -> None:
    sums = moments(scored(BY_SERVICE))

    low, high = interval(sums)
    assert mean(sums) == pytest.approx(TRUTH, abs=0.01)
    assert low <= TRUTH <= high
    assert sums.w == pytest.approx(200_000, rel=0.05)


def upstream_of(sampler: RateSampler, **facts: Any) -> tuple[float, str]:
    decision = sampler.decide_submitted(SamplingContext(UnitKey(1, 2), **facts), "m")
    return pytest.approx(decision.upstream), decision.upstream_by


def test_a_service_has_its_own_share_and_every_other_one_the_default() -> None:
    sampler = RateSampler(
        {"m": 1.0}, head_sampling_rate=HeadSampling(by_service={"search": 0.1, "mail": 1}, default=0.5)
    )

    assert upstream_of(sampler, service_name="search") == (0.1, "configured")
    assert upstream_of(sampler, service_name="mail") == (1.0, "configured")
    assert upstream_of(sampler, service_name="other") == (0.5, "configured")
    assert upstream_of(sampler) == (0.5, "configured")
    assert upstream_of(sampler, service_name="search", trace_state="ot=th:c") == (0.25, "th")


@pytest.mark.parametrize("given", [1, 1.0, HeadSampling(), HeadSampling(by_service={"search": 0.1}), BY_SERVICE])
def test_a_share_that_nobody_stated_is_unknown(given: Any) -> None:
    sampler = RateSampler({"m": 1.0}, head_sampling_rate=given)

    assert upstream_of(sampler, service_name="other") == (1.0, "unknown")


def test_a_unit_that_names_no_resource_is_of_the_service_of_this_process() -> None:
    sampler = RateSampler({"m": 1.0}, head_sampling_rate=BY_SERVICE, service=lambda: "search")

    assert upstream_of(sampler) == (HEAD, "configured")
    assert upstream_of(sampler, service_name="front") == (1.0, "unknown")


def test_the_service_is_that_of_the_units_resource() -> None:
    named = make_unit(make_span(resource={"service.name": "search"})).facts()

    assert (named.service_name, make_unit(make_span()).facts().service_name) == ("search", None)
    assert make_unit(make_span(resource={})).facts().service_name == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by_service": {"search": 0}}, r"sampling\.head_sampling_rate\.by_service\.search: must be greater than 0"),
        ({"by_service": {"search": "much"}}, r"by_service\.search: is no number \(given: 'much'\)"),
        ({"default": 1.1}, r"sampling\.head_sampling_rate\.default: must be 1 or less \(given: 1\.1\)"),
        ({"search": 0.1}, r"sampling\.head_sampling_rate: has 'search'; write \{by_service: \{search: 0\.1\}"),
        ({"by_service": 0.1}, r"sampling\.head_sampling_rate\.by_service: is no mapping"),
        (True, r"sampling\.head_sampling_rate: is a single value \(given: True\)"),
    ],
)
def test_a_form_that_cannot_be_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Sampling(head_sampling_rate=given)

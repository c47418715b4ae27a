"""Scores of roots and of inner units, weighted by 1/π, give the means of all traffic, by every way of recording a root."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from spanscore.config import Rule, RuleCondition
from spanscore.core.span import InnerGroup, SamplingContext, Unit, UnitKey
from spanscore.monitoring.estimates import Moments, interval, mean, moments
from spanscore.pipeline.sampling import RateSampler, threshold
from spanscore.pipeline.tracker import inner_facts
from spanscore.testing import make_span

GROUP = InnerGroup("retriever")
HEAD = 0.3
UNITS = 40_000
ERROR, GOLD = RuleCondition(status="error"), RuleCondition(metadata={"tier": "gold"})


class Estimates(NamedTuple):
    """The sums of roots and of inner units, and their true means."""

    roots: Moments
    inner: Moments
    root_mean: float
    inner_mean: float
    inner_units: int


def play(sampler: RateSampler, *, state: str = "", head: float = 1.0, seed: int = 5) -> Estimates:
    """Return the estimates of traffic with worse units among its errors, and more inner units in slow roots."""
    random, roots, inner, of_roots, of_inner = Random(seed), list[tuple[float, float]](), [], [], []
    for number in range(UNITS):
        trace_id, failed, gold = random.getrandbits(128), random.random() < 0.2, random.random() < 0.1
        start = SamplingContext(
            UnitKey(trace_id, number + 1), True, state, "rag", metadata={"tier": "gold"} if gold else {}
        )
        y, spans = float(random.random() < (0.4 if failed else 0.9)), 1 + 3 * failed
        ys = [float(random.random() < (0.2 if failed else 0.8)) for _ in range(spans)]
        of_roots.append(y)
        of_inner += ys
        kept = trace_id % 2**56 >= threshold(head) if state else random.random() < head
        if not kept or not sampler.could_sample(start):
            continue
        end = start._replace(
            status="error" if failed else "ok",
            duration_ns=10**9,
            any_error=failed,
            tool_calls=0,
            models=set(),
            scores={},
            conversation_id="",
        )
        decision = sampler.decide(end, "m")
        roots += [(y, decision.probability)] if decision.take else []
        for at, y_inner in enumerate(ys if sampler.records_root(end) else ()):
            span = make_span("retrieval", trace_id=trace_id, span_id=10**9 + 10 * number + at)
            facts = inner_facts(Unit(UnitKey(span.trace_id, span.span_id), (span,), inner=GROUP), end)
            decision = sampler.decide(facts, "m")
            inner += [(y_inner, decision.probability)] if decision.take else []
    return Estimates(
        moments(roots), moments(inner), sum(of_roots) / UNITS, sum(of_inner) / len(of_inner), len(of_inner)
    )


WAYS = {
    "a rate": (RateSampler({"m": 0.3}, inner={GROUP: 0.5}), {}),
    "several metrics": (RateSampler({"m": 0.05, "other": 0.4}, inner={GROUP: 0.5}), {}),
    "a rule on metadata": (
        RateSampler({"m": 0.1}, rules=[Rule(when=GOLD, rate=1.0, name="gold")], inner={GROUP: 0.5}),
        {},
    ),
    "a rule on the end": (
        RateSampler({"m": 0.1}, rules=[Rule(when=ERROR, rate=0.6, name="error")], inner={GROUP: 0.5}),
        {},
    ),
    "ot=th": (
        RateSampler({"m": 0.2}, rules=[Rule(when=ERROR, rate=0.6, name="error")], inner={GROUP: 0.5}),
        {"state": f"ot=th:{threshold(HEAD):014x}", "head": HEAD},
    ),
    "a configured head sampler": (
        RateSampler({"m": 0.5}, head_sampling_rate=HEAD, inner={GROUP: 0.3}),
        {"head": HEAD},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_both_means_are_those_of_all_traffic(way: str) -> None:
    sampler, traffic = WAYS[way]

    found = play(sampler, **traffic)

    for sums, truth in ((found.roots, found.root_mean), (found.inner, found.inner_mean)):
        low, high = interval(sums, level=0.999)
        assert low <= truth <= high
        assert abs(mean(sums) - truth) <= 0.03
    assert found.inner.w == pytest.approx(found.inner_units, rel=0.05)


def test_the_probability_is_that_of_the_root_times_the_own_rate() -> None:
    sampler = RateSampler({"m": 0.5}, rules=[Rule(when=ERROR, rate=0.8, name="error")], inner={GROUP: 0.25})
    around = SamplingContext(UnitKey(7, 8), True, status="ok")
    unit = Unit(UnitKey(7, 9), (make_span("retrieval", trace_id=7, span_id=9),), inner=GROUP)

    decision = sampler.decide(inner_facts(unit, around), "m")

    assert decision.probability == pytest.approx(0.8 * 0.25)
    assert decision.upstream == pytest.approx(0.8)
    assert dict(decision.rates) == {"base": 0.25}


def test_the_draw_of_an_inner_unit_is_independent_of_its_root() -> None:
    sampler = RateSampler({"m": 0.5}, inner={GROUP: 0.5})
    both = roots = inner = 0
    for number in range(20_000):
        around = SamplingContext(UnitKey(number, 1), True, status="ok")
        unit = Unit(UnitKey(number, 2), (make_span("retrieval", trace_id=number, span_id=2),), inner=GROUP)
        takes = sampler.decide(around, "m").take, sampler.decide(inner_facts(unit, around), "m").take
        roots, inner, both = roots + takes[0], inner + takes[1], both + all(takes)

    assert both == pytest.approx(roots * inner / 20_000, rel=0.05)

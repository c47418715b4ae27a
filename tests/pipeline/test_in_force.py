"""Values in force: a unit keeps the value of its start for as long as it is open."""

from __future__ import annotations

from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.in_force import WHOLE_TRACE, SamplerInForce, ValueInForce
from spanscore.pipeline.sampling import RateSampler

ONE, OTHER = UnitKey(1, 1), UnitKey(2, 2)


def test_an_open_unit_keeps_the_value_of_its_start_over_further_changes() -> None:
    value = ValueInForce("first")
    value.change("second", [ONE])
    value.change("third", [ONE, OTHER])

    assert [value.of(ONE), value.of(OTHER), value.of(UnitKey(3, 3)), value.now] == ["first", "second", "third", "third"]


def test_a_value_is_forgotten_with_its_last_unit() -> None:
    value = ValueInForce("first")
    value.change("second", [ONE, OTHER])

    value.change(value.now, [OTHER])
    left = [*value.earlier]
    value.change(value.now, [])

    assert (left, [*value.earlier], value.of(ONE)) == (["first"], [], "second")


def test_a_unit_whose_root_is_found_later_keeps_the_value_of_its_trace() -> None:
    value = ValueInForce("first")
    value.change("second", [UnitKey(1, WHOLE_TRACE)])
    before = value.of(ONE)

    value.change(value.now, [ONE])  # the trace has closed, and its unit is being scored

    assert (before, value.of(ONE), value.of(UnitKey(1, 5))) == ("first", "first", "second")


def test_an_inner_unit_that_is_found_later_has_the_value_of_the_unit_around_it() -> None:
    value, inner = ValueInForce("first"), UnitKey(1, 9)
    value.change("second", [ONE])
    value.join(inner, ONE)
    value.join(UnitKey(2, 9), OTHER)
    joined = value.of(inner), value.of(UnitKey(2, 9))

    value.change(value.now, [inner])  # the unit around it has ended

    assert joined == (value.of(inner), value.of(UnitKey(2, 9))) == ("first", "second")
    assert [*value.earlier] == ["first"]


def facts(trace_id: int) -> SamplingContext:
    return SamplingContext(UnitKey(trace_id, 1), True)


def test_a_root_is_kept_for_each_sampler_that_may_decide_on_it() -> None:
    none, every = RateSampler({"m": 0.0}), RateSampler({"m": 1.0})
    sampler = SamplerInForce(none)

    sampler.use(none, [every])
    kept = sampler.could_sample(facts(1)), sampler.could_sample_trace((1).to_bytes(16))
    sampler.use(none)

    assert kept == (True, True)
    assert (sampler.could_sample(facts(1)), sampler.could_sample_trace((1).to_bytes(16))) == (False, False)

"""Memories of closed units: their outcomes, their spans, the facts that a preview needs, and their keys, all bounded."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from spanscore.config import Rule, RuleCondition
from spanscore.core.score import Outcome
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.decisions import RecentUnit, RecentUnits, RecentUnitSpans, UnitDecider
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.trace_index import ClosedKeys
from spanscore.testing import make_span, make_unit

NOW_NS = 1_700_000_000_000_000_000


def facts(number: int = 1, **known: Any) -> SamplingContext:
    whole = {"name": "bot", "status": "unset", "duration_ns": number, "metadata": {}, "any_error": False}
    return SamplingContext(
        UnitKey(number, 1), **{**whole, "tool_calls": 0, "models": frozenset(), "scores": {}, **known}
    )


def recent(*metadata: str, kept: int = 1_000) -> RecentUnits:
    return RecentUnits(metadata, kept=kept, clock=lambda: NOW_NS)


def test_the_last_units_are_kept_however_they_closed() -> None:
    units = recent(kept=3)

    for number in range(4):
        units.add_recorded(facts(number))
    units.add_unrecorded(facts(4))
    units.add_excluded(facts(5))

    assert [unit.facts.key.trace_id for unit in units.units()] == [3, 4, 5]


def test_of_metadata_the_listed_small_ones_are_kept() -> None:
    units = recent("tier", "level")

    units.add_recorded(facts(metadata={"tier": "gold", "secret": "a password", "level": 3}))

    assert units.units() == [RecentUnit(facts(metadata={"tier": "gold", "level": 3}), NOW_NS)]


def test_a_listed_value_that_may_be_large_makes_the_metadata_unknown_and_is_not_kept() -> None:
    units = recent("tier")

    for value in (["gold"], "x" * 201, object()):
        kept = units.add_unrecorded(facts(metadata={"tier": value}))
        assert kept.metadata == {}  # no rule is reported to have matched by it

    assert [unit.facts.metadata for unit in units.units()] == [None, None, None]


def test_of_a_unit_that_was_not_followed_nothing_below_its_root_is_known() -> None:
    units = recent()

    units.add_unrecorded(facts())

    (unit,) = units.units()
    assert (unit.facts.tool_calls, unit.facts.models, unit.facts.scores) == (None, None, None)
    assert (unit.facts.duration_ns, unit.facts.any_error) == (1, False)


def test_of_a_unit_that_was_left_out_when_it_began_no_time_is_known() -> None:
    units = recent()
    known = SamplingContext(UnitKey(1, 1), is_trace_root=True)

    units.add_excluded(known)

    assert units.units() == [RecentUnit(known, None)]


def test_a_thousand_units_take_half_a_megabyte_whatever_their_metadata_hold() -> None:
    units = recent("tier")
    tracemalloc.start()
    try:
        for number in range(2_000):
            metadata = {"tier": f"tier {number}", "document": f"{number}" * 10_000}
            units.add_recorded(facts(number, metadata=metadata, models={"gpt-x"}))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(units.units()) == 1_000
    assert taken < 1_000_000  # their ids and names, which are there anyway, with it


UNIT = UnitKey(1, 2)


def decisions(kept: int = 1_000, **more: Any) -> UnitDecider:
    return UnitDecider(
        ["one", "other"], RateSampler({"one": 1.0, "other": 0.0}, **more), Ledger(["one", "other"]), kept=kept
    )


def closed(of: UnitDecider, unit: UnitKey = UNIT, **known: Any) -> Any:
    """Let a unit enter and close; return its decisions."""
    of.ledger.enter(unit)
    return of.decide_first(SamplingContext(unit, status="ok", **known))


def outcomes(of: UnitDecider, trace_id: int = 1) -> list[dict[str, str]]:
    return [
        {name: explained["outcome"] for name, explained in unit["metrics"].items()} for unit in of.explain(trace_id)
    ]


def test_the_oldest_unit_is_forgotten_when_there_are_more() -> None:
    remembering = decisions(kept=2)

    for trace_id in (1, 2, 3):
        closed(remembering, UnitKey(trace_id, 1))

    assert [len(remembering.explain(trace_id)) for trace_id in (1, 2, 3)] == [0, 1, 1]


def test_units_of_one_trace_are_distinguished_the_oldest_first() -> None:
    remembering = decisions()

    for span_id in (7, 5):
        closed(remembering, UnitKey(1, span_id))

    assert [unit["span_id"] for unit in remembering.explain(1)] == ["0" * 15 + "7", "0" * 15 + "5"]


def test_an_outcome_that_was_counted_is_not_changed_by_a_second_one() -> None:
    remembering = decisions()
    closed(remembering)

    remembering.settle(UNIT, {"other": Outcome.NOT_SAMPLED})
    remembering.settle_rest(UNIT, Outcome.TIMEOUT)
    remembering.settle_rest(UNIT, Outcome.SHUTDOWN)

    assert outcomes(remembering) == [{"one": "timeout", "other": "not_sampled"}]


def test_a_unit_that_was_never_decided_on_has_its_outcome_alone() -> None:
    remembering = decisions()
    remembering.ledger.enter(UNIT)

    remembering.settle_lost(SamplingContext(UNIT), Outcome.INCOMPLETE)

    ((explained, *_),) = [unit["metrics"].values() for unit in remembering.explain(1)]
    assert explained["outcome"] == "incomplete"
    assert {value for name, value in explained.items() if name != "outcome"} == {None}


@pytest.mark.parametrize("rules", [(), (Rule(rate=0.1, name="slow", when=RuleCondition(slower_than=1.0)),)])
def test_a_unit_that_was_skipped_is_explained_by_what_was_known_of_it(rules: tuple[Rule, ...]) -> None:
    remembering = decisions(rules=rules)
    remembering.ledger.enter(UNIT)

    remembering.settle_unsampled(SamplingContext(UNIT, status="ok", duration_ns=2_000_000_000))

    (unit,) = remembering.explain(1)
    assert unit["metrics"]["other"]["rates"] == {"base": 0.0, **{rule.name: rule.rate for rule in rules}}
    assert outcomes(remembering) == [{"one": "not_sampled", "other": "not_sampled"}]


def test_the_oldest_goes_first() -> None:
    kept = RecentUnitSpans()
    for number in range(1, 151):
        kept.keep(make_unit(make_span(span_id=number)), 100)

    assert [unit.key.span_id for unit in kept.units()] == [*range(51, 151)]


def test_content_is_bounded_and_a_unit_above_the_bound_puts_none_out() -> None:
    kept = RecentUnitSpans()
    for number in range(1, 6):
        kept.keep(make_unit(make_span(span_id=number)), 1_500_000)
    kept.keep(make_unit(make_span(span_id=6)), 5_000_000)

    assert [unit.key.span_id for unit in kept.units()] == [4, 5]


def key(n):
    return n.to_bytes(16, "big")


def test_a_unit_is_remembered_by_its_trace_and_its_root():
    closed = ClosedKeys(10)
    closed.add(key(1), b"root")

    assert (closed.has_trace(key(1)), closed.has(key(1), b"root")) == (True, True)
    assert (closed.has(key(1), b"else"), closed.has(key(2), b"root"), closed.has_trace(key(2))) == (False, False, False)


def test_a_trace_may_have_many_units():
    closed = ClosedKeys(100)
    roots = [bytes([n]) for n in range(50)]
    for root in roots * 2:
        closed.add(key(1), root)

    assert all(closed.has(key(1), root) for root in roots)
    assert len(closed) == 50


def test_the_oldest_are_forgotten_first_and_never_more_than_an_eighth_above_the_bound_is_kept():
    closed = ClosedKeys(80)
    for n in range(1_000):
        closed.add(key(n), b"root")
        assert len(closed) <= 90

    remembered = [closed.has(key(n), b"root") for n in range(1_000)]
    assert remembered == sorted(remembered)
    assert 80 <= sum(remembered) <= 90


def test_a_trace_is_remembered_as_long_as_its_latest_unit():
    closed = ClosedKeys(80)
    for n in range(1_000):
        closed.add(key(n), b"root")
        closed.add(key(5_000), bytes([n % 256, n // 256]))

    assert closed.has(key(5_000), bytes([999 % 256, 999 // 256]))


def test_what_is_taken_back_is_no_longer_remembered_but_its_trace_is():
    closed = ClosedKeys(10)
    for root in (b"first", b"second"):
        closed.add(key(1), root)
        closed.discard(key(1), root)

        assert (closed.has(key(1), root), closed.has_trace(key(1))) == (False, True)

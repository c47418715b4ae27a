"""The memory of closed units for a preview is bounded, small, and without content."""

from __future__ import annotations

import tracemalloc
from typing import Any

from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.decisions import RecentUnit, RecentUnits

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

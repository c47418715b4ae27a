"""Spans in any order become whole units."""

import gc
import sys

from spanscore.core.span import UnitKey
from spanscore.pipeline.assembly import Assembler
from spanscore.testing import make_span

S = 1_000_000_000
KEY = UnitKey(1, 10)


def span(span_id, parent_id=10, start=0):
    parent = None if span_id == 10 else parent_id
    return make_span(trace_id=1, span_id=span_id, parent_id=parent, start_ns=start, end_ns=start + 1)


def test_a_unit_closes_when_its_root_has_ended():
    assembler = Assembler()
    assembler.add(KEY, span(11, start=5), 1)
    assert assembler.due(2) == []

    assembler.add(KEY, span(10), 3)
    (unit,) = assembler.due(4)

    assert (unit.complete, [s.span_id for s in unit.spans]) == (True, [10, 11])
    assert unit.root == span(10)


def test_a_late_span_does_not_open_a_second_unit():
    assembler = Assembler()
    assembler.add(KEY, span(10), 0)
    assembler.due(1)

    assert not assembler.add(KEY, span(11), 2)

    assert (len(assembler), assembler.late) == (0, 1)


def test_a_unit_whose_root_never_ends_closes_incomplete_by_age():
    assembler = Assembler(max_age_ns=60 * S)
    assembler.add(KEY, span(11), 0)

    assert assembler.due(59 * S) == []
    (unit,) = assembler.due(60 * S)

    assert (unit.complete, unit.root) == (False, None)


def test_the_oldest_unit_makes_room():
    assembler = Assembler(max_units=2)
    for n in range(3):
        assembler.add(UnitKey(n, n), span(11), n)

    (unit,) = assembler.due(10)

    assert (unit.key, unit.complete) == (UnitKey(0, 0), False)


def test_a_unit_of_which_events_were_lost_is_incomplete():
    assembler = Assembler()
    assembler.mark_broken(KEY, 0)
    assembler.add(KEY, span(10), 1)

    (unit,) = assembler.due(2)

    assert not unit.complete


def test_a_unit_says_when_it_is_due_by_age_and_when_by_its_end():
    assembler = Assembler(max_age_ns=60 * S)
    assembler.add(KEY, span(11), 1 * S)
    assert assembler.next_due_ns() == 61 * S

    assembler.add(KEY, span(10), 5 * S)

    assert assembler.next_due_ns() <= 5 * S


def test_nothing_is_due_when_no_unit_is_open():
    assert Assembler().next_due_ns() is None


def test_what_is_due_is_found_without_a_look_at_what_is_not():
    looks = {}
    for units in (10, 10_000):
        assembler = Assembler(max_units=20_000)
        for n in range(units):
            assembler.add(UnitKey(n, 10), span(11), n)
        looks[units] = [calls(lambda: assembler.due(S)) for _ in range(2)], calls(assembler.next_due_ns)  # noqa: B023

    assert looks[10] == looks[10_000]


def calls(work):
    """Return how many calls something makes."""
    made = []
    gc.disable()  # its finalizers run, too
    sys.setprofile(lambda _, event, __: made.append(event) if event in ("call", "c_call") else None)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(made)


def test_the_oldest_unit_makes_room_for_the_bytes_of_others():
    assembler = Assembler(max_bytes=1_000)
    for n in range(3):
        assembler.add(UnitKey(n, n), span(11), n, size_bytes=400)

    assert [(unit.key.trace_id, unit.complete) for unit in assembler.due(10)] == [(0, False)]
    assert assembler.due(11) == []


def test_units_that_are_forgotten_are_remembered_within_bounds():
    assembler = Assembler(remembered=10)
    for n in range(1_000):
        key = UnitKey(n, 10)
        assembler.add(key, span(11), n)
        assembler.close_early(key)

    assert [n for n in range(1_000) if not assembler.add(UnitKey(n, 10), span(10), 1_000)] == [*range(990, 1_000)]


def test_the_largest_unit_closes_incomplete_by_its_spans():
    assembler = Assembler(max_spans=3)
    for n in range(3):
        assembler.add(KEY, span(11 + n), n)

    (unit,) = assembler.due(4)

    assert (unit.complete, len(unit.spans)) == (False, 3)

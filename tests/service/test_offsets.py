"""A partition is committed up to its first unsettled message, and never further."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spanscore.service.kafka_topic import PartitionOffsets, ranges_in, ranges_of


def test_the_oldest_open_trace_holds_back_all_after_it() -> None:
    offsets = PartitionOffsets()
    for offset, trace in enumerate((b"a", b"b", b"a", b"c"), start=7):
        offsets.read(offset, {trace}, 0)

    assert offsets.advance({b"b"}.__contains__) == 8
    assert offsets.settled_beyond({b"b"}.__contains__) == [9, 10]
    assert offsets.advance(set().__contains__) == 11


def test_nothing_is_committed_of_a_partition_of_which_nothing_was_read() -> None:
    assert PartitionOffsets().advance(set().__contains__) is None


@given(st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=1), st.sets(st.integers(0, 5)))
def test_a_commit_is_the_first_message_with_an_open_trace(messages: list[set[int]], open_ones: set[int]) -> None:
    offsets = PartitionOffsets()
    for offset, traces in enumerate(messages):
        offsets.read(offset, {bytes([trace]) for trace in traces}, 0)

    result = offsets.advance(lambda trace: trace[0] in open_ones)

    expected = next((offset for offset, traces in enumerate(messages) if traces & open_ones), len(messages))
    assert result == expected
    beyond = offsets.settled_beyond(lambda trace: trace[0] in open_ones)
    assert beyond == [offset for offset, traces in enumerate(messages) if offset > expected and not traces & open_ones]


@given(st.sets(st.integers(0, 500)), st.integers(0, 10**9))
def test_ranges_tell_the_offsets_that_they_were_made_of(beyond: set[int], base: int) -> None:
    offsets = sorted(base + one for one in beyond)

    assert ranges_in(ranges_of(offsets, base), base) == set(offsets)


def test_of_too_many_ranges_the_first_are_reported() -> None:
    every_other = range(0, 40_000, 2)

    result = ranges_in(ranges_of(every_other, 0), 0)

    assert result == set(range(0, max(result) + 1, 2))
    assert 500 < len(result) < len(every_other)


def test_what_is_no_range_tells_nothing() -> None:
    assert ranges_in("0-3,x", 0) == ranges_in("4--5", 0) == ranges_in("0-99999999999", 0) == ranges_in("²", 0) == set()

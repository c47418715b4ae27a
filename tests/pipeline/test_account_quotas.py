"""A judge that hangs fills its part of the queue, and no other's."""

from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.span import UnitKey
from spanscore.pipeline.queues import AccountQuotas


def key(n):
    return UnitKey(n, n)


def account_quotas(capacity=100, **more):
    return AccountQuotas({"slow": "a", "slow_too": "a", "well": "b", "other": "c"}, capacity=lambda: capacity, **more)


def fill(room, *metrics, first=0, units=1_000, size_bytes=1):
    """Enter units for as long as one of the metrics finds room; return how many did."""
    for n in range(first, first + units):
        found = room.with_room(metrics)
        if not found:
            return n - first
        room.enter(key(n), found, size_bytes)
    return units


def test_a_quota_fills_three_quarters_of_the_queue_at_most():
    room = account_quotas()

    assert fill(room, "slow") == 75

    assert room.with_room(["slow", "slow_too", "well"]) == ["well"]


def test_two_quotas_that_hang_leave_something_for_a_third():
    room = account_quotas()
    for n in range(0, 100, 2):
        fill(room, "slow", first=n, units=1)
        fill(room, "well", first=n + 1, units=1)

    assert room.with_room(["slow", "well", "other"]) == ["other"]
    assert room.under_way.total() < 90


def test_the_only_quota_has_the_whole_queue():
    room = AccountQuotas({"one": "a", "two": "a"}, capacity=lambda: 10)

    assert fill(room, "one", "two", units=10) == 10


def test_a_quota_is_left_with_the_last_score_that_waits_for_it():
    room = account_quotas(capacity=4)
    room.enter(key(1), ["slow", "slow_too", "well"], 1)
    fill(room, "slow", first=2)
    assert room.with_room(["slow"]) == []

    room.settle(key(1), ["slow"])
    assert room.with_room(["slow"]) == []
    room.settle(key(1), ["slow_too"])
    assert room.with_room(["slow"]) == ["slow"]


def test_a_quota_holds_no_more_than_its_part_of_the_bytes():
    room = account_quotas(max_bytes=1_000)
    fill(room, "slow", units=8, size_bytes=100)

    assert room.with_room(["slow", "well"]) == ["well"]


def test_a_unit_larger_than_all_bytes_finds_room_at_a_quota_without_units():
    assert account_quotas(max_bytes=1).with_room(["slow"]) == ["slow"]


@given(st.lists(st.tuples(st.sets(st.sampled_from(["slow", "slow_too", "well", "other"]), min_size=1), st.booleans())))
def test_what_has_left_holds_nothing(units):
    room = account_quotas(capacity=1_000, max_bytes=1_000)
    for n, (metrics, settled) in enumerate(units):
        room.enter(key(n), metrics, n)
        if settled:
            room.settle(key(n), metrics)
    for n in range(len(units)):
        room.leave(key(n))
        room.leave(key(n))

    assert (room.fill(), room.under_way.total()) == (0, 0)
    assert room.with_room(room.of) == [*room.of]


def test_a_unit_in_the_queue_keeps_the_quota_of_its_start():
    room = account_quotas(capacity=4)
    fill(room, "slow")
    room.change({"slow": "d", "added": "d"})

    assert room.with_room(["slow", "added", "well"]) == ["slow", "added", "well"]
    for n in range(4):
        room.leave(key(n))
    assert (room.fill(), room.under_way.total()) == (0, 0)


@given(st.integers(1, 200), st.integers(1, 20), st.booleans())
def test_what_waits_elsewhere_finds_room_where_it_is_reported_that_there_is(capacity, size, alone):
    room = AccountQuotas({"one": "a", "two": "a" if alone else "b"}, capacity=lambda: capacity, max_bytes=2_000)

    for n in range(300):
        if room.room():
            assert room.under_way["one"] < capacity
            assert room.with_room(["one"]) == ["one"]
            room.enter(key(n), ["one"], size)

    assert room.room() == 0
    assert room.under_way["one"] >= min(capacity * 3 // 4, 1_000 // size)


def test_it_is_as_full_as_its_fullest_quota():
    room = account_quotas()
    assert room.fill() == 0

    fill(room, "slow", units=60)
    assert room.fill() == 0.6  # of all that may wait; of its own it is half
    fill(room, "slow", first=60, units=10)
    assert 0.7 < room.fill() < 0.8
    fill(room, "slow", first=70)
    assert room.fill() == 1


def test_the_only_quota_is_as_full_as_the_queue_in_units_or_four_times_as_full_as_in_bytes():
    room = AccountQuotas({"one": "a"}, capacity=lambda: 10, max_bytes=4_000)

    fill(room, "one", units=2)
    assert room.fill() == 0.2
    fill(room, "one", first=2, units=1, size_bytes=898)
    assert room.fill() == 0.9

"""Processes on one spool with different or changed wall clocks: no process takes another's row, and no row ages early."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns

import pytest
from tests.durable.asked import Asked

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS


@pytest.mark.parametrize("ahead_ns", [5 * MINUTE_NS, -5 * MINUTE_NS])
def test_workers_whose_clocks_are_five_minutes_apart_have_each_row_once(
    spool: Callable[..., Asked], ahead_ns: int
) -> None:
    one, other = spool(lease_s=60.0), spool(lease_s=60.0, wall_ns=lambda: time_ns() + ahead_ns)
    for number in range(4):
        one.put(number)

    taken = [one.taken(2), other.taken(100), one.taken(100)]

    assert taken == [[0, 1], [2, 3], []]
    assert [one.keep(0), other.keep(2)] == [True, True]


def test_a_row_from_a_clock_that_is_ahead_is_neither_old_nor_negative(spool: Callable[..., Asked]) -> None:
    ahead, here = spool(wall_ns=lambda: time_ns() + 5 * MINUTE_NS), spool(max_age_s=60.0)
    ahead.put(1)

    assert here.file.state().oldest_s == 0.0
    assert here.taken() == [1]


def test_a_clock_that_goes_back_an_hour_takes_no_lease_and_ages_no_row(spool: Callable[..., Asked]) -> None:
    back = [0]
    holder, other = (spool(lease_s=60.0, max_age_s=600.0, wall_ns=lambda: time_ns() - back[0]) for _ in range(2))
    for number in range(2):
        holder.put(number)
    assert holder.taken(1) == [0]

    back[0] = HOUR_NS

    assert [other.taken(), other.take(ended_only=True)] == [[1], []]
    assert holder.keep(0)

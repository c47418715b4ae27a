"""Stretches of time: every trace is listed once, however many there are, of a store that lists so many at most."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore import ConfigurationError
from spanscore.stored.trace_stores import StoreUnavailable, list_trace_ids
from spanscore.stored.traces import Unread

A_DAY_S = 86_400.0
TIMES = st.lists(st.integers(0, int(A_DAY_S) - 1), max_size=60, unique=True)


class Listing:
    """A store that lists a given number of traces, the latest; it rejects requests for more than ``refuses``."""

    def __init__(self, times: Sequence[float], failing: Sequence[int] = (), refuses: int = 1_000_000) -> None:
        self._times, self._failing, self._refuses, self.asked = sorted(times), failing, refuses, 0

    def __call__(self, start_s: float, end_s: float, limit: int) -> Sequence[bytes]:
        self.asked += 1
        if self.asked in self._failing:
            raise StoreUnavailable("it answers 500")
        if limit > self._refuses:
            raise ConfigurationError(f"http://tempo:3200: limit {limit} exceeds the maximum")
        found = [str(time_s).encode() for time_s in self._times if start_s <= time_s < end_s]
        return found[-limit:]


@given(TIMES)
def test_each_trace_is_listed_once_in_the_order_of_time(times: list[int]) -> None:
    found = list(list_trace_ids(0, A_DAY_S, Listing(times), limit=10))

    assert sorted(found, key=str) == sorted((str(one).encode() for one in times), key=str)


def test_a_quiet_week_takes_few_questions() -> None:
    store = Listing([])

    assert list(list_trace_ids(0, 7 * A_DAY_S, store, limit=10)) == []
    assert store.asked < 12


def test_a_second_with_more_than_it_lists_is_asked_about_with_a_higher_limit() -> None:
    found = list(list_trace_ids(0, 10.0, Listing([5 + n / 1_000 for n in range(500)]), limit=10))

    assert len(set(found)) == 500
    assert not any(isinstance(one, Unread) for one in found)


def test_more_than_it_lists_within_the_shortest_stretch_is_reported() -> None:
    found = list(list_trace_ids(0, 10.0, Listing([5 + n / 1_000 for n in range(1_000)]), limit=10))

    assert _unread(found) == ["640 are listed at most"]
    assert len(found) == 641


def test_a_store_that_refuses_a_higher_limit_is_asked_about_the_next_stretch() -> None:
    found = list(list_trace_ids(0, 10.0, Listing([*(5 + n / 1_000 for n in range(500)), 8.0], refuses=40), limit=10))

    assert _unread(found) == ["http://tempo:3200: limit 160 exceeds the maximum"]
    assert b"8.0" in found
    assert len(found) == 1 + 40 + 1


def test_a_stretch_without_an_answer_is_named_and_the_others_go_on() -> None:
    found = list(list_trace_ids(0, 3 * 3_600.0, Listing([100, 4_000, 10_000], failing=[2]), limit=4))

    assert [one for one in found if not isinstance(one, Unread)] == [b"100", b"10000"]
    (unread,) = (one for one in found if isinstance(one, Unread))
    assert unread == Unread("the traces from 1970-01-01T01:00:00Z to 1970-01-01T02:00:00Z", "it answers 500")


def test_where_nobody_answers_at_all_that_is_raised() -> None:
    with pytest.raises(ConfigurationError, match="no store answers a search there: it answers 500"):
        list(list_trace_ids(0, A_DAY_S, Listing([], failing=[1]), limit=10))


def _unread(found: Sequence[bytes | Unread]) -> list[str]:
    return [one.because for one in found if isinstance(one, Unread)]

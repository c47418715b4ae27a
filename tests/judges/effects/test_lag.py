"""How long a place is not taken again after an answer; by a clock that is wound by hand."""

from __future__ import annotations

from math import inf

import pytest

from spanscore.judges.effects.account import RequestSlot
from spanscore.judges.effects.rate_limits import ReleaseLag


def sent(lag: ReleaseLag, now_s: float, out: int = 8) -> RequestSlot:
    ticket = RequestSlot(1, now_s, out)
    lag.count_request(ticket)
    return ticket


def refused(lag: ReleaseLag, now_s: float, age_s: float = 0.0) -> bool:
    """Refuse one that is sent so long after an answer; return whether that is taken to be for the lag."""
    lag.count_answer(now_s, 1.0)
    return lag.explains(sent(lag, now_s + age_s), 8.0)


def test_there_is_none_until_a_refusal_speaks_for_it() -> None:
    lag = ReleaseLag()

    lag.count_answer(1.0, 1.0)

    assert (lag.wait_s(1, 1.0), lag.wait_s(0, 1.0)) == (0.0, inf)


def test_a_place_is_taken_again_when_the_lag_is_over() -> None:
    lag = ReleaseLag()
    refused(lag, 1.0)

    lag.count_answer(2.0, 1.0)

    assert [lag.wait_s(1, now_s) > 0 for now_s in (2.0, 2.004, 2.006)] == [True, True, False]
    assert lag.wait_s(2, 2.0) == 0  # another place is free


def test_a_refusal_long_after_the_last_answer_is_not_for_the_lag() -> None:
    assert not refused(ReleaseLag(), 1.0, age_s=0.2)


def test_a_refusal_of_far_fewer_than_there_are_places_is_not_for_the_lag() -> None:
    lag = ReleaseLag()
    lag.count_answer(1.0, 1.0)

    assert not lag.explains(sent(lag, 1.0, out=5), 8.0)


def test_it_doubles_up_to_a_tenth_of_a_round_trip_and_explains_no_more() -> None:
    lag = ReleaseLag()

    explained = [refused(lag, float(second), 0.09) for second in range(9)]

    assert explained == [True] * 6 + [False] * 3  # 5, 10, 20, 40, 80, 100 ms
    lag.count_answer(9.0, 1.0)
    assert lag.wait_s(1, 9.0) == pytest.approx(0.1, rel=0.02)


def test_it_goes_back_with_each_answer() -> None:
    lag = ReleaseLag()
    refused(lag, 0.0)

    for second in range(1, 1000):
        lag.count_answer(float(second), 1.0)

    assert 0 < lag.wait_s(1, 999.0) < 0.002

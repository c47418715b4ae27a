"""The number of concurrent questions, by refusals; by a clock that is moved by hand."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from spanscore.judges.effects.account import RequestSlot
from spanscore.judges.effects.rate_limits import AdaptiveConcurrency


class Account:
    """Places and open questions; each answer comes after one round trip of a second."""

    def __init__(self, ceiling: int = 64) -> None:
        self.places = AdaptiveConcurrency(ceiling)
        self.out: list[RequestSlot] = []
        self.now_s = 0.0
        self.serial = 0

    def fill(self) -> list[RequestSlot]:
        """Send all that may leave now."""
        new = []
        while self.places.wait_s(len(self.out), self.now_s) == 0:
            self.serial += 1
            ticket = RequestSlot(self.serial, self.now_s, len(self.out) + 1)
            self.out.append(ticket)
            self.places.count_request(ticket, self.now_s)
            new.append(ticket)
        return new

    def answer(self, *tickets: RequestSlot, in_use: bool = True) -> None:
        for ticket in tickets:
            self.places.count_answer(ticket, self.now_s, in_use=in_use)
            self._end(ticket)

    def refuse(self, *tickets: RequestSlot) -> None:
        for ticket in tickets:
            self.places.count_refusal(ticket, self.now_s, self.out)
            self._end(ticket)

    def round_trip(self, allowed: float = inf, *, in_use: bool = True) -> int:
        """Send admitted questions to a provider with this many places; return the number of refusals."""
        new = self.fill()
        refused = [ticket for ticket in new if ticket.in_flight > allowed]
        self.now_s += 0.05
        self.refuse(*refused)
        self.now_s += 0.95
        self.answer(*self.out, in_use=in_use)
        return len(refused)

    def _end(self, ticket: RequestSlot) -> None:
        self.out.remove(ticket)
        self.places.count_end(ticket)


def test_it_starts_at_four_and_doubles_per_round_trip() -> None:
    account = Account()
    levels = []

    for _ in range(4):
        levels.append(account.places.level)
        account.round_trip()

    assert levels == [4, 8, 16, 32]


def test_the_ceiling_is_never_passed() -> None:
    account = Account(ceiling=10)
    for _ in range(9):
        account.round_trip()

    assert len(account.fill()) == 10


def test_what_is_not_in_use_does_not_grow() -> None:
    account = Account()

    account.round_trip(in_use=False)

    assert account.places.level == 4


def test_after_a_refusal_it_stays_below_the_level_at_which_it_was_refused() -> None:
    account = Account()
    account.round_trip(5)

    refused = [account.round_trip(5) for _ in range(3)]

    assert (refused, account.places.level, account.places.paced) == ([3, 0, 0], 5, False)


def test_the_refusals_of_one_episode_lower_it_once() -> None:
    account = Account()
    for _ in range(3):
        account.round_trip()
    new = account.fill()
    account.now_s += 0.05

    account.refuse(*new[20:])

    assert (len(new), account.places.level) == (32, pytest.approx(0.9 * 21))


def test_only_a_refusal_lowers_it() -> None:
    account = Account()
    account.round_trip()
    level = account.places.level

    for ticket in account.fill():
        account.out.remove(ticket)
        account.places.count_end(ticket)  # it failed, or its caller had left

    assert account.places.level == level


def test_it_is_tried_past_a_level_ever_more_rarely_up_to_every_eight_seconds() -> None:
    account = Account()

    tried_s = [second for second in range(60) if account.round_trip(5) == 1]

    gaps = [later - sooner for sooner, later in pairwise(tried_s)]
    assert gaps[:2] == sorted(gaps[:2])
    assert set(gaps[2:]) <= {8, 9, 10}
    assert account.places.level in (5, 6)


def test_a_try_that_passes_is_followed_by_others_soon() -> None:
    account = Account()
    for _ in range(20):
        account.round_trip(5)

    for _ in range(20):
        account.round_trip(40)

    assert account.places.level >= 36


def test_a_refusal_of_fewer_than_were_answered_is_about_the_rate_and_makes_a_pace() -> None:
    account = Account()
    account.round_trip()
    first, *others = account.fill()
    account.now_s += 0.05

    account.refuse(first)
    account.now_s += 0.95
    account.answer(*others)
    account.answer(*account.fill()[:1])

    assert account.places.paced
    account.fill()
    assert 0 < account.places.wait_s(len(account.out), account.now_s) < 1


def test_places_that_are_freed_a_moment_after_the_answer_make_no_pace() -> None:
    account = Account()
    for _ in range(20):
        account.round_trip(8)
    level = account.places.level
    account.fill()
    account.now_s += 1.0
    first, second, *_ = account.out

    account.answer(first)
    (too_soon,) = account.fill()
    account.now_s += 0.05
    account.refuse(too_soon)
    account.answer(second)

    assert (account.places.level, account.places.paced) == (level, False)
    assert len(account.fill()) == 1  # the first one's place; the second one's in a moment
    assert 0 < account.places.wait_s(len(account.out), account.now_s) < 0.1


def test_a_pace_is_given_up_where_refusals_are_about_places_after_all() -> None:
    places = AdaptiveConcurrency(64)
    places.paced, places.level = True, 6.0

    for now_s in (1.0, 2.0):
        ninth, later = RequestSlot(int(10 * now_s), now_s, 9), RequestSlot(int(10 * now_s) + 1, now_s, 3)
        places.count_request(ninth, now_s)
        places.count_refusal(ninth, now_s)
        places.count_request(later, now_s)
        places.count_answer(later, now_s + 0.5, in_use=True)

    assert (places.paced, places.level) == (False, 8.0)


def test_below_one_it_is_one_call_per_round_trip_divided_by_it() -> None:
    places = AdaptiveConcurrency(64)
    places.level = 0.25
    places.count_request(RequestSlot(1, 0.0, 1), 0.0)

    assert [places.wait_s(0, now_s) for now_s in (0.0, 1.5, 2.0)] == [2.0, 0.5, 0.0]  # a round trip is taken as 0.5 s


def test_below_one_a_refused_question_is_not_waited_for_a_second_time() -> None:
    places = AdaptiveConcurrency(64)
    places.level = 0.25
    for serial, now_s in ((1, 0.0), (2, 2.0)):
        places.count_request(RequestSlot(serial, now_s, 1), now_s)

    places.count_refusal(RequestSlot(2, 2.0, 1), 2.05)

    assert places.wait_s(0, 2.05) == pytest.approx(0.5 / (0.9 * 0.25) - 2.05)  # from the first one on


def test_where_everything_is_refused_one_question_is_tried_at_a_time() -> None:
    account = Account()
    sent = []
    for _ in range(600):
        new = account.fill()
        sent.append(len(new))
        account.now_s += 0.05
        account.refuse(*new)

    assert sum(sent) <= 4 + 3 + 14  # 0.1, 0.2 … 4 s apart, for 30 s
    assert set(sent[2:]) == {0, 1}


def test_after_a_storm_it_goes_on_where_it_was_one_by_one() -> None:
    account = Account()
    for _ in range(2):
        account.round_trip()
    for _ in range(200):
        new = account.fill()
        account.now_s += 0.05
        account.refuse(*new)
    level = account.places.level

    while not account.out:
        account.fill()
        account.now_s += 0.05
    account.now_s += 1.0
    account.answer(*account.out)

    assert account.places.level >= level > 10
    assert (account.places.paced, len(account.fill())) == (False, 1)


def test_a_judge_that_is_back_has_half_of_its_places() -> None:
    account = Account()
    for _ in range(3):
        account.round_trip()

    account.places.halve()

    assert account.places.level == 16


def test_a_lower_ceiling_holds_at_once() -> None:
    account = Account()
    account.round_trip()

    account.places.bound(3)

    assert len(account.fill()) == 3

"""Admission while other questions are refused; by a clock that is moved by hand."""

from __future__ import annotations

import pytest

from spanscore.judges.effects.account import RequestSlot
from spanscore.judges.effects.rate_limits import Goodput


def goodput(*, sent_requests: int, refused_requests: int) -> Goodput:
    made = Goodput()
    made.begin(10.0)
    made.sent_requests, made.refused_requests = sent_requests, refused_requests
    return made


def test_it_is_what_was_let_in_a_second_up_to_the_one_that_was_refused() -> None:
    assert goodput(sent_requests=30, refused_requests=8).per_s(RequestSlot(30, 12.0, 5), 2) == pytest.approx(10.0)


def test_few_refusals_tell_nothing_as_more_might_have_been_let_in() -> None:
    assert goodput(sent_requests=30, refused_requests=2).per_s(RequestSlot(30, 12.0, 5), 0) is None


def test_few_that_were_let_in_tell_nothing() -> None:
    assert goodput(sent_requests=6, refused_requests=4).per_s(RequestSlot(6, 12.0, 5), 0) is None

"""If everything is refused, one question is sent at a time; by a clock that is moved by hand."""

from __future__ import annotations

from math import inf

import pytest

from spanscore.judges.effects.account import RequestSlot
from spanscore.judges.effects.rate_limits import ProbeBackoff


def refused(times: int, *, now_s: float = 0.0) -> ProbeBackoff:
    trials = ProbeBackoff()
    for _ in range(times):
        trials.count_refusal(now_s)
    return trials


def test_they_begin_with_the_second_refusal_without_an_answer_between() -> None:
    answered = refused(1)
    answered.count_answer()

    assert [refused(times).are_on for times in (0, 1, 2)] == [False, False, True]
    assert not answered.count_refusal(0.0)


def test_each_is_twice_as_long_after_the_last_up_to_four_seconds() -> None:
    assert [refused(times).wait_s(0.0) for times in range(2, 9)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4.0])


def test_one_is_out_at_a_time() -> None:
    trials, question = refused(2), RequestSlot(1, 1.0, 1)
    trials.count_request(question)
    out_s = trials.wait_s(9.0)

    trials.count_end(question)

    assert (out_s, trials.wait_s(9.0)) == (inf, 0.0)


def test_a_long_silence_after_many_answers_was_a_storm_and_one_after_few_a_low_rate() -> None:
    rare, busy = refused(5), ProbeBackoff()
    for _ in range(10):
        busy.count_answer()
    busy.count_refusal(0.0)
    for trials in (rare, busy):
        trials.last_admitted_s = 0.0

    assert [trials.was_storm(RequestSlot(1, 30.0, 1)) for trials in (rare, busy)] == [False, True]
    assert not busy.was_storm(RequestSlot(1, 2.0, 1))

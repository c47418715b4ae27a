"""Closed, open for a time, half open for one probe; by a clock that is wound by hand."""

from __future__ import annotations

import pytest

from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeUnavailable
from spanscore.judges.effects.account import Breaker

DOWN = JudgeUnavailable("down", error_type="connection")
WRONG_KEY = JudgeError("wrong key", error_type="not_allowed")
NO_MONEY = JudgeOutOfQuota("no money")


def opened(error: JudgeError = DOWN) -> Breaker:
    """Return one that opened at 0 s."""
    breaker = Breaker()
    for _ in range(10):
        breaker.count_failure(error, 0.0, probe=False)
    return breaker


def probed(breaker: Breaker, now_s: float) -> float:
    """Let the probe fail; return for how long it is open then."""
    assert breaker.wait_s(now_s) == 0
    assert breaker.count_request(now_s)
    breaker.count_failure(DOWN, now_s, probe=True)
    return breaker.wait_s(now_s)


def test_ten_outcomes_four_fifths_of_them_failed_open_it() -> None:
    breaker = Breaker()
    for _ in range(2):
        breaker.count_answer(probe=False)

    opened = [breaker.count_failure(DOWN, 0.0, probe=False) for _ in range(8)]

    assert opened == [False] * 7 + [True]
    assert (breaker.state, breaker.wait_s(0.0), breaker.wait_s(0.4)) == ("open", 1.0, 0.6)


def test_three_of_ten_answered_keep_it_closed() -> None:
    breaker = Breaker()
    for _ in range(3):
        breaker.count_answer(probe=False)

    for _ in range(7):
        breaker.count_failure(DOWN, 0.0, probe=False)

    assert (breaker.state, breaker.wait_s(0.0)) == ("closed", 0.0)


def test_only_the_last_twenty_count() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker.count_answer(probe=False)

    opened = []
    for number in range(20):
        if number % 5 == 4:
            breaker.count_answer(probe=False)
        else:
            opened.append(breaker.count_failure(DOWN, 0.0, probe=False))

    assert opened.index(True) == 15


def test_ten_failures_in_a_row_open_it_however_well_it_was_before() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker.count_answer(probe=False)

    opened = [breaker.count_failure(DOWN, 0.0, probe=False) for _ in range(10)]

    assert opened == [False] * 9 + [True]


def test_each_failed_probe_doubles_the_time_up_to_five_seconds() -> None:
    breaker = opened()

    assert [probed(breaker, now_s) for now_s in (1.0, 3.0, 7.0, 12.0)] == [2.0, 4.0, 5.0, 5.0]


def test_a_probe_that_hangs_is_followed_by_another_after_five_seconds() -> None:
    breaker = opened()

    assert (breaker.count_request(1.0), breaker.state) == (True, "half_open")
    assert (breaker.wait_s(1.0), breaker.wait_s(5.0), breaker.wait_s(6.0)) == (5.0, 1.0, 0.0)


def test_a_probe_that_hung_and_fails_does_not_put_the_next_one_off() -> None:
    breaker = opened()
    breaker.count_request(1.0)
    breaker.count_request(6.0)

    breaker.count_failure(DOWN, 11.0, probe=True)

    assert breaker.wait_s(11.0) == 0.0


def test_a_probe_that_fails_after_another_was_answered_is_one_failure_and_no_more() -> None:
    breaker = opened()
    breaker.count_request(1.0)
    breaker.count_request(6.0)

    assert breaker.count_answer(probe=True)
    assert not breaker.count_failure(DOWN, 11.0, probe=True)
    assert breaker.state == "closed"


def test_of_two_probes_that_are_answered_the_first_closes_it() -> None:
    breaker = opened()
    breaker.count_request(1.0)
    breaker.count_request(6.0)

    assert [breaker.count_answer(probe=True) for _ in range(2)] == [True, False]


def test_an_answered_probe_closes_it_as_new() -> None:
    breaker = opened()
    breaker.count_request(1.0)

    assert breaker.count_answer(probe=True)
    assert (breaker.state, breaker.count_request(2.0)) == ("closed", False)
    assert [breaker.count_failure(DOWN, 9.0, probe=False) for _ in range(10)] == [False] * 9 + [True]
    assert breaker.wait_s(9.0) == 1.0


def test_a_probe_that_was_called_back_is_followed_by_another() -> None:
    breaker = opened()
    breaker.count_request(1.0)

    breaker.drop_probe()

    assert (breaker.state, breaker.wait_s(2.0)) == ("open", 0.0)


def test_calls_that_were_out_when_it_opened_say_nothing_new() -> None:
    breaker = opened()

    breaker.count_failure(DOWN, 0.9, probe=False)
    breaker.count_answer(probe=False)

    assert (breaker.state, breaker.wait_s(1.0)) == ("open", 0.0)


@pytest.mark.parametrize("error", [WRONG_KEY, JudgeError("no model", error_type="no_such_model"), NO_MONEY])
def test_what_a_person_must_mend_opens_it_at_once_for_five_minutes(error: JudgeError) -> None:
    breaker = Breaker()

    assert breaker.count_failure(error, 0.0, probe=False)
    assert breaker.wait_s(0.0) == 300.0


def test_questions_end_at_once_where_a_key_is_wrong_and_wait_where_money_is_missing() -> None:
    assert (opened(WRONG_KEY).refusal, opened(WRONG_KEY).is_out_of_quota) == (WRONG_KEY, False)
    assert (opened(NO_MONEY).refusal, opened(NO_MONEY).is_out_of_quota) == (None, True)
    assert (opened().refusal, opened().is_out_of_quota) == (None, False)


def test_attempts_are_excused_while_all_fail_and_not_those_of_one_question_alone() -> None:
    breaker = Breaker()
    alone = []
    for failed in range(1, 5):
        breaker.count_failure(DOWN, 0.0, probe=False)
        alone.append(breaker.excuses(failed))

    breaker.count_failure(DOWN, 0.0, probe=False)

    assert alone == [False] * 4
    assert breaker.excuses(4)
    breaker.count_answer(probe=False)
    assert not breaker.excuses(1)
    assert opened().excuses(9)


def test_while_it_is_open_it_tells_the_failure_that_opened_it() -> None:
    breaker, away = Breaker(), JudgeUnavailable("it is away")

    for _ in range(10):
        breaker.count_failure(away, 0.0, probe=False)

    assert (breaker.error, breaker.refusal, breaker.is_out_of_quota) == (away, None, False)
    breaker.count_answer(probe=True)
    assert breaker.error is None


def test_failures_of_a_question_are_excused_by_those_of_others_and_not_by_its_own() -> None:
    breaker = Breaker()
    for _ in range(6):
        breaker.count_failure(DOWN, 0.0, probe=False)

    assert breaker.state == "closed"
    assert [breaker.excuses(own) for own in (1, 5, 6)] == [True, True, False]

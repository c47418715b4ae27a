"""Parts of the limiter by a clock that is moved by hand: the breaker, trials, admission after refusals, and saved retries."""

from __future__ import annotations

from math import inf

import pytest

from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeUnavailable
from spanscore.judges.effects.account import Breaker, RequestSlot
from spanscore.judges.effects.account_limiter import RetryBudget
from spanscore.judges.effects.rate_limits import Goodput, ProbeBackoff

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


def test_twenty_retries_are_there_at_the_start() -> None:
    budget = RetryBudget()

    assert [budget.take() for _ in range(21)] == [True] * 20 + [False]


def test_two_answers_pay_for_one_retry() -> None:
    budget = RetryBudget()
    while budget.take():
        pass

    budget.count_answer()
    after_one = budget.take()
    budget.count_answer()

    assert (after_one, budget.take(), budget.take()) == (False, True, False)


def test_no_more_than_twenty_are_saved_up() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.count_answer()

    assert sum(budget.take() for _ in range(50)) == 20


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

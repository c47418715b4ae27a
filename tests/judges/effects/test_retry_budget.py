"""Half a retry for every answer, at most twenty saved up."""

from __future__ import annotations

from spanscore.judges.effects.account_limiter import RetryBudget


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

"""The fault matrix at its full length, on a hand-wound clock against the limiter: outages of a minute, pauses of five."""

import asyncio
from statistics import median

import pytest
from tests.judges.faults.away import Away, asked
from tests.pipeline.virtual_time import run

from spanscore.errors import JudgeError, JudgeOutOfQuota, JudgeOverloaded, JudgeUnavailable

PROBE_S = 5.5
"""A breaker that has been open for long probes every 5 s: how soon after an outage depends on its phase."""


def during(until_s, what, from_s=0.0):
    return lambda now_s, _: what() if from_s <= now_s < until_s else None


def a_share(share, what):
    return lambda _, rng: what() if rng.random() < share else None


def http(error_type):
    return JudgeError("no", error_type=error_type)


@pytest.mark.parametrize("retry_after_s", [None, 5.0, 20.0, 90.0])
def test_half_a_minute_of_refusals_costs_no_score_and_few_requests(retry_after_s):
    judge = Away(during(30, lambda: JudgeOverloaded("limit", retry_after_s=retry_after_s)))

    came = run(asked(judge, 300))

    assert (len(came.scored_s), came.errors) == (300, [])
    assert len(judge.asked_s) <= 1.10 * 300
    assert len(came.calls) == len(judge.asked_s) - 300
    assert came.first_after(30) <= 5 + (retry_after_s or 0)


def test_a_minute_without_connections_costs_no_score_and_few_connects():
    judge = Away(during(75, lambda: JudgeUnavailable("refused", error_type="connection"), from_s=15))

    came = run(asked(judge, 450))

    assert (len(came.scored_s), came.errors) == (450, [])
    assert sum(15 <= at_s < 75 for at_s in judge.asked_s) <= 25
    assert came.first_after(75) <= PROBE_S


def test_a_minute_of_hanging_costs_no_score_and_few_requests():
    judge = Away(during(60, lambda: "hang"))

    came = run(asked(judge, 450))

    assert len(came.scored_s) >= 0.99 * 450
    assert len(judge.asked_s) <= 1.10 * 450
    assert came.first_after(60) <= PROBE_S
    assert judge.most_out <= 64 + 16


def test_one_that_hangs_for_good_is_asked_seldom_and_never_by_more_than_its_places():
    judge = Away(lambda *_: "hang")

    came = run(asked(judge, 150, queue_timeout=60.0))

    assert {error.error_type for error in came.errors} <= {"breaker_open", "timeout"}
    assert len(came.errors) == 150
    assert sum(at_s >= 20 for at_s in judge.asked_s) <= 20 * (judge.asked_s[-1] - 20) / 60 + 1
    assert judge.most_out <= 64 + 16


def test_beside_one_that_hangs_for_good_another_is_not_delayed():
    hanging, well = Away(lambda *_: "hang"), Away(lambda *_: None)

    async def both():
        return await asyncio.gather(asked(hanging, 150, queue_timeout=60.0), asked(well, 150))

    _, came = run(both())

    assert (len(came.scored_s), len(well.asked_s)) == (150, 150)
    assert median(came.waited_s) <= 1


@pytest.mark.parametrize(
    ("share", "what", "scored", "per_score"),
    [(0.2, lambda: "hang", 0.98, 1.35), (0.3, lambda: JudgeUnavailable("no", error_type="http_500"), 0.99, 1.50)],
    ids=["a fifth hangs", "three tenths are 500"],
)
def test_a_share_of_failures_costs_few_scores_and_few_requests(share, what, scored, per_score):
    judge = Away(a_share(share, what))

    came = run(asked(judge, 300))

    assert len(came.scored_s) >= scored * 300
    assert len(judge.asked_s) <= per_score * len(came.scored_s)


@pytest.mark.parametrize("error_type", ["not_allowed", "no_such_model"])
def test_what_a_person_must_mend_ends_at_once_and_is_asked_for_once_in_five_minutes(error_type):
    judge = Away(lambda *_: http(error_type))

    came = run(asked(judge, 600, per_s=1))

    assert {error.error_type for error in came.errors} == {error_type}
    assert len(judge.asked_s) <= 2
    assert max(came.waited_s) <= 1


def test_without_money_questions_wait_and_the_account_is_asked_once_in_five_minutes():
    judge = Away(lambda *_: JudgeOutOfQuota("no money"))

    came = run(asked(judge, 600, per_s=1))

    assert {error.error_type for error in came.errors} == {"quota"}
    assert all("quota" in str(error) for error in came.errors)
    assert len(judge.asked_s) <= 5  # in the 20 minutes until the last has waited for its ten


def test_money_that_comes_back_costs_no_score():
    judge = Away(during(120, lambda: JudgeOutOfQuota("no money")))

    came = run(asked(judge, 120))

    assert (len(came.scored_s), came.errors) == (120, [])
    assert len(judge.asked_s) <= 120 + 2

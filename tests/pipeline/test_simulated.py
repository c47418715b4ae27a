"""Parts of ``benchmarks/``, played short: means of conversations, of complaints and under a budget are true."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from benchmarks.budget import Day, days, report
from benchmarks.feedback import one_run
from benchmarks.sessions import ANY, IDLE_MINUTES, ONE, conversations, false_alarms, found, of_five, turns
from tests.pipeline.conversations import alone, table, turn

VISITS = 500
MINUTE = 60_000_000_000
LATE = (1_000 * MINUTE, -1, 0)


@pytest.mark.parametrize("brings", [False, True])
def test_where_long_conversations_are_worse_their_mean_is_that_of_conversations_and_not_of_turns(brings: bool) -> None:
    mean = found(replace(ONE, brings=brings), VISITS)

    assert abs(mean.bias) <= 0.01
    assert mean.by_turns < mean.true - 0.1
    assert (mean.counted, mean.incomplete) == (1.0, 0.0)


def test_pods_that_think_they_are_one_are_off_and_do_not_know_it() -> None:
    mean = found(replace(ONE, pods=4, brings=True, ends=0.0), VISITS)

    assert mean.bias < -0.01
    assert mean.counted > 2


@pytest.mark.parametrize(("ends", "most"), [(1.0, 0.01), (0.6, 0.03)])  # of 300, chance alone is off by .016
def test_pods_that_know_of_each_other_count_the_conversations_that_end_with_their_last_turn(
    ends: float, most: float
) -> None:
    mean = found(replace(ANY, ends=ends), VISITS)

    assert abs(mean.bias) <= most
    assert mean.counted == pytest.approx(ends, abs=0.05)
    assert mean.incomplete > 1


def test_pods_that_cannot_know_the_whole_of_a_conversation_count_none_and_say_so() -> None:
    mean = found(replace(ANY, brings=False), VISITS)

    assert mean.counted == 0
    assert mean.incomplete > 1


def test_one_score_of_each_conversation_brings_one_false_alarm_in_thirty_days_and_turns_bring_many() -> None:
    by_turns, one_each = (false_alarms(10.0, 2, observed) for observed in (turns, conversations))

    assert by_turns > 10
    assert one_each <= 1


def test_what_is_simulated_of_conversations_of_five_is_what_the_table_tells() -> None:
    good, at = of_five(1.0, 100, 0.85, np.random.default_rng(0))
    subject, result = table(idle_ns=IDLE_MINUTES * MINUTE), []

    turned = sorted((int(end * MINUTE), which, n) for (which, n), end in np.ndenumerate(at))
    for now_ns, which, n in [*turned, LATE]:
        while (due_ns := subject.next_due_ns()) is not None and due_ns <= now_ns:
            result += [due_ns / MINUTE for _ in subject.due(due_ns)]
        subject.take(turn(n, alone(f"q{n}", "a"), id=f"{which}"), now_ns)

    simulated, _ = next(conversations(good, at))
    assert result == pytest.approx(sorted(simulated))


def test_judging_what_was_complained_of_does_not_move_the_mean_of_all() -> None:
    runs = [one_run(seed, 10_000) for seed in range(20)]

    assert abs(fmean(run.population for run in runs)) <= 0.009  # three standard errors; of all 400 runs .0007 ± .0005
    assert fmean(run.naive - run.population for run in runs) < -0.01
    assert abs(fmean(run.complained for run in runs) - 1) < 0.03


@pytest.fixture(scope="module")
def paced() -> list[Day]:
    return [*days(5, scale=0.3)]


def test_the_mean_of_a_day_is_that_of_all_its_units(paced: list[Day]) -> None:
    assert abs(report(paced).bias) <= 0.01
    assert report(paced).coverage >= 0.8


def test_the_money_of_a_day_is_spent_and_no_window_takes_more_than_its_own(paced: list[Day]) -> None:
    assert report(paced).spent >= 0.85
    assert report(paced).worst_window <= 1.0


def test_hardly_a_unit_is_lost_at_the_fence(paced: list[Day]) -> None:
    assert sum(day.lost for day in paced) <= 0.02 * sum(day.scored for day in paced)


def test_whoever_stops_when_the_money_is_spent_scores_the_good_ones() -> None:
    stopped = report([*days(2, scale=0.3, paced=False)])

    assert stopped.bias > 0.03
    assert stopped.coverage == 0

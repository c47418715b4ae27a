"""With a budget at a tenth of the demand the estimate is still of all units; ``benchmarks/budget.py`` plays 100 days."""

from __future__ import annotations

import pytest
from benchmarks.budget import Day, days, report


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

"""Weeks of scores → the normal quality in each hour of the week: recovered values, effects of chance, and rejected files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import pi, sin
from random import Random

import pytest

from spanscore.monitoring.baselines import STEP_S, LearnedBaseline, TooShortError, hour_of_week, learn_baseline
from spanscore.monitoring.estimates import Moments

DAY_S = 86_400
MONDAY = 1_760_313_600  # 2025-10-13 00:00 UTC
NOISE = 0.1


def weeks(
    mean: Callable[[int], float], *, days: int = 28, scores: int = 50, seed: int = 1, design_effect: int = 1
) -> dict[int, Moments]:
    """Return five minutes each of scores with the standard deviation ``NOISE``; ``design_effect`` of them at a time are
    equal.
    """
    random = Random(seed)
    steps = {}
    for start in range(MONDAY, MONDAY + days * DAY_S, STEP_S):
        error = random.gauss(0, NOISE * (design_effect / scores) ** 0.5)
        y = mean(start) + error
        y2 = y * y + NOISE**2
        steps[start] = Moments(w=scores, wy=scores * y, w2=scores, w2y=scores * y, w2y2=scores * y2)
    return steps


def swinging(time: int) -> float:
    weekend = hour_of_week(time) // 24 in (0, 6)
    return 0.85 + 0.02 * sin(2 * pi * (time % DAY_S) / DAY_S) - 0.03 * weekend


def of_hour(of: LearnedBaseline, error: float = 0.006) -> dict[int, object]:
    """Return hour → its expected value, for hours that are not near it."""
    true = {hour_of_week(start): swinging(start + 1_800) for start in range(MONDAY, MONDAY + 7 * DAY_S, 3_600)}
    return {hour: (value, true[hour]) for hour, value in enumerate(of.hours) if abs(value - true[hour]) > error}


def test_a_week_begins_with_sunday() -> None:
    assert [hour_of_week(MONDAY), hour_of_week(MONDAY - 1), hour_of_week(MONDAY - DAY_S)] == [24, 23, 0]


@pytest.mark.parametrize(("days", "error"), [(28, 0.006), (10, 0.015)])
def test_a_swing_of_day_and_week_is_given_back(days: int, error: float) -> None:
    found = learn_baseline(weeks(swinging, days=days))

    assert found.mean == pytest.approx(0.85 - 0.03 * 2 / 7, abs=0.004)
    assert of_hour(found, error) == {}
    assert found.explained is not None
    assert found.explained > 0.9 if days == 28 else found.explained > 0.4


def test_hours_that_differ_by_chance_alone_are_drawn_to_the_mean() -> None:
    found = learn_baseline(weeks(lambda _: 0.85))

    assert (
        max(abs(hour - 0.85) for hour in found.hours) < 0.003
    )  # of one hour of the week chance makes 0.002, 1 in 100 0.005
    assert not found.is_autocorrelated
    assert found.design_effect == pytest.approx(1, abs=0.3)
    assert found.baseline_sd[3_600] < 0.002


def test_what_a_profile_explains_is_not_measured_on_its_own_weeks() -> None:
    found = learn_baseline(weeks(lambda _: 0.85, scores=5, days=14))

    assert found.explained is None or found.explained < 0.2


def test_a_mean_that_wanders_is_autocorrelated_and_its_size_is_the_slack() -> None:
    random, now = Random(3), [0.0]

    def wandering(_: int) -> float:
        now[0] = 0.96 * now[0] + random.gauss(0, 0.01 * (1 - 0.96**2) ** 0.5)  # forgets half of it in 1.4 h
        return 0.85 + now[0]

    found = learn_baseline(weeks(wandering))

    assert found.is_autocorrelated
    assert found.baseline_sd[3_600] == pytest.approx(0.009, abs=0.002)
    assert found.baseline_sd[3_600] > found.baseline_sd[21_600] > found.baseline_sd[86_400] > 0.001


def test_bursts_of_equal_answers_are_worth_fewer_scores() -> None:
    found = learn_baseline(weeks(lambda _: 0.85, design_effect=10))

    assert found.design_effect == pytest.approx(10, rel=0.3)
    assert (
        found.baseline_sd[3_600] < 0.3 * NOISE * (9 / 600) ** 0.5
    )  # the design effect covers the bursts, at any number of scores
    assert not found.is_autocorrelated


def test_hours_without_scores_are_as_the_same_hour_of_other_days() -> None:
    steps = {start: of for start, of in weeks(swinging).items() if hour_of_week(start) != 36}

    found = learn_baseline(steps)

    assert found.hours[36] == pytest.approx(
        sum(found.hours[12 + 24 * day] for day in (0, 2, 3, 4, 5, 6)) / 6, abs=0.004
    )


def test_no_hour_is_said_of_less_than_seven_days() -> None:
    with pytest.raises(TooShortError, match=r"6 days.*needs 7"):
        learn_baseline(weeks(swinging, days=6))


@pytest.mark.parametrize(("scores", "same"), [*product([1, 50], [0.0, 1.0])])
def test_scores_that_are_all_equal_have_no_hours_and_no_slack(scores: int, same: float) -> None:
    equal = Moments(w=scores, wy=scores * same, w2=scores, w2y=scores * same, w2y2=scores * same)

    found = learn_baseline(dict.fromkeys(range(MONDAY, MONDAY + 8 * DAY_S, STEP_S), equal))

    assert set(found.hours) == {same}
    assert set(found.baseline_sd.values()) <= {0.0}
    assert (found.explained, found.design_effect, found.is_autocorrelated) == (None, 1.0, False)

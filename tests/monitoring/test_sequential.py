"""The interval of a difference that is looked at again and again."""

from __future__ import annotations

from math import inf, isfinite
from random import Random

import numpy as np
import pytest
from benchmarks import compare as simulated

from spanscore.monitoring.estimates import Moments, interval, mean, moments
from spanscore.monitoring.sequential import (
    LEAST_SCORES,
    at_every_look,
    at_one_look,
    bounds_of_lost,
    grown,
    seconds_until,
)

RUNS = 200
MOST = 0.085
"""Of 200 runs that miss with probability .05 at most, 18 or more miss in one of a thousand tests."""


def passing(share: float, n: int, *, lost: int = 0) -> Moments:
    return moments([(1.0, 1.0)] * round(share * n) + [(0.0, 1.0)] * round((1 - share) * n), [1.0] * lost)


def test_the_arrays_of_the_simulation_say_what_the_function_says() -> None:
    day = simulated.day(2, law="five points .9", weighting="paced", split="rollout", per_minute=2.0)
    looks = simulated.every_look(day)

    for run, look in [(0, 100), (1, 700), (0, 1_439)]:
        assert looks.said[run, look]
        found = at_every_look(day.a.at(run, look), day.b.at(run, look))
        assert found == pytest.approx([one[run, look] for one in (looks.middle, looks.low, looks.high)], rel=1e-9)


@pytest.mark.parametrize("per_minute", [0.2, 2.0, 10.0])
@pytest.mark.parametrize(("split", "weighting"), [("even", "all alike"), ("canary", "rules"), ("rollout", "paced")])
@pytest.mark.parametrize("law", ["pass/fail .5", "pass/fail .85", "pass/fail .98", "pass/fail .995"])
def test_releases_that_do_not_differ_are_told_apart_in_at_most_one_of_twenty_days(
    law: str, split: str, weighting: str, per_minute: float
) -> None:
    day = simulated.day(RUNS, law=law, weighting=weighting, split=split, per_minute=per_minute)

    assert simulated.missed(simulated.every_look(day)) <= MOST


def test_the_interval_of_one_look_does_not_stand_being_looked_at_every_minute() -> None:
    day = simulated.day(RUNS, law="pass/fail .85", weighting="all alike", split="even", per_minute=2.0)

    assert simulated.missed(simulated.one_look(day)) > 0.2


def test_a_drop_is_held_at_every_look_and_seen_within_the_day() -> None:
    day = simulated.day(RUNS, law="pass/fail .85", weighting="rules", split="even", per_minute=10.0, drop=0.05)
    looks = simulated.every_look(day)

    assert simulated.missed(looks, true=-0.05) <= MOST
    assert float(np.mean((looks.said & (looks.high < 0)).any(axis=1))) > 0.9


def test_before_enough_scores_of_either_side_nothing_is_said() -> None:
    few, many = passing(1.0, LEAST_SCORES - 1), passing(0.5, 1_000)

    assert at_every_look(many, few)[1:] == (-inf, inf)
    assert at_every_look(few, many)[1:] == (-inf, inf)
    assert isfinite(at_every_look(many, passing(1.0, LEAST_SCORES)).low)


def test_nothing_scored_is_no_difference_of_0() -> None:
    assert at_every_look(Moments(), passing(0.5, 100))[1:] == (-inf, inf)


def test_a_side_without_a_failure_yet_is_not_certain() -> None:
    found = at_every_look(passing(0.9, 100), passing(1.0, 100))

    assert found.low < 0 < found.mean


def test_which_side_is_the_first_turns_the_sign_alone() -> None:
    a, b = passing(0.9, 300), passing(0.8, 500)

    found, turned = at_every_look(a, b), at_every_look(b, a)

    assert (found.mean, found.low, found.high) == pytest.approx((-turned.mean, -turned.high, -turned.low))


def test_the_interval_of_one_look_is_narrower_and_that_of_both_means() -> None:
    a, b = passing(0.9, 300), passing(0.8, 500)
    every, one = at_every_look(a, b), at_one_look(a, b)

    assert every.low < one.low < one.mean < one.high < every.high
    below = ((mean(b) - interval(b).low) ** 2 + (interval(a).high - mean(a)) ** 2) ** 0.5
    assert one.low == pytest.approx(one.mean - below)


def test_the_interval_of_one_look_holds_in_95_of_100() -> None:
    dice = Random(8)
    held = 0
    for _ in range(600):
        a, b = (
            moments([(float(dice.random() < share), 1.0) for _ in range(n)]) for share, n in ((0.95, 60), (0.9, 200))
        )
        found = at_one_look(a, b)
        held += found.low <= -0.05 <= found.high

    assert held / 600 >= 0.93


def test_what_was_lost_widens_the_interval_by_what_it_might_have_scored() -> None:
    a, b = passing(0.9, 1_000, lost=100), passing(0.9, 1_000, lost=300)
    every, bounds = at_every_look(a, b), bounds_of_lost(a, b)

    assert bounds.low < every.low - 0.9 * 300 / 1_300 < every.high + 0.05 < bounds.high
    assert bounds_of_lost(passing(0.9, 1_000), passing(0.8, 1_000)) == at_every_look(
        passing(0.9, 1_000), passing(0.8, 1_000)
    )[1:]  # fmt: skip


def test_the_time_that_it_takes_is_that_after_which_it_holds() -> None:
    a, b = passing(0.9, 100), passing(0.8, 100)

    def decided(a: Moments, b: Moments) -> bool:
        return at_every_look(a, b).high < 0

    seconds = seconds_until(decided, (a, 0.1), (b, 0.05))

    assert seconds is not None
    for more, expected in ((0.99, False), (1.01, True)):
        after = [grown(of, 1 + rate * more * seconds / 100) for of, rate in ((a, 0.1), (b, 0.05))]
        assert decided(*after) is expected


def test_what_no_traffic_would_decide_takes_no_time_that_is_known() -> None:
    a, b = passing(0.9, 100), passing(0.9, 100)

    assert seconds_until(lambda a, b: at_every_look(a, b).high < 0, (a, 1.0), (b, 1.0)) is None
    assert seconds_until(lambda a, b: True, (a, 1.0), (Moments(), 1.0)) is None

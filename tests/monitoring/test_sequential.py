"""The interval of a difference that is looked at again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, isfinite
from random import Random

import pytest
from benchmarks import compare as simulated

from spanscore.monitoring.estimates import Moments, interval, mean, moments
from spanscore.monitoring.releases import (
    LEAST_BLOCKS,
    LEAST_SCORES,
    MatchedSums,
    at_every_look,
    at_one_look,
    bounds_with_unscored,
    match_traffic,
    seconds_until,
)

RUNS = 60
MOST = 0.17
"""A share of 60 runs: if .05 of all miss, 11 of 60 or more miss in one of a thousand tests."""


def passing(share: float, n: int, *, lost: int = 0) -> Moments:
    return moments([(1.0, 1.0)] * round(share * n) + [(0.0, 1.0)] * (n - round(share * n)), [1.0] * lost)


def blocks(share: float, n: int, number: int = LEAST_BLOCKS, *, lost: int = 0) -> dict[int, Moments]:
    """Return so many scores in equal blocks."""
    block = passing(share, n, lost=lost)
    part = Moments(*(getattr(block, name) / number for name in Moments.__slots__))
    return dict.fromkeys(range(number), part)


def share(draw: Callable[[int], simulated.Day], happened: Callable[[simulated.Day], bool]) -> float:
    """Return the share of days on which something happened."""
    return sum(happened(draw(seed)) for seed in range(RUNS)) / RUNS


@pytest.mark.parametrize("name", [name for name in simulated.WORLDS if name != simulated.BEYOND])
def test_equal_releases_are_distinguished_in_at_most_one_of_twenty_days_in_each_world(name: str) -> None:
    assert share(partial(simulated.world, of=simulated.WORLDS[name]), simulated.missed) <= MOST


@pytest.mark.parametrize(
    ("split", "weighting", "law", "per_minute"),
    [
        ("even", "all alike", "pass/fail .995", 2.0),
        ("canary", "rules", "pass/fail .98", 2.0),
        ("canary", "paced", "pass/fail .85", 20.0),
        ("rollout", "paced", "five points .9", 2.0),
        ("rollout", "rules", "continuous .85", 0.2),
    ],
)
def test_equal_releases_are_distinguished_in_at_most_one_of_twenty_days(
    law: str, split: str, weighting: str, per_minute: float
) -> None:
    draw = partial(simulated.day, law=law, weighting=weighting, split=split, per_minute=per_minute)

    assert share(draw, simulated.missed) <= MOST


@pytest.mark.parametrize("name", list(simulated.DROPS))
def test_a_drop_is_within_the_interval_and_seen_within_the_day(name: str) -> None:
    draw = partial(simulated.world, of=simulated.DROPS[name])

    assert share(draw, simulated.missed) <= MOST
    assert share(draw, lambda day: simulated.seen(day) is not None) >= 0.98


def test_pooled_sums_mislead_if_the_split_changes_through_a_day_that_swings() -> None:
    day = simulated.world(0, simulated.WORLDS["swing of ±.05, rollout, 60 a minute"])

    *_, last = simulated.looks(day)

    assert last.one.high < 0
    assert last.every.low < 0 < last.every.high


def test_before_enough_blocks_and_enough_scores_of_either_release_the_interval_is_infinite() -> None:
    few, many = blocks(1.0, LEAST_SCORES - 1), blocks(0.5, 1_000)

    assert at_every_look(match_traffic(many, few))[1:] == (-inf, inf)
    assert at_every_look(match_traffic(few, many))[1:] == (-inf, inf)
    assert isfinite(at_every_look(match_traffic(many, blocks(1.0, LEAST_SCORES + 1))).low)
    short = LEAST_BLOCKS - 1
    assert at_every_look(match_traffic(blocks(0.5, 1_000, short), blocks(0.5, 1_000, short)))[1:] == (-inf, inf)


def test_releases_without_scores_have_no_difference_of_0() -> None:
    assert at_every_look(match_traffic({}, blocks(0.5, 100)))[1:] == (-inf, inf)


def test_a_side_without_a_failure_yet_is_not_certain() -> None:
    found = at_every_look(match_traffic(blocks(0.9, 100), blocks(1.0, 100)))

    assert found.low < 0 < found.mean


def test_which_side_is_the_first_turns_the_sign_alone() -> None:
    a, b = blocks(0.9, 300), blocks(0.8, 500)

    found, turned = at_every_look(match_traffic(a, b)), at_every_look(match_traffic(b, a))

    assert (found.mean, found.low, found.high) == pytest.approx((-turned.mean, -turned.high, -turned.low))


def test_the_interval_of_one_look_is_narrower_and_that_of_both_means() -> None:
    a, b = passing(0.9, 300), passing(0.8, 500)
    every, one = at_every_look(match_traffic(blocks(0.9, 300), blocks(0.8, 500))), at_one_look(a, b)

    assert every.low < one.low < one.mean < one.high < every.high
    below = ((mean(b) - interval(b).low) ** 2 + (interval(a).high - mean(a)) ** 2) ** 0.5
    assert one.low == pytest.approx(one.mean - below)


def test_the_interval_of_one_look_holds_in_95_of_100() -> None:
    rng = Random(8)
    held = 0
    for _ in range(600):
        a, b = (
            moments([(float(rng.random() < share), 1.0) for _ in range(n)]) for share, n in ((0.95, 60), (0.9, 200))
        )
        found = at_one_look(a, b)
        held += found.low <= -0.05 <= found.high

    assert held / 600 >= 0.93


def test_lost_units_widen_the_interval_by_what_they_might_have_scored() -> None:
    a, b = blocks(0.9, 1_000, lost=100), blocks(0.9, 1_000, lost=300)
    every, bounds = at_every_look(match_traffic(a, b)), bounds_with_unscored(a, b)

    assert bounds.low < every.low - 0.9 * 300 / 1_300 < every.high + 0.05 < bounds.high
    a, b = blocks(0.9, 1_000), blocks(0.8, 1_000)
    assert bounds_with_unscored(a, b) == at_every_look(match_traffic(a, b))[1:]


def test_the_time_that_it_takes_is_that_after_which_it_holds() -> None:
    sums = match_traffic(blocks(0.9, 100), blocks(0.8, 100))

    def decided(sums: MatchedSums) -> bool:
        return at_every_look(sums).high < 0

    seconds = seconds_until(decided, sums, 9_000.0)

    assert seconds is not None
    for more, expected in ((0.9, False), (1.1, True)):
        times = (9_000 + more * seconds) / 9_000
        after = match_traffic(blocks(0.9, round(100 * times)), blocks(0.8, round(100 * times)))
        assert decided(after) is expected


def test_no_time_is_known_if_no_traffic_would_decide_or_none_comes() -> None:
    sums = match_traffic(blocks(0.9, 100), blocks(0.9, 100))

    assert seconds_until(lambda sums: at_every_look(sums).high < 0, sums, 9_000.0) is None
    assert seconds_until(lambda sums: True, sums, 0.0) is None
    assert seconds_until(lambda sums: True, match_traffic({}, {}), 9_000.0) is None

"""Worlds with dependent scores around a constant mean; ``benchmarks/baselines.py`` plays 40 months of each."""

from __future__ import annotations

import pytest
from benchmarks.alerts import CONTINUOUS
from benchmarks.baselines import WORLDS, Month, month

SEEDS = (101, 102)  # the benchmark's begin with 0

REPAIRED, FLAT = "profile, baseline SD", "flat"


def months(world: str) -> list[Month]:
    return [month(WORLDS[world], CONTINUOUS, seed) for seed in SEEDS]


def alarms(found: list[Month], baseline: str) -> float:
    return sum(one.alarms[baseline] for one in found) / len(found)


@pytest.mark.parametrize(
    "world", ["day swing of ±.04", "day swing of ±.02 and wander of .01", "bursts of 5 equal answers"]
)
def test_a_learned_baseline_brings_the_false_alarms_of_a_world_to_one_in_thirty_days(world: str) -> None:
    found = months(world)

    assert alarms(found, FLAT) > 10
    assert alarms(found, REPAIRED) <= 1
    assert all(one.delays[REPAIRED] < 12 * 60 for one in found)  # a drop of 0.1 still raises an alert


@pytest.mark.parametrize(
    ("world", "design_effect"),
    [
        ("one score a minute, bursts of 5", 9),
        ("one score a minute, bursts of 20", 39),
        ("one score in three minutes, bursts of 5", 9),
    ],
)
def test_bursts_are_learned_at_one_score_a_minute_and_less(world: str, design_effect: float) -> None:
    """The sizes of bursts are geometric, so 2 · size − 1 scores are worth one."""
    found = months(world)

    assert alarms(found, FLAT) > 10
    assert alarms(found, REPAIRED) <= 1
    assert [one.learned.design_effect for one in found] == pytest.approx([design_effect] * len(found), rel=0.25)


def test_the_normal_of_a_window_is_of_the_hours_of_its_scores() -> None:
    found = months("day swing of ±.04")

    assert alarms(found, "plain mean of the profile") > 1
    assert alarms(found, "profile") <= 1


def test_a_mean_that_stays_needs_no_more_than_a_flat_baseline() -> None:
    for world in ("independent scores, a mean that stays", "one score a minute"):
        found = months(world)

        assert alarms(found, FLAT) <= 1
        assert alarms(found, REPAIRED) <= 1
        assert all(one.learned.min_scores is None for one in found)


def test_what_the_worlds_are_is_said_of_them() -> None:
    wander, bursts = (months(world)[0].learned for world in ("hour-scale wander of .01", "bursts of 20 equal answers"))

    assert (wander.is_autocorrelated, bursts.is_autocorrelated) == (True, False)
    assert wander.baseline_sd[3_600] == pytest.approx(0.009, abs=0.002)
    assert wander.min_scores is None
    assert bursts.min_scores == pytest.approx(30 * 39, rel=0.2)  # (2·20 − 1) scores are worth one

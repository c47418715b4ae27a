"""Parts of ``benchmarks/baselines.py`` and ``benchmarks/alerts.py``, played short.

False alarms stay within their budget, and delays and recoveries are as promised.
"""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.alerts import CONTINUOUS, PASS_FAIL, SETS, Law, dropping, false_alarms, recovery
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


@pytest.mark.parametrize(("law", "baseline"), [(PASS_FAIL, 0.95), (PASS_FAIL, 0.5), (CONTINUOUS, 0.85)])
def test_false_alarms_stay_within_their_budget_and_use_half_of_it(law: Law, baseline: float) -> None:
    rates = false_alarms(law, baseline, 300.0, SETS[1:2], months=25)

    assert 0.3 < rates[0] <= 1.0  # of 25 months: 0.7 ± 0.17


@pytest.mark.parametrize(("per_minute", "drop", "most"), [(30.0, 0.1, 23), (30.0, 0.3, 5), (300.0, 0.3, 3)])
def test_a_drop_is_reported_within_minutes(per_minute: float, drop: float, most: float) -> None:
    delays = dropping(PASS_FAIL, drop, per_minute, lasts=60, after=0, runs=50).delays()

    assert np.median(delays) <= most


@pytest.mark.parametrize(("per_minute", "within"), [(60.0, 90), (10.0, 360)])
def test_an_alert_ends_when_the_drop_is_over_and_does_not_come_again(per_minute: float, within: float) -> None:
    found = recovery(PASS_FAIL, 0.3, per_minute, runs=50)

    assert found.ended.max() <= within
    assert found.again < 0.1

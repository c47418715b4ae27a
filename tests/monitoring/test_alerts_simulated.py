"""A part of ``benchmarks/alerts.py``: false alarms within the budget, delays and recoveries as promised."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.alerts import CONTINUOUS, PASS_FAIL, SETS, Law, dropping, false_alarms, recovery


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

"""The estimates are right: against direct computation, against tables, and by simulation with fixed seeds."""

from __future__ import annotations

from math import isnan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.monitoring.estimates import (
    Interval,
    Moments,
    excluded_bounds,
    interval,
    mean,
    moments,
    n_eff,
    standard_error,
    wilson,
)

Scores = list[tuple[float, float]]

units = st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1)), min_size=1, max_size=60)


@given(units)
def test_the_sums_say_what_direct_computation_says(scores: Scores) -> None:
    y, w = np.array([s[0] for s in scores]), np.array([1 / s[1] for s in scores])
    middle = (w * y).sum() / w.sum()
    error = sqrt((w**2 * (y - middle) ** 2).sum()) / w.sum()

    total = moments(scores)

    assert mean(total) == pytest.approx(middle, rel=1e-9)
    assert standard_error(total) ** 2 == pytest.approx(error**2, rel=1e-9, abs=1e-12)
    assert n_eff(total) == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-9)


@given(units, units)
def test_the_sums_of_two_replicas_are_those_of_one(first: Scores, second: Scores) -> None:
    both, one = moments(first, lost=2.0) + moments(second, lost=3.0), moments(first + second, lost=5.0)

    for estimate in (mean, n_eff):
        assert estimate(both) == pytest.approx(estimate(one), rel=1e-9)
    assert standard_error(both) == pytest.approx(standard_error(one), rel=1e-9, abs=1e-6)
    assert excluded_bounds(both) == pytest.approx(excluded_bounds(one), rel=1e-9)


@given(units, st.booleans(), st.floats(0.5, 0.999))
def test_an_interval_holds_the_mean_and_stays_between_0_and_1(scores: Scores, binary: bool, level: float) -> None:
    total = moments(scores)
    low, high = interval(total, binary=binary, level=level)

    assert 0.0 <= low <= mean(total) + 1e-9
    assert mean(total) - 1e-9 <= high <= 1.0


def test_without_a_score_nothing_is_known() -> None:
    nothing = Moments()

    assert isnan(mean(nothing))
    assert isnan(standard_error(nothing))
    assert n_eff(nothing) == 0
    assert interval(nothing, binary=True) == interval(nothing, binary=False) == Interval(0, 1)
    assert excluded_bounds(nothing) == Interval(0, 1)


def test_equal_scores_have_no_error_also_where_rounding_would_make_the_square_negative() -> None:
    assert standard_error(moments([(0.1, 0.3)] * 7)) == pytest.approx(0, abs=1e-8)


def test_equal_weights_make_the_plain_mean_and_error() -> None:
    total = moments([(1, 0.5), (0, 0.5), (1, 0.5), (1, 0.5)])

    assert (mean(total), n_eff(total)) == (0.75, 4)
    assert standard_error(total) == pytest.approx(sqrt(0.75 * 0.25 / 4))


def test_failures_are_missing_and_not_zeros() -> None:
    total = moments([(1.0, 0.5), (0.0, 0.5)], lost=4.0)

    assert mean(total) == 0.5
    assert excluded_bounds(total) == Interval(2 / 8, 6 / 8)


def test_wilson_is_the_published_interval() -> None:
    assert wilson(0.9, 10) == pytest.approx((0.5958, 0.9821), abs=1e-4)  # 9 of 10
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)  # 0 of 20


@pytest.mark.parametrize(("size", "t"), [(30, 2.0452), (41, 2.0211), (61, 2.0003), (121, 1.9799)])
def test_the_t_interval_has_the_quantiles_of_the_tables(size: int, t: float) -> None:
    total = moments([(0.4, 1.0), (0.6, 1.0)] * (size // 2) + [(0.5, 1.0)] * (size % 2))
    low, high = interval(total, binary=False)

    assert (high - low) / 2 / standard_error(total) == pytest.approx(t, abs=1e-3)


@pytest.mark.parametrize(("rate", "size"), [(0.95, 15), (0.95, 30), (0.95, 150), (0.85, 30), (0.85, 150)])
def test_wilson_covers_a_high_pass_rate_also_with_few_scores(rate: float, size: int) -> None:
    passed = np.random.default_rng(7).binomial(size, rate, 4_000)

    inside = [low <= rate <= high for low, high in (wilson(share, size) for share in passed / size)]

    assert np.mean(inside) >= 0.93


def test_the_interval_of_a_continuous_metric_covers_the_mean() -> None:
    dice = np.random.default_rng(11)
    drawn = dice.beta(8.5, 1.5, (1_500, 60))

    ends = [interval(moments([(y, 0.2) for y in row]), binary=False) for row in drawn]

    assert np.mean([low <= 0.85 <= high for low, high in ends]) == pytest.approx(0.945, abs=0.02)


def test_oversampled_failures_do_not_pull_the_weighted_mean_down() -> None:
    """Fast answers pass at 0.9 and are scored at 5 %, slow ones at 0.5 and 50 %: the plain mean would say 0.70."""
    dice = np.random.default_rng(3)
    means, covered = [], []
    for _ in range(300):
        slow = dice.random(8_000) < 0.1
        y = dice.random(8_000) < np.where(slow, 0.5, 0.9)
        p = np.where(slow, 0.5, 0.05)
        taken = dice.random(8_000) < p
        total = moments([(float(one), float(at)) for one, at in zip(y[taken], p[taken], strict=True)])
        means.append(mean(total))
        covered.append(abs(mean(total) - 0.86) < 1.96 * standard_error(total))

    assert np.mean(means) == pytest.approx(0.86, abs=0.003)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.035)

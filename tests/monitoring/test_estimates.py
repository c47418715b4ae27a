"""The estimates are right: against direct computation, against tables, and by simulation with fixed seeds."""

from __future__ import annotations

from math import exp, isnan, lgamma, log, log1p, sqrt

import numpy as np
import pytest
from benchmarks import intervals
from hypothesis import given
from hypothesis import strategies as st

from spanscore.monitoring.estimates import (
    Interval,
    Moments,
    interval,
    mean,
    missing_bounds,
    missing_share,
    moments,
    n_eff,
    standard_error,
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
    both, one = moments(first, [0.5]) + moments(second, [0.2, 0.1]), moments(first + second, [0.5, 0.2, 0.1])

    for estimate in (mean, n_eff):
        assert estimate(both) == pytest.approx(estimate(one), rel=1e-9)
    assert standard_error(both) == pytest.approx(standard_error(one), rel=1e-9, abs=1e-6)
    assert missing_bounds(both) == pytest.approx(missing_bounds(one), rel=1e-9)


@given(units, st.floats(0.7, 0.999))
def test_an_interval_holds_the_mean_and_stays_between_0_and_1(scores: Scores, level: float) -> None:
    total = moments(scores)
    low, high = interval(total, level=level)

    assert 0.0 <= low <= mean(total) + 1e-9
    assert mean(total) - 1e-9 <= high <= 1.0


def test_without_a_score_nothing_is_known() -> None:
    nothing = Moments()

    assert isnan(mean(nothing))
    assert isnan(standard_error(nothing))
    assert n_eff(nothing) == 0
    assert interval(nothing) == missing_bounds(nothing) == Interval(0, 1)
    assert missing_share(nothing) == 0.0


def test_equal_scores_have_no_error_also_where_rounding_would_make_the_square_negative() -> None:
    assert standard_error(moments([(0.1, 0.3)] * 7)) == pytest.approx(0, abs=1e-8)


def test_equal_weights_make_the_plain_mean_and_error() -> None:
    total = moments([(1, 0.5), (0, 0.5), (1, 0.5), (1, 0.5)])

    assert (mean(total), n_eff(total)) == (0.75, 4)
    assert standard_error(total) == pytest.approx(sqrt(0.75 * 0.25 / 4))


def test_what_is_lost_is_missing_and_not_zero() -> None:
    total = moments([(1.0, 0.5), (0.0, 0.5)] * 5_000, lost=[0.25] * 5_000)

    assert (mean(total), missing_share(total)) == (0.5, 0.5)
    assert missing_bounds(total) == pytest.approx((1 / 4, 3 / 4), abs=0.02)


@given(units, st.lists(st.floats(0.001, 1), max_size=9))
def test_the_bounds_hold_the_interval(scores: Scores, lost: list[float]) -> None:
    (low, high), (lowest, highest) = interval(moments(scores)), missing_bounds(moments(scores))
    worst, best = missing_bounds(moments(scores, lost))

    assert (low, high) == (lowest, highest)  # nothing was lost
    assert worst <= mean(moments(scores)) + 1e-9
    assert mean(moments(scores)) - 1e-9 <= best


def test_thirty_perfect_scores_leave_room_for_one_that_is_not() -> None:
    perfect = [interval(moments([(1.0, 1.0)] * n)) for n in (29, 30, 300)]

    assert [round(low, 2) for low, _ in perfect] == [0.9, 0.9, 0.99]
    assert {high for _, high in perfect} == {1.0}


def test_the_interval_has_no_step_at_any_number_of_scores() -> None:
    low = [interval(moments([(1.0, 0.5), (0.8, 0.5)] * n)).low for n in range(1, 60)]

    assert low == sorted(low)


@pytest.mark.parametrize("size", [5, 10, 20, 30, 50, 100, 1_000])
def test_the_interval_of_a_share_covers_it_whatever_it_is(size: int) -> None:
    """Exactly, by the binomial law: Wilson's covers .84 to .92 of some shares near 1."""
    ends = [interval(Moments(size, size, k, size, k, k)) for k in range(size + 1)]
    shares = [*np.linspace(0.5, 0.99, 50), 0.995, 0.999]

    covered = [sum(_binomial(k, size, p) for k, (low, high) in enumerate(ends) if low <= p <= high) for p in shares]

    assert min(covered) >= 0.945


def _binomial(k: int, n: int, p: float) -> float:
    ways = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
    return exp(ways + k * log(p) + (n - k) * log1p(-p))


@pytest.mark.parametrize("law", [law for law in intervals.LAWS if law != "pass/fail"])
@pytest.mark.parametrize("size", [7, 30, 100])
def test_the_interval_of_other_scores_covers_the_mean(law: str, size: int) -> None:
    """A look at the committed table: 600 samples, so that .93 may be .905 by chance."""
    cells = [
        cell
        for cell in intervals.cells(600, sizes=(size,), methods=(intervals.CHOSEN,), laws=(law,))
        if cell.mean < 1.0
    ]

    assert min(cell.covered for cell in cells) >= 0.905


@pytest.mark.parametrize("mean_of_rest", [0.2, 0.9])
def test_bounds_hold_the_truth_where_bad_answers_fail_more_often(mean_of_rest: float) -> None:
    rng = np.random.default_rng(17)

    held = [_bounds_hold(rng, mean_of_rest) for _ in range(200)]

    assert np.mean(held) >= 0.95


def _bounds_hold(rng: np.random.Generator, mean_of_bad: float) -> bool:
    """A day of 4,000 units, a fifth of them bad: the judge fails on all of these, or on a few that all count as worst."""
    bad = rng.random(4_000) < 0.2
    y = np.where(bad, rng.random(4_000) < mean_of_bad, rng.random(4_000) < 0.95).astype(float)
    p = np.where(rng.random(4_000) < 0.3, 0.5, 0.05)
    taken = rng.random(4_000) < p
    fails = np.where(y == 0.0, rng.random(4_000) < 0.98, rng.random(4_000) < 0.01)
    scored, lost = taken & ~fails, taken & fails
    bounds = missing_bounds(moments(zip(y[scored], p[scored], strict=True), lost=p[lost]))
    return bool(bounds.low <= 0.2 * mean_of_bad + 0.8 * 0.95 <= bounds.high)


def test_bounds_hold_the_truth_where_bursts_are_worse_and_find_no_room() -> None:
    rng = np.random.default_rng(18)
    days = [_day_of_bursts(rng) for _ in range(200)]

    held, misled = ([low <= truth <= high for truth, (low, high) in pairs] for pairs in zip(*days, strict=True))

    assert np.mean(held) >= 0.95
    assert np.mean(misled) == 0.0  # the mean of the scores alone, which are of quiet minutes


def _day_of_bursts(rng: np.random.Generator) -> tuple[tuple[float, Interval], tuple[float, Interval]]:
    """Every tenth of 300 minutes has ten times the traffic, and worse answers; half are sampled, 20 of which find room."""
    burst = np.arange(300) % 10 == 0
    units = rng.poisson(np.where(burst, 100, 10))
    chosen = rng.binomial(units, 0.5)
    scored = np.minimum(chosen, 20)
    passed = rng.binomial(scored, np.where(burst, 0.4, 0.9))
    scores = [(1.0, 0.5)] * int(passed.sum()) + [(0.0, 0.5)] * int((scored - passed).sum())
    sums = moments(scores, lost=[0.5] * int((chosen - scored).sum()))
    truth = float((units * np.where(burst, 0.4, 0.9)).sum() / units.sum())
    return (truth, missing_bounds(sums)), (truth, interval(sums))


def test_oversampled_failures_do_not_pull_the_weighted_mean_down() -> None:
    """Fast answers pass at 0.9 and are scored at 5 %, slow ones at 0.5 and 50 %: the plain mean would be 0.70."""
    rng = np.random.default_rng(3)
    means, covered = [], []
    for _ in range(300):
        slow = rng.random(8_000) < 0.1
        y = rng.random(8_000) < np.where(slow, 0.5, 0.9)
        p = np.where(slow, 0.5, 0.05)
        taken = rng.random(8_000) < p
        total = moments([(float(one), float(at)) for one, at in zip(y[taken], p[taken], strict=True)])
        means.append(mean(total))
        covered.append(abs(mean(total) - 0.86) < 1.96 * standard_error(total))

    assert np.mean(means) == pytest.approx(0.86, abs=0.003)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.035)

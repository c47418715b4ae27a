"""The sums of two releases over the same hours."""

from __future__ import annotations

from random import Random

import pytest
from tests.monitoring.test_sequential import blocks, passing

from spanscore.monitoring.estimates import Moments, mean, n_eff
from spanscore.monitoring.releases import match_traffic


def test_a_split_that_changes_with_the_mean_makes_no_difference_within_the_hour() -> None:
    good, bad = range(4), range(4, 8)
    a = {block: passing(0.9, 90) for block in good} | {block: passing(0.6, 10) for block in bad}
    b = {block: passing(0.9, 10) for block in good} | {block: passing(0.6, 90) for block in bad}

    sums = match_traffic(a, b)

    assert mean(sums.a) == pytest.approx(mean(sums.b))
    assert sums.a.w == pytest.approx(sums.b.w)


def test_a_split_that_stays_leaves_the_means_and_the_effective_scores_as_they_are() -> None:
    a, b = blocks(0.8, 1_200, 12), blocks(0.9, 240, 12)

    sums = match_traffic(a, b)

    assert (mean(sums.a), mean(sums.b)) == pytest.approx((0.8, 0.9))
    assert (n_eff(sums.a), n_eff(sums.b)) == pytest.approx((1_200, 240))
    assert (sums.blocks, sums.design_effect) == (12, 1.0)


def test_hours_without_scores_of_either_release_are_left_out() -> None:
    a = {0: passing(0.8, 100), 4: passing(0.1, 100)}
    b = {0: passing(0.9, 100), 8: passing(0.2, 100)}

    sums = match_traffic(a, b)

    assert (mean(sums.a), mean(sums.b), sums.blocks) == pytest.approx((0.8, 0.9, 1))
    assert match_traffic({0: passing(0.8, 10)}, {4: passing(0.8, 10)})[:3] == (Moments(), Moments(), 0)


def test_scores_that_repeat_each_other_within_a_quarter_of_an_hour_count_as_one() -> None:
    rng = Random(3)
    a, b = ({block: passing(float(rng.random() < share), 10) for block in range(400)} for share in (0.8, 0.6))

    sums = match_traffic(a, b)

    assert sums.design_effect == pytest.approx(10, rel=0.15)
    assert n_eff(sums.b) == pytest.approx(4_000 / sums.design_effect)

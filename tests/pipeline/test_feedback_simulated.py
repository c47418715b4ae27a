"""A part of ``benchmarks/feedback.py``: complaints lead to judging, and the population's mean is unchanged."""

from __future__ import annotations

from statistics import fmean

from benchmarks.feedback import one_run


def test_judging_what_was_complained_of_does_not_move_the_mean_of_all() -> None:
    runs = [one_run(seed, 10_000) for seed in range(20)]

    assert abs(fmean(run.population for run in runs)) <= 0.009  # three standard errors; of all 400 runs .0007 ± .0005
    assert fmean(run.naive - run.population for run in runs) < -0.01
    assert abs(fmean(run.complained for run in runs) - 1) < 0.03

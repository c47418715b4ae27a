"""The test for a changed judge: exact, for any size, with rare false alarms."""

from __future__ import annotations

import re
from math import comb
from pathlib import Path

import numpy as np
import pytest

from spanscore.monitoring.judge_check_runs import PairedAnswer, PairedRuns, compare_runs, least_turned, sign_test

RATES = (0.05, 0.0083, 0.00069, 1e-5)
RIGHT, WRONG = (1.0, True), (0.0, False)


def runs(first: list[tuple[float, bool]], now: list[tuple[float, bool]], samples: int | None = None) -> PairedRuns:
    pairs = [PairedAnswer(a, b, was, is_) for (a, was), (b, is_) in zip(first, now, strict=True)]
    return compare_runs(len(pairs) if samples is None else samples, pairs)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (10, 10, 1.0), (1, 9, 0.021484375), (3, 9, 0.14599609375), (0, 60, 2 * 0.5**60)],
)
def test_the_sign_test_is_the_exact_binomial_one(one: int, other: int, p: float) -> None:
    """The numbers are those of R's ``binom.test``."""
    assert sign_test(one, other) == sign_test(other, one) == pytest.approx(p, rel=1e-12)


def test_a_judge_that_answers_alike_has_not_changed() -> None:
    run = runs([RIGHT, WRONG] * 30, [RIGHT, WRONG] * 30)

    assert (run.p, run.agreement, run.first_agreement) == (1.0, 0.5, 0.5)


def test_a_judge_that_errs_both_ways_is_seen_by_its_agreement() -> None:
    passing, failing = [(1.0, True)] * 30, [(0.0, True)] * 30
    run = runs(passing + failing, [(0.0, False)] * 15 + passing[15:] + [(1.0, False)] * 15 + failing[15:])

    assert (run.raised, run.lowered, run.lost, run.gained) == (15, 15, 30, 0)
    assert run.p < 1e-6


def test_degrees_count_by_their_direction() -> None:
    run = runs([(0.75, True)] * 20, [(0.7, True)] * 20)

    assert (run.lowered, run.raised, run.lost) == (20, 0, 0)
    assert run.p == pytest.approx(4 * 0.5**20)


def test_with_less_than_half_of_the_answers_nothing_can_be_said() -> None:
    assert runs([RIGHT] * 30, [RIGHT] * 30, samples=60).is_enough
    assert not runs([RIGHT] * 29, [RIGHT] * 29, samples=60).is_enough
    assert not runs([], [], samples=60).is_enough


@pytest.mark.parametrize("rate", RATES)
def test_of_an_unchanged_judge_p_is_below_a_rate_at_most_so_often(rate: float) -> None:
    """Exact for any number of samples with changed answers: each changes in one direction or the other by a coin."""
    for differing in (1, 5, 12, 30, 100, 400):
        below = [up for up in range(differing + 1) if 2 * sign_test(up, differing - up) < rate]
        chance = sum(comb(differing, up) for up in below) / (1 << differing)

        assert 2 * chance <= rate  # of the two tests together


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5])
def test_false_alarms_of_a_noisy_judge_are_as_rare_as_stated(noise: float) -> None:
    """Runs of 60 labels every 6 h for 30 days against one first run, of a judge that answers otherwise by chance."""
    rng, months, share = np.random.default_rng(7), 150, 1 / 12
    rate = 6 / 24 / 30 * share
    human = np.arange(60) % 5 > 0
    alarms = 0
    for _ in range(months):
        answers = human ^ (rng.random((121, 60)) < noise)
        right = answers == human
        alarms += sum(_p(answers[0], answers[run], right[0], right[run]) < rate for run in range(1, 121))

    assert alarms / months <= share + 3 * (share / months) ** 0.5


def _p(first: np.ndarray, now: np.ndarray, was: np.ndarray, is_: np.ndarray) -> float:
    shift = sign_test(int((now & ~first).sum()), int((first & ~now).sum()))
    return 2 * min(shift, sign_test(int((is_ & ~was).sum()), int((was & ~is_).sum())))


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "watch-the-judge.md"
ROWS = re.findall(r"^\| (\d+) \| (\d+) % \| ([\d%| ]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("labels", "differs", "seen"), ROWS)
def test_a_change_is_seen_as_often_as_the_page_says(labels: str, differs: str, seen: str) -> None:
    found = [_seen_within_a_day(int(labels), int(differs) / 100, turned) for turned in (0.05, 0.1, 0.2, 0.3)]

    assert found == pytest.approx([int(cell) / 100 for cell in re.findall(r"\d+", seen)], abs=0.12)


def test_the_page_has_a_row_for_each_simulated_case() -> None:
    assert [row[:2] for row in ROWS] == [(labels, differs) for labels in ("60", "120", "240") for differs in ("0", "5")]


def _seen_within_a_day(labels: int, noise: float, turned: float) -> float:
    """Share of changes, from pass to fail, that one of four runs detects; with one drop alert of five windows."""
    rng, changes, rate = np.random.default_rng(3), 150, 6 / 24 / 30 / 6
    human = np.arange(labels) % 5 > 0
    seen = 0
    for _ in range(changes):
        first = human ^ (rng.random(labels) < noise)
        changed = human & ~(rng.random(labels) < turned / 0.8)
        runs = changed ^ (rng.random((4, labels)) < noise)
        seen += min(_p(first, run, first == human, run == human) for run in runs) < rate
    return seen / changes


@pytest.mark.parametrize("rate", RATES)
def test_so_many_answers_must_turn_and_one_fewer_are_not_enough(rate: float) -> None:
    least = least_turned(rate)

    assert runs([RIGHT] * 60, [WRONG] * least + [RIGHT] * (60 - least)).p < rate
    assert runs([RIGHT] * 60, [WRONG] * (least - 1) + [RIGHT] * (61 - least)).p >= rate

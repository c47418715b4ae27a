"""Parts of labels, sets of demonstrations, and the test that a gain has to pass."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from spanscore.metrics.kit.tuned_prompts import Paired, best_of, demonstration_sets, split


def test_labels_are_split_in_30_35_and_35_percent() -> None:
    parts = split(range(200), seed=0)

    assert [len(part) for part in parts] == [60, 70, 70]
    assert sorted(place for part in parts for place in part) == list(range(200))


@pytest.mark.parametrize("seed", range(5))
def test_no_session_stands_in_two_parts(seed: int) -> None:
    groups = Random(seed).choices(range(40), k=200)

    parts = split(groups, seed)

    assert sum(len({groups[place] for place in part}) for part in parts) == len(set(groups))
    assert all(abs(len(part) - share * 200) < 8 for part, share in zip(parts, (0.3, 0.35, 0.35), strict=True))


def test_split_and_sets_are_the_same_for_the_same_seed_alone() -> None:
    verdicts = [0, 1] * 20

    again = split(range(40), 3), demonstration_sets(verdicts, 4, 16, 3)
    other = split(range(40), 4), demonstration_sets(verdicts, 4, 16, 4)

    assert again == (split(range(40), 3), demonstration_sets(verdicts, 4, 16, 3))
    assert (again[0] != other[0], again[1] != other[1]) == (True, True)


def test_sets_are_different_and_show_a_rare_verdict_too() -> None:
    verdicts = [1] * 40 + [0] * 4

    sets = demonstration_sets(verdicts, 4, 16, seed=0)

    assert len({frozenset(one) for one in sets}) == 16
    assert all(Counter(verdicts[place] for place in one) == {0: 2, 1: 2} for one in sets)


def test_of_few_labels_there_are_as_many_sets_as_there_can_be() -> None:
    assert [sorted(one) for one in demonstration_sets([0, 1], 4, 16, seed=0)] == [[0, 1]]


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    # of 9 and 3: (220 + 66 + 12 + 1) of 4,096 ways
    [(0, 0, 1.0), (4, 0, 1 / 16), (5, 0, 1 / 32), (9, 3, 299 / 4096), (3, 9, 1 - 79 / 4096)],
)
def test_p_is_that_of_the_exact_one_sided_mcnemar_test(gained: int, lost: int, p: float) -> None:
    assert Paired(50, 30, gained, lost).p == p


def test_a_failure_of_the_changed_judge_alone_is_a_wrong_answer() -> None:
    before, after = [True, False, None, True], [None, True, True, True]

    assert Paired.of(before, after) == Paired(labels=3, before=2, gained=1, lost=1)


def test_the_candidate_that_got_most_right_is_chosen() -> None:
    before = [True, False, False, True]

    assert best_of(before, [[True] * 3 + [False], [True] * 4, [False] * 4]) == (1, Paired(4, 2, 2, 0))


def test_none_is_chosen_where_none_did_better() -> None:
    before = [True, False, False, True]

    assert best_of(before, [before, [False, True, False, True]]) is None
    assert best_of(before, []) is None


def test_the_labels_that_are_asked_for_show_such_a_gain_four_times_out_of_five() -> None:
    gain, loss = 0.17, 0.05
    needed = Paired(100, 70, gained=17, lost=5).labels_needed
    assert needed is not None

    shown = sum(_simulated(round(needed * 0.35), gain, loss, Random(run)).shown for run in range(500))

    assert 0.74 <= shown / 500 <= 0.86


def test_no_number_of_labels_shows_what_is_not_there() -> None:
    assert Paired(100, 70, gained=3, lost=3).labels_needed is None


def _simulated(labels: int, gain: float, loss: float, rng: Random) -> Paired:
    drawn = [rng.random() for _ in range(labels)]
    return Paired(labels, 0, sum(u < gain for u in drawn), sum(gain <= u < gain + loss for u in drawn))

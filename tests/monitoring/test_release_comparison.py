"""What is said of two releases, and when."""

from __future__ import annotations

import re

import pytest
from tests.monitoring.test_sequential import passing

from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.release_comparison import Release, ReleaseComparison, ReleaseVerdict
from spanscore.monitoring.releases import ReleaseScores, compared


def comparison(a: Moments, b: Moments, *, tolerance: float = 0.0, rate: float = 0.1) -> ReleaseComparison:
    return ReleaseComparison("faithful", Release("1.4", a, rate), Release("1.5", b, rate), tolerance=tolerance)


def test_a_release_that_is_worse_is_told_with_by_how_much_and_from_what() -> None:
    found = comparison(passing(0.9, 412), passing(0.7, 398))

    assert found.verdict is ReleaseVerdict.WORSE
    assert str(found) == "1.5 is worse on faithful by 0.20, 0.11 to 0.29, from 412 and 398 effective scores"
    assert found.seconds_left == 0.0


@pytest.mark.parametrize(
    ("share", "tolerance", "verdict", "words"),
    [
        (0.90, 0.10, ReleaseVerdict.NO_WORSE, "differs on faithful by .0.00, .* within the tolerance of 0.1"),
        (0.97, 0.00, ReleaseVerdict.NO_WORSE, "1.5 is better on faithful by 0.07, 0.04 to 0.10, from"),
        (0.85, 0.10, ReleaseVerdict.NO_WORSE, "1.5 is worse on faithful by 0.05, .* within the tolerance of 0.1"),
        (0.85, 0.05, ReleaseVerdict.UNDECIDED, "is worse .* by more than the tolerance of 0.05 is not decided yet"),
        (0.90, 0.00, ReleaseVerdict.UNDECIDED, "over 30 days: allow a larger --tolerance"),
        (0.89, 0.04, ReleaseVerdict.UNDECIDED, "is not decided yet; some [0-9]+ hours more at this traffic"),
        (0.80, 0.05, ReleaseVerdict.WORSE, "1.5 is worse on faithful by 0.10, 0.06 to 0.14"),
    ],
)
def test_the_whole_interval_decides(share: float, tolerance: float, verdict: ReleaseVerdict, words: str) -> None:
    found = comparison(passing(0.9, 2_000), passing(share, 2_000), tolerance=tolerance, rate=0.01)

    assert found.verdict is verdict
    assert re.search(words, str(found)), str(found)


def test_too_few_scores_are_no_verdict_and_say_how_long_it_takes() -> None:
    found = comparison(passing(0.9, 400), passing(0.5, 10), rate=0.01)

    assert found.verdict is ReleaseVerdict.UNDECIDED
    assert "too little data on faithful, 400 and 10 effective scores: 20 of each are needed; some " in str(found)
    assert found.as_json()["interval"] is None
    assert found.seconds_left is not None


def test_a_side_without_a_score_is_told_and_nothing_in_it_is_0() -> None:
    found = comparison(passing(0.9, 400), Moments())

    assert "one has none yet" in str(found)
    assert (found.as_json()["difference"], found.as_json()["b"]["mean"]) == (None, None)


def test_what_either_side_lost_is_told_with_what_it_might_change() -> None:
    found = comparison(passing(0.9, 400), passing(0.6, 400, lost=100))

    assert "0.0% and 20.0% of the chosen units have no score: whatever they would have got, the difference lies" in str(
        found
    )
    assert found.lost is not None
    assert found.lost.low < found.difference.low
    assert comparison(passing(0.9, 400), passing(0.6, 400, lost=1)).lost is None


def test_scores_of_two_judges_are_never_compared() -> None:
    a = ReleaseScores("1.4", {"faithful": {"1/small": passing(0.9, 400)}}, seconds=3_600)
    b = ReleaseScores("1.5", {"faithful": {"1/large": passing(0.5, 400)}}, seconds=3_600)

    (found,) = compared(["faithful"], a, b)
    (across,) = compared(["faithful"], a, b, across_series=True)

    assert found.verdict is ReleaseVerdict.UNDECIDED
    assert "1.4 was scored as 1/small and 1.5 as 1/large, which cannot be compared" in str(found)
    assert across.verdict is ReleaseVerdict.WORSE


def test_of_several_series_the_one_counts_in_which_both_have_most_and_the_others_are_named() -> None:
    a = ReleaseScores(
        "1.4", {"faithful": {"1/j": passing(0.9, 400), "2/j": passing(0.8, 90)}}, {"faithful": (5.0, 5.0)}
    )
    b = ReleaseScores("1.5", {"faithful": {"1/j": passing(0.9, 30), "2/j": passing(0.8, 500)}})

    (found,) = compared(["faithful"], a, b)

    assert (found.a.scores, found.b.scores, found.a.sums.lost) == (90, 500, 5.0)
    assert found.notes == ("of series 2/j alone; 1/j left out",)


def test_a_metric_that_nobody_scored_is_not_left_out() -> None:
    found = list(compared(["faithful", "polite"], ReleaseScores("1.4"), ReleaseScores("1.5")))

    assert [one.verdict for one in found] == [ReleaseVerdict.UNDECIDED] * 2

"""The statements about two releases, and their conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from tests.monitoring.test_sequential import blocks

from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.releases import (
    Release,
    ReleaseComparison,
    ReleasePair,
    ReleaseScores,
    ReleaseVerdict,
    compare_releases,
)

BEGIN = 1_782_900_000  # 2026-07-01T10:00Z
END = BEGIN + 10 * 900


def comparison(
    a: Mapping[int, Moments], b: Mapping[int, Moments], *, tolerance: float = 0.0, obstacle: str = ""
) -> ReleaseComparison:
    sides = Release("1.4", a), Release("1.5", b)
    return ReleaseComparison(
        metric="faithful", a=sides[0], b=sides[1], since_s=BEGIN, end_s=END, obstacle=obstacle, tolerance=tolerance
    )


def test_a_release_that_is_worse_is_reported_with_by_how_much_and_from_what() -> None:
    found = comparison(blocks(0.9, 412), blocks(0.7, 398))

    assert found.verdict is ReleaseVerdict.WORSE
    assert str(found) == "1.5 is worse on faithful by 0.20, 0.11 to 0.28, from 412 and 398 effective scores"
    assert found.seconds_left == 0.0


@pytest.mark.parametrize(
    ("share", "tolerance", "verdict", "words"),
    [
        (0.90, 0.10, ReleaseVerdict.NO_WORSE, "differs on faithful by .0.00, .* within the tolerance of 0.1"),
        (0.97, 0.00, ReleaseVerdict.NO_WORSE, "1.5 is better on faithful by 0.07, 0.05 to 0.09, from"),
        (0.85, 0.10, ReleaseVerdict.NO_WORSE, "1.5 is worse on faithful by 0.05, .* within the tolerance of 0.1"),
        (0.85, 0.05, ReleaseVerdict.UNDECIDED, "is worse .* by more than the tolerance of 0.05 is not decided yet"),
        (0.90, 0.00, ReleaseVerdict.UNDECIDED, "over 30 days: set a larger --tolerance"),
        (0.89, 0.03, ReleaseVerdict.UNDECIDED, "is not decided yet; some [0-9]+ (hours|minutes) more at this traffic"),
        (0.80, 0.05, ReleaseVerdict.WORSE, "1.5 is worse on faithful by 0.10, 0.07 to 0.13"),
    ],
)
def test_the_whole_interval_decides(share: float, tolerance: float, verdict: ReleaseVerdict, words: str) -> None:
    found = comparison(blocks(0.9, 2_000), blocks(share, 2_000), tolerance=tolerance)

    assert found.verdict is verdict
    assert re.search(words, str(found)), str(found)


def test_before_ten_blocks_the_time_of_the_first_answer_is_given() -> None:
    found = comparison(blocks(0.9, 400, 4), blocks(0.5, 400, 4))

    assert found.verdict is ReleaseVerdict.UNDECIDED
    assert str(found) == (
        "not yet on faithful: there are scores in 4 of the 10 quarters of an hour that are needed; the first answer is due at "
        "2026-07-01T14:00Z, if both keep their traffic"
    )
    assert (found.as_json()["interval"], found.as_json()["not_before"]) == (None, "2026-07-01T14:00Z")


def test_too_few_scores_are_no_verdict_and_say_how_long_it_takes() -> None:
    found = comparison(blocks(0.9, 400), blocks(0.5, 10))

    assert found.verdict is ReleaseVerdict.UNDECIDED
    assert "too little data on faithful, 400 and 10 effective scores: 20 of each are needed; some " in str(found)
    assert found.as_json()["interval"] is None
    assert found.seconds_left is not None


def test_a_release_without_traffic_takes_no_time_that_is_known() -> None:
    ended = "1.4 has no traffic any more"
    few, many = (comparison(blocks(0.9, 400, n), blocks(0.9, 400, n), obstacle=ended) for n in (4, 10))

    assert str(few).endswith(f"in hours in which both have scores; {ended}")
    assert str(many).endswith(f"is not decided yet; {ended}")
    assert (few.not_before_s, many.seconds_left) == (None, None)


def test_lost_units_of_either_side_are_reported_with_what_they_might_change() -> None:
    found = comparison(blocks(0.9, 400), blocks(0.6, 400, lost=100))

    assert "0.0% and 20.0% of the sampled units have no score of the configured judge: for any scores of these" in str(
        found
    )
    assert found.lost is not None
    assert found.lost.low < found.difference.low
    assert comparison(blocks(0.9, 400), blocks(0.6, 400, lost=1)).lost is None


# --- evaluator versions, and the time over which both are counted ----------------------------------------------------


def steps(share: float, n: int, begin: int = BEGIN) -> dict[int, Moments]:
    return {begin + 900 * number: sums for number, sums in blocks(share, n).items()}


def pair(a: Mapping[str, Mapping[int, Moments]], b: Mapping[str, Mapping[int, Moments]], end: int = END) -> ReleasePair:
    """Return two releases, of evaluator version → sums by step."""
    sides = (ReleaseScores(name, {"faithful": of} if of else {}) for name, of in (("1.4", a), ("1.5", b)))
    return ReleasePair(*sides, end)


def test_scores_of_two_judges_are_never_compared() -> None:
    both = pair({"1/small": steps(0.9, 400)}, {"1/large": steps(0.5, 400)})

    (found,) = compare_releases(["faithful"], both)
    (across,) = compare_releases(["faithful"], both, across_evaluator_versions=True)

    assert found.verdict is ReleaseVerdict.UNDECIDED
    assert "1.4 was scored as 1/small and 1.5 as 1/large, which cannot be compared" in str(found)
    assert across.verdict is ReleaseVerdict.WORSE


def test_of_several_series_the_one_counts_in_which_both_have_most_and_the_others_are_named() -> None:
    a = {"1/j": steps(0.9, 400), "2/j": steps(0.8, 90)}
    b = {"1/j": steps(0.9, 30), "2/j": steps(0.8, 500)}

    (found,) = compare_releases(["faithful"], pair(a, b))

    assert found.scores == pytest.approx((90, 500))
    assert found.notes == ("of evaluator version 2/j only; 1/j left out",)


def test_a_metric_without_scores_is_not_left_out() -> None:
    found = list(compare_releases(["faithful", "polite"], pair({"1/j": steps(0.9, 400)}, {})))

    assert [one.verdict for one in found] == [ReleaseVerdict.UNDECIDED] * 2
    assert "no scores yet from 1.5" in str(found[0])
    assert "no scores yet from 1.4 and 1.5" in str(found[1])
    assert (found[0].as_json()["difference"], found[0].as_json()["b"]["mean"]) == (None, None)


def test_both_are_counted_from_the_first_score_of_the_later_release_on_in_whole_blocks() -> None:
    a = steps(0.5, 1_000, BEGIN - 9_000) | steps(0.9, 400)
    later = BEGIN + 60

    (found,) = compare_releases(["faithful"], pair({"1/j": a}, {"1/j": steps(0.9, 400, later)}, later + 3 * 900 + 10))

    assert found.since_s == later
    assert found.b.blocks.keys() == {0, 1, 2}
    assert "the first answer is due at 2026-07-01T12:31Z" in str(found)


def test_releases_one_after_the_other_have_no_hour_in_common() -> None:
    both = pair({"1/j": steps(0.9, 400, BEGIN - 18_000)}, {"1/j": steps(0.5, 400)})

    (found,) = compare_releases(["faithful"], both)

    assert found.verdict is ReleaseVerdict.UNDECIDED
    assert "there are scores in 0 of the 10 quarters of an hour" in str(found)
    assert "1.4 has no traffic any more" in str(found)

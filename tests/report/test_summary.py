"""Rows → summary: weighted means, missing is never zero, a bad stretch is found and chance is not one."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.report.builders import TEN_O_CLOCK, rows

from spanscore.core.score import Kind
from spanscore.metrics.response_relevancy import NONCOMMITTAL
from spanscore.report import ReportRow, summarize
from spanscore.report.findings import headline, metric_finding, period, threshold
from spanscore.report.rows import cases_by_question, count_equally_low, failed_metrics, select_cases
from spanscore.report.summaries import worst_stretch

GOOD, BAD = [0.9, 0.8, 1.0, 0.7] * 30, [0.3, 0.2, 0.4] * 10


def test_mean_weighs_each_score_by_its_chance_of_being_chosen() -> None:
    found = summarize([*rows(0.0, probability=0.5), *(replace(row, unit="b", probability=1.0) for row in rows(0.9))])

    assert found.metrics[0].mean == pytest.approx(0.3)


def test_a_unit_without_a_score_is_missing_and_no_zero() -> None:
    (metric,) = summarize(rows(0.8, None, None, 0.6)).metrics

    assert metric.mean == pytest.approx(0.7)
    assert metric.outcomes == {"scored": 2, "judge_error": 2}


def test_time_without_scores_is_a_gap_with_its_outcomes() -> None:
    found = summarize(rows(*GOOD[:60], *[None] * 60, *GOOD[:60]))

    empty = [bucket for bucket in found.metrics[0].buckets if not bucket.scores]

    assert empty
    assert all(bucket.mean is None and bucket.low is None for bucket in empty)
    assert sum(bucket.outcomes["judge_error"] for bucket in empty) >= 50


def test_what_has_nothing_to_score_is_apart_from_what_was_lost() -> None:
    outcomes = ["missing_field", "no_value", "judge_error", "queue_full", "not_sampled", "filtered",
                "missing_field or not_sampled", "judge_error or missing_field"]  # fmt: skip
    given = [replace(row, outcome=outcome) for row, outcome in zip(rows(*[None] * 8), outcomes, strict=True)]

    buckets = summarize(given).metrics[0].buckets

    assert sum(bucket.nothing_to_score for bucket in buckets) == 3
    assert sum(bucket.lost for bucket in buckets) == 3


def test_buckets_are_neighbours_on_round_times_and_hold_every_score() -> None:
    found = summarize(rows(*GOOD, every_s=7.0))
    buckets = found.metrics[0].buckets

    assert all(before.end_ns == after.start_ns for before, after in pairwise(buckets))
    assert buckets[0].start_ns % found.width_ns == 0
    assert sum(bucket.scores for bucket in buckets) == len(GOOD)
    assert len(buckets) <= 48


def test_one_score_a_year_for_ten_years_makes_few_buckets() -> None:
    found = summarize(rows(*GOOD[:10], every_s=365 * 86400))

    assert 1 <= len(found.metrics[0].buckets) <= 3


def test_bad_stretch_is_the_headline() -> None:
    found = summarize(rows(*GOOD, *BAD, *GOOD, every_s=2.0))

    assert headline(found) == "faithfulness fell from 0.85 to 0.30 between 10:04:00 and 10:05:00"


def test_bad_stretch_at_the_end_has_not_recovered() -> None:
    assert headline(summarize(rows(*GOOD, *BAD, every_s=2.0))).endswith("at 10:04:00 and has not recovered")


def test_bad_stretch_at_the_beginning_is_over() -> None:
    assert headline(summarize(rows(*BAD, *GOOD, every_s=2.0))) == "faithfulness was 0.30 until 10:01:00, then 0.85"


def test_a_pass_rate_reads_in_percent() -> None:
    values = [1.0] * 60 + [0.0] * 20 + [1.0] * 60

    assert "the pass rate fell from 100\u00a0% to 0\u00a0%" in headline(
        summarize(rows(*values, kind="binary", every_s=2.0))
    )


def test_lower_is_better_falls_in_quality() -> None:
    lower = [
        replace(row, quality=1 - (row.value or 0), direction="lower")
        for row in rows(*BAD, *GOOD[:60], *BAD, every_s=2.0)
    ]

    assert headline(summarize(lower)).startswith("the quality of faithfulness fell from 0.70 to 0.15")


def test_nothing_happened_is_said_with_its_level() -> None:
    found = summarize(rows(*GOOD))

    assert metric_finding(found.metrics[0], found) == "faithfulness held at 0.85 on 120 scores"


@pytest.mark.parametrize(
    ("kind", "pass_at", "said"),
    [
        ("continuous", (0.5,), "pass at 0.5 (default)"),
        ("continuous", (0.7,), "pass at 0.7"),
        ("continuous", (0.5, 0.7), "pass at 0.5 or 0.7"),
        ("continuous", (), ""),
        ("binary", (1.0,), ""),
    ],
)
def test_from_where_a_score_passes_is_said(kind: Kind, pass_at: tuple[float, ...], said: str) -> None:
    assert threshold(kind, pass_at) == said


def test_metric_that_was_never_scored_says_why() -> None:
    found = summarize(rows(None, None, outcome="missing_field"))

    assert metric_finding(found.metrics[0], found) == (
        "faithfulness: no score among 2 units (a field that the metric needs is missing 2)"
    )


def test_chance_alone_makes_a_bad_stretch_in_fewer_than_one_report_in_a_hundred() -> None:
    rng = random.Random(20261121)
    chance = [[[(1.0, float(rng.random() < 0.8)) for _ in range(8)] for _ in range(48)] for _ in range(200)]

    assert sum(worst_stretch(buckets) is not None for buckets in chance) <= 2


def test_oversampled_low_scores_are_no_bad_stretch() -> None:
    rng = random.Random(7)
    plain = [(10.0, 0.9 + rng.uniform(-0.1, 0.1)) for _ in range(40)]
    errors = [(0.1, 0.2) for _ in range(10)]  # a rule sampled all of these: each has the weight 1

    assert worst_stretch([plain, plain + errors, plain, plain]) is None


def test_open_scale_is_shown_on_its_own() -> None:
    (metric,) = summarize(
        replace(row, quality=None, value=row.value and row.value * 40) for row in rows(*GOOD[:20])
    ).metrics

    assert (metric.on_quality, metric.stretch) == (False, None)
    assert metric.mean == pytest.approx(34.0)
    assert metric.low is not None
    assert metric.low < 34 < (metric.high or 0)


def test_funnel_loses_each_evaluation_once() -> None:
    given = [*rows(0.9, label="pass"), *rows(0.1, label="fail"), *rows(None), *rows(None, outcome="not_sampled"),
             *rows(None, outcome="missing_field"), *rows(None, outcome="no_value")]  # fmt: skip

    steps = {step.name: (step.remaining, dict(step.lost)) for step in summarize(given).steps}

    assert steps == {
        "arrived": (6, {}),
        "chosen by sampling": (5, {"not_sampled": 1}),
        "had the fields that the metric needs": (4, {"missing_field": 1}),
        "scored": (2, {"judge_error": 1, "no_value": 1}),
        "passed": (1, {"failed the metric's threshold": 1}),
    }


def test_only_units_that_fail_are_ranked_the_worst_first_with_all_their_scores() -> None:
    found = summarize([*rows(0.9, 0.4, 1.0, None, 0.2), *rows(1.0, 1.0, 1.0, 1.0, 0.9, metric="harmless")])

    assert [(worst.unit, worst.quality, len(worst.rows)) for worst in found.ranking] == [
        ("unit 4", 0.2, 2),
        ("unit 1", 0.4, 2),
    ]


def test_a_label_outweighs_the_default_threshold_and_a_known_one_replaces_it() -> None:
    labelled = [*rows(0.6, label="fail"), *(replace(row, unit="passes") for row in rows(0.4, label="pass"))]
    strict = [replace(row, unit="strict") for row in rows(0.6, pass_at=0.7)]

    assert {worst.unit for worst in summarize([*labelled, *strict]).ranking} == {"unit 0", "strict"}


def test_one_question_is_one_case_in_the_order_of_its_worst_unit() -> None:
    asked = {"unit 0": "Why?", "unit 1": "When?", "unit 2": "Why? ", "unit 3": None, "unit 4": None}
    ranking = summarize(rows(0.4, 0.3, 0.1, 0.2, 0.25)).ranking

    found = cases_by_question(ranking, lambda worst: asked[worst.unit])

    assert [[worst.unit for worst in case] for case in found] == [
        ["unit 2", "unit 0"],
        ["unit 3"],
        ["unit 4"],
        ["unit 1"],
    ]


def test_units_of_the_bad_stretch_come_first_by_what_fell() -> None:
    always_low = [replace(row, quality=0.0, label="fail") for row in rows(*[0.0] * 20, metric="tone", every_s=12.0)]
    found = summarize(
        [*rows(*GOOD, *BAD, *GOOD, every_s=2.0), *(replace(row, unit=f"x{row.unit}") for row in always_low)]
    )

    top = found.ranking[0]
    assert (top.fell, top.quality) == (True, 0.2)
    every = cases_by_question(found.ranking, lambda _: None)
    shown = select_cases(every, found.falls)
    assert shown[0][0] is top
    assert {metric for case in shown for metric in failed_metrics(case)} == {"faithfulness", "tone"}
    assert list(shown) == [case for case in every if case in shown]


def test_how_many_are_as_low_is_counted_in_the_bad_stretch_only() -> None:
    before = [*GOOD, 0.2]
    found = summarize(rows(*before, *BAD[1:], *GOOD, every_s=2.0, label=None))
    (fall,) = found.falls

    assert count_equally_low(found.ranking, fall, 0.3) == 9
    assert count_equally_low(found.ranking, fall, 0.31) == 0


def test_a_refusal_that_keeps_to_its_topics_is_no_flaw() -> None:
    declined = [*rows(0.0, metric="response_relevancy", label="fail", explanation=NONCOMMITTAL),
                *rows(1.0, metric="topic_adherence", label="pass")]  # fmt: skip
    evasive = [replace(row, unit="evasive") for row in declined[:1]]

    assert [worst.unit for worst in summarize([*declined, *evasive]).ranking] == ["evasive"]


def test_what_it_fell_from_is_the_mean_before_it() -> None:
    later = [0.7] * 60
    (metric,) = summarize(rows(*GOOD, *BAD, *later, every_s=2.0)).metrics

    assert metric.stretch is not None
    assert metric.stretch.usual == pytest.approx(0.85)
    assert metric.stretch.outside < 0.83


def test_no_metric_hides_the_worst_of_another() -> None:
    found = summarize(
        [*rows(*[0.0] * 200), *(replace(row, unit=f"other {row.unit}") for row in rows(0.4, metric="harmless"))]
    )

    shown = select_cases(cases_by_question(found.ranking, lambda _: None), found.falls)

    assert "other unit 0" in {case[0].unit for case in shown}
    assert len(shown) < len(found.ranking)


def test_rows_without_a_time_have_means_and_no_trend() -> None:
    found = summarize(ReportRow(unit=str(n), metric="exact", value=1.0, quality=1.0) for n in range(3))

    assert (found.metrics[0].mean, found.metrics[0].buckets, found.width_ns) == (1.0, (), 0)


def test_nothing_gives_an_empty_summary() -> None:
    found = summarize([])

    assert (found.units, found.scores, found.start_ns, found.metrics, found.ranking) == (0, 0, None, (), ())


def test_start_and_end_are_of_all_rows() -> None:
    found = summarize(rows(0.5, None))

    assert (found.start_ns, found.end_ns) == (TEN_O_CLOCK, TEN_O_CLOCK + 1_000_000_000)


def test_a_run_of_some_seconds_is_reported_in_tenths() -> None:
    found = summarize(rows(*GOOD, *BAD, *GOOD, every_s=0.05))

    assert found.width_ns == 500_000_000
    assert headline(found) == "faithfulness fell from 0.85 to 0.30 between 10:00:06.0 and 10:00:07.5"
    assert period(found) == "21 Nov 2026, 10:00:00 to 10:00:13 UTC"


def test_a_run_over_days_is_reported_with_its_dates() -> None:
    found = summarize(rows(*GOOD, *BAD, *GOOD, every_s=1800))

    assert headline(found) == "faithfulness fell from 0.85 to 0.34 between 23 Nov 21:00 and 24 Nov 12:00"
    assert period(found) == "21 Nov 2026 10:00 to 27 Nov 2026 00:30 UTC"

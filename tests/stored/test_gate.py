"""The gate: real drops fail, noise does not, and unscored cases do neither."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from spanscore.core.score import NOT_APPLICABLE, UNIT_INTERVAL, Outcome
from spanscore.errors import ConfigurationError
from spanscore.stored.dataset import BadRecord
from spanscore.stored.evaluation_result import Result, Row
from spanscore.stored.quality_gate import QualityBounds, check_quality


def row(case, quality, *, outcome=Outcome.SCORED, own_id=True, **more):
    return Row(
        line=case,
        id=f"case-{case}" if own_id else None,
        key=f"{case}",
        metric="grounded",
        version="1",
        outcome=outcome,
        value=quality,
        quality=quality,
        **more,
    )


def rows(qualities, **more):
    return [row(place, quality, **more) for place, quality in enumerate(qualities, 1)]


def run(found):
    return Result(rows=found, samples=len(found), scales={"grounded": UNIT_INTERVAL})


def held(before, now, **bounds):
    (metric,) = check_quality(QualityBounds(before, **{"max_drop": {"grounded": 0.03}, **bounds}), run(now)).metrics
    return metric


def test_a_drop_beyond_noise_and_beyond_what_is_allowed_does_not_hold():
    metric = held(rows([1.0] * 40), rows([0.0] * 10 + [1.0] * 30))

    assert metric.change.mean == pytest.approx(-0.25)
    assert metric.failed[0].startswith("fell by 0.250 (95 %: 0.1")


def test_a_drop_inside_the_noise_is_said_to_be():
    metric = held(rows([1.0] * 20), rows([0.0] + [1.0] * 19))

    assert metric.failed == ()
    assert "within the noise" in metric.notes[0]


def test_a_small_drop_is_allowed_however_sure_it_is():
    metric = held(rows([0.90] * 500), rows([0.88] * 500))

    assert (metric.failed, metric.notes) == ((), ())


def test_the_spread_between_cases_does_not_hide_a_drop():
    spread = [Random(7).random() * 0.8 + 0.2 for _ in range(60)]

    assert held(rows(spread), rows([quality - 0.1 for quality in spread])).failed


def test_a_mean_below_what_is_asked_does_not_hold():
    metric = held(None, rows([0.5, 0.7]), max_drop={}, least={"grounded": 0.7})

    assert metric.failed == ("mean quality 0.600 is below 0.7",)


def test_what_could_not_be_judged_is_no_drop_but_too_much_of_it_is_reported():
    now = [*rows([1.0] * 8), *(row(case, None, outcome=Outcome.JUDGE_ERROR) for case in (9, 10))]

    metric = held(rows([1.0] * 10), now)

    assert (metric.failed, metric.cases, metric.unscored, metric.incomplete) == ((), 8, 0.2, True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"outcome": Outcome.NO_VALUE, "reason": "the text has no words"}, "no_value"),
        ({"outcome": Outcome.MISSING_FIELD}, "missing_field"),
        ({"outcome": Outcome.BUDGET_EXHAUSTED}, "budget_exhausted"),
        ({"source": "fallback"}, "judged by a fallback"),
    ],
)
def test_every_case_without_a_score_of_the_judge_counts(fields, reason):
    quality = None if "outcome" in fields else 0.0
    metric = held(None, [*rows([1.0] * 9), row(10, quality, **fields)], max_drop={}, least={"grounded": 0.5})

    assert (metric.no_score, metric.unscored, metric.incomplete) == ({reason: 1}, 0.1, True)


def not_applicable(case):
    return row(case, None, outcome=Outcome.NOT_APPLICABLE, reason=NOT_APPLICABLE)


def test_cases_that_the_condition_leaves_out_do_not_count():
    metric = held(None, [*rows([1.0] * 4), *map(not_applicable, range(5, 41))], max_drop={}, least={"grounded": 0.5})

    assert (metric.no_score, metric.unscored, metric.incomplete) == ({}, 0.0, False)


def test_a_bound_without_any_score_is_incomplete_and_names_no_baseline():
    metric = held(None, [not_applicable(1)], max_drop={}, least={"grounded": 0.5})

    assert (metric.incomplete, metric.lacks) == (True, "no case has a score")


def test_a_drop_without_a_common_case_is_incomplete():
    other = replace(row(2, 1.0), metric="other")
    result = Result(rows=[row(1, 1.0), other], samples=2, scales={"grounded": UNIT_INTERVAL, "other": UNIT_INTERVAL})

    grounded, _ = check_quality(QualityBounds([row(2, 1.0), other], {"grounded": 0.1}, replaces=True), result).metrics

    assert (grounded.incomplete, grounded.lacks) == (True, "no case has a score in this run and in the baseline")


def test_a_case_counts_that_had_a_score_and_is_not_applicable_now():
    metric = held(rows([1.0] * 4), [*rows([1.0] * 3), not_applicable(4)])

    assert (metric.no_score, metric.lost, metric.incomplete) == ({"not applicable": 1}, 1, True)


def test_a_bad_line_and_its_case_in_the_baseline_count_once():
    run_of_two = Result(
        rows=rows([1.0, 1.0]),
        bad=[BadRecord(3, "no sample", "case-3"), BadRecord(4, "not valid JSON")],
        scales={"grounded": UNIT_INTERVAL},
    )

    (metric,) = check_quality(QualityBounds(rows([1.0] * 5)), run_of_two).metrics

    assert (metric.no_score, metric.lost) == ({"not read": 2, "not in this run": 1}, 3)


def test_a_run_whose_scored_cases_are_all_new_is_compared_with_the_baseline():
    now = [row(1, None, outcome=Outcome.MISSING_FIELD), row(9, 1.0)]

    assert (
        held(rows([1.0]), now).lacks
        == "1 case (50%) has no score: missing_field 1; 1 of them had a score in the baseline"
    )


def test_lost_scores_of_an_open_scale_count():
    before = [replace(one, quality=None) for one in rows([3.0, 4.0])]

    assert held(before, before[:1], max_drop={}).no_score == {"not in this run": 1}


def test_cases_are_the_same_by_their_ids_whatever_their_order():
    before, now = rows([0.2, 0.8]), [row(2, 0.8), row(1, 0.2)]

    assert check_quality(QualityBounds(before), run(now)).changes == ()


def test_cases_without_ids_are_the_same_by_their_lines():
    change = check_quality(QualityBounds(rows([0.2, 0.8], own_id=False)), run(rows([0.2, 0.6], own_id=False))).changes

    assert [(one.case, one.before, one.after) for one in change] == [("line 2", 0.8, 0.6)]


def test_the_case_that_fell_most_comes_first():
    changes = check_quality(QualityBounds(rows([1.0, 1.0, 0.5])), run(rows([0.7, 0.1, 0.9]))).changes

    assert [one.case for one in changes] == ["case-2", "case-1", "case-3"]


def test_a_baseline_of_another_judge_is_shown():
    assert held(
        rows([1.0] * 5, evaluator_version="old"), rows([1.0] * 5, evaluator_version="new")
    ).evaluator_version_changed


def test_a_metric_of_which_the_baseline_has_no_score_is_not_said_to_hold():
    before = [row(1, None, outcome=Outcome.JUDGE_ERROR), row(2, 1.0)]
    other = replace(row(1, 1.0), metric="other")
    result = Result(rows=[row(1, 1.0), other], samples=1, scales={"grounded": UNIT_INTERVAL, "other": UNIT_INTERVAL})

    grounded, _ = check_quality(QualityBounds([*before, other], {"grounded": 0.1}), result).metrics

    assert grounded.incomplete


def test_cases_that_are_on_one_side_alone_are_counted():
    result = check_quality(QualityBounds(rows([1.0, 1.0])), run([row(2, 1.0), row(3, 1.0), row(4, 1.0)]))

    assert (result.not_in_baseline, result.not_in_run) == (2, 1)


def test_without_a_baseline_equal_ids_are_no_matter():
    assert held(None, [row(1, 1.0), row(1, 0.8)], max_drop={}, least={"grounded": 0.5}).failed == ()


def test_what_a_fallback_judged_is_not_compared():
    now = [row(1, 0.0, source="fallback"), row(2, 1.0)]

    assert held(rows([1.0, 1.0]), now).cases == 1


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (QualityBounds(None, {"grounded": 0.1}), "needs a baseline"),
        (QualityBounds(rows([1.0]), {"ground": 0.1}), "--max-drop names 'ground'"),
        (QualityBounds(None, {}, {"ground": 0.1}), "--min names 'ground'"),
        (QualityBounds([row(99, 1.0)]), "no case of this run is in the baseline"),
        (QualityBounds([row(1, 1.0), row(1, 1.0)]), "several cases have the id 'case-1'"),
    ],
    ids=["no-baseline", "unknown-drop", "unknown-min", "no-overlap", "twice"],
)
def test_what_would_hold_nothing_is_refused(gate, expected):
    with pytest.raises(ConfigurationError, match=expected):
        check_quality(gate, run(rows([1.0])))


def test_among_a_thousand_equal_runs_few_fail():
    """Both runs are draws of one judge: the gate may fail 2.5 % of them, at a drop of nothing."""
    random, failures = Random(11), 0
    for _ in range(300):
        before, now = ([float(random.random() < 0.8) for _ in range(60)] for _ in range(2))
        failures += bool(held(rows(before), rows(now), max_drop={"grounded": 0.0}).failed)

    assert failures <= 15

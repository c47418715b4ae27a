"""Cases for labelling are read with their scores, and drawn so that their labels estimate the pass rate of all of them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import pytest
from tests.stored.label_builders import METRIC, draw_some, make_case, make_cases, make_record

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, SampleError
from spanscore.monitoring.calibration import AnnotatedPair, Calibration
from spanscore.monitoring.estimates import moments
from spanscore.outputs.collected_cases import FoundScore
from spanscore.stored.label_cases import LabelPick, allocate, read_cases


def test_a_collected_case_is_read_with_its_scores(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(make_record(1, 0.2)) + "\n\n" + json.dumps({"user_input": "Q"}) + "\nno JSON\n[1]\n")

    (case, sample), bad = read_cases(file)

    explanation = "It was opened in 1931 by the mayor, is said."
    assert case.scores == {METRIC: FoundScore(0.2, "fail", "1/judge/1", None, explanation)}
    assert (case.id, case.key) == ("case 1", f"{2:032x}-{2:016x}")
    assert (sample.sample, sample.scores, [*sample.names]) == (SingleTurnSample(user_input="Q"), {}, ["key"])
    assert [record.line for record in bad] == [4, 5]


def test_a_case_is_named_by_ids_that_a_label_may_have(tmp_path: Path) -> None:
    record, path = make_record(10), tmp_path / "cases.jsonl"
    upper = {**record, "trace_id": record["trace_id"].upper(), "span_id": record["span_id"].upper()}
    path.write_text("".join(json.dumps(each) + "\n" for each in (record, upper, {**record, "trace_id": "t1"})))

    (case, same_case, without_unit), _ = read_cases(path)

    assert case.names == same_case.names == {"trace_id": f"{11:032x}", "span_id": f"{11:016x}"}
    assert without_unit.names.keys() == {"key"}


def test_a_file_without_samples_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text('{"humen": 1}\n')

    with pytest.raises(SampleError, match="line 1"):
        read_cases(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_cases(tmp_path / "missing.jsonl")


@pytest.mark.parametrize("pick", [LabelPick.RANDOM, LabelPick.INFORMATIVE])
def test_a_larger_draw_contains_the_smaller_and_the_order_of_the_file_has_no_effect(pick: LabelPick) -> None:
    cases = make_cases(300)
    shuffled = Random(5).sample(cases, len(cases))

    drawn = [{case.key for case in draw_some(cases, pick, number).cases} for number in (5, 30, 31, 80, 300, 900)]

    assert [len(keys) for keys in drawn] == [5, 30, 31, 80, 300, 300]
    assert all(smaller <= larger for smaller, larger in pairwise(drawn))
    assert draw_some(shuffled, pick, 30).cases == draw_some(cases, pick, 30).cases
    assert draw_some(cases, pick, 30, seed=1).cases != draw_some(cases, pick, 30).cases


def test_failing_cases_are_the_ones_that_the_judge_failed() -> None:
    drawn = draw_some(make_cases(200), LabelPick.FAILING, 5)

    assert [case.passed for case in drawn.cases] == [False] * 5
    assert drawn.probabilities(case.key for case in drawn.cases) == {}
    with pytest.raises(ConfigurationError, match="no case fails 'faithfulness'"):
        draw_some([make_case(1, 0.9)], LabelPick.FAILING)


def test_disagreements_are_the_largest_ones_of_a_jury() -> None:
    cases = [make_case(number, 0.5, disagreement) for number, disagreement in enumerate((0.0, 1.0, None, 0.5, 0.2))]

    drawn = draw_some(cases, LabelPick.DISAGREEMENTS, 2)

    assert {case.id for case in drawn.cases} == {"case 1", "case 3"}
    with pytest.raises(ConfigurationError, match="jury"):
        draw_some(cases[:1], LabelPick.DISAGREEMENTS)


def test_labels_are_allocated_as_neyman_does_after_ten_in_each_stratum() -> None:
    assert allocate([8000, 1000, 1000], [0.3, 0.3, 0.5], 1000) == [750, 94, 156]  # N_h·S_h = 2400, 300 and 500
    assert allocate([8000, 1000, 4], [0.3, 0.3, 0.5], 24) == [10, 10, 4]
    assert allocate([3, 2], [0.5, 0.5], 100) == [3, 2]


def test_a_probability_counts_the_labels_that_there_are() -> None:
    cases = [make_case(number, 0.9 if number < 80 else 0.1) for number in range(100)]
    drawn = draw_some(cases, LabelPick.INFORMATIVE, 40)
    passed = [case.key for case in drawn.cases if case.passed]
    failed = [case.key for case in drawn.cases if not case.passed]

    found = drawn.probabilities([*passed[:8], *failed[:5], "another case"])

    assert found == {**dict.fromkeys(passed[:8], 8 / 80), **dict.fromkeys(failed[:5], 5 / 20)}
    assert len(failed) > 40 * 20 / 100


def test_the_corrected_pass_rate_of_informative_labels_is_unbiased() -> None:
    """300 draws of 100 labels from 1,500 cases; the judge errs most often near its threshold."""
    random = Random(3)
    passes = [random.random() < 0.8 for _ in range(1500)]
    scores = (random.betavariate(5, 1.5) if passed else random.betavariate(1.5, 4) for passed in passes)
    cases = [make_case(number, score) for number, score in enumerate(scores)]
    human = {case.key: passed for case, passed in zip(cases, passes, strict=True)}
    window = moments((float(bool(case.passed)), 1.0) for case in cases)
    truth = fmean(human.values())

    estimates, covered = [], 0
    for seed in range(300):
        drawn = draw_some(cases, LabelPick.INFORMATIVE, 100, seed)
        chances = drawn.probabilities(case.key for case in drawn.cases)
        pairs = [AnnotatedPair(human[case.key], bool(case.passed), chances[case.key]) for case in drawn.cases]
        rate = Calibration.of(pairs).fresh(window)
        estimates.append(rate.value)
        covered += rate.low <= truth <= rate.high

    assert abs(fmean(estimates) - truth) < 3 * stdev(estimates) / len(estimates) ** 0.5
    assert covered >= 0.93 * len(estimates)

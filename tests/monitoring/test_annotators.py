"""How often annotators err: measured from their disagreement, and taken out of sensitivity, specificity and pass rates."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benchmarks.calibration import JUDGES, wrong_labels

from spanscore.errors import ConfigurationError
from spanscore.monitoring.calibration import (
    LEAST_SHARED,
    AnnotatedPair,
    AnnotatorError,
    Calibration,
    SavedCalibration,
    agreement_of,
    read_calibration,
)

PAIRS = {(True, True): 729, (True, False): 86, (False, True): 81, (False, False): 104}
"""1,000 labels of a judge with sensitivity .90 and specificity .70 at a pass rate of .85; 5 % of them are wrong."""


def calibration(error: AnnotatorError) -> Calibration:
    pairs = [AnnotatedPair(*said) for said, count in PAIRS.items() for _ in range(count)]
    return Calibration.of(pairs, error)


def test_the_error_is_that_of_two_independent_annotators() -> None:
    random = Random(3)
    truth = [random.random() < 0.85 for _ in range(20_000)]
    votes = [[one ^ (random.random() < 0.05) for _ in range(2)] for one in truth]

    agreement = agreement_of([*votes, [True], []])

    error = agreement.error()
    assert agreement.units == 20_000
    assert agreement.share == pytest.approx(0.905, abs=0.01)
    assert error is not None
    assert error.rate == pytest.approx(0.05, abs=0.005)
    assert error.variance**0.5 == pytest.approx((0.095 * 0.905 / 20_000) ** 0.5 / (2 * 0.9), rel=0.1)


def test_all_pairs_of_three_annotators_count() -> None:
    agreement = agreement_of([(True, True, False)] * 2 + [(True, True, True)] * 8)

    assert (agreement.units, agreement.share, agreement.pairs, agreement.differing) == (10, 0.8, 30, 4)


def test_few_units_measure_no_error() -> None:
    assert agreement_of([(True, True)] * (LEAST_SHARED - 1)).error() is None
    assert agreement_of([]).share is None


def test_annotators_who_differ_as_coins_do_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"differ in 6 of 12 pairs on 12 units, which is chance"):
        agreement_of([(True, False)] * 6 + [(True, True)] * 6).error()


def test_a_majority_errs_less_than_one_annotator() -> None:
    error = AnnotatorError(0.1, 0.01)

    assert error.of_majorities([1, 1]) == pytest.approx(error)
    assert error.of_majorities([2]).rate == pytest.approx(0.01 / 0.82)
    assert error.of_majorities([1, 2]).rate == pytest.approx((0.1 + 0.01 / 0.82) / 2)
    slope = (AnnotatorError(0.1 + 1e-6).of_majorities([2]).rate - AnnotatorError(0.1).of_majorities([2]).rate) / 1e-6
    assert error.of_majorities([2]).variance == pytest.approx(0.01 * slope**2, rel=1e-3)


def test_sensitivity_and_specificity_are_those_by_the_truth() -> None:
    made = calibration(AnnotatorError(0.05))

    assert made.sensitivity.value == pytest.approx(0.90, abs=0.005)
    assert made.specificity.value == pytest.approx(0.70, abs=0.01)
    assert calibration(AnnotatorError(0.0)).specificity.value == pytest.approx(104 / 185)


def test_an_error_that_is_uncertain_makes_intervals_wider() -> None:
    known, measured = (calibration(AnnotatorError(0.05, variance)).smoothed() for variance in (0.0, 0.02**2))

    assert [one.share for one in known] == [one.share for one in measured]
    assert all(wide.variance > narrow.variance for wide, narrow in zip(measured, known, strict=True))


def test_labels_that_an_error_explains_are_too_few() -> None:
    with pytest.raises(
        ConfigurationError, match=r"at an annotator error of 0\.14 fewer than 5 of the rarer ones are right"
    ):
        Calibration.of(
            [AnnotatedPair(True, True)] * 80 + [AnnotatedPair(False, True)] * 12 + [AnnotatedPair(False, False)] * 4,
            AnnotatorError(0.14),
        )


def test_the_file_keeps_the_error(tmp_path: Path) -> None:
    saved = SavedCalibration("m", "s", calibration(AnnotatorError(0.05, 1e-4)))
    file = tmp_path / "calibration.json"
    file.write_text(saved.text)

    assert read_calibration(file) == saved


@pytest.mark.parametrize("error", [{"rate": 0.5}, {"rate": -0.1}, {"rate": 0.1, "variance": -1}, {"chance": 1}, 3])
def test_a_file_with_an_error_that_cannot_be_is_refused(tmp_path: Path, error: Any) -> None:
    saved = SavedCalibration("m", "s", calibration(AnnotatorError(0.05)))
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps({**json.loads(saved.text), "annotator_error": error}))

    with pytest.raises(ConfigurationError, match="no file of `spanscore calibrate`"):
        read_calibration(file)


def test_wrong_labels_bias_the_rate_unless_their_error_is_known() -> None:
    found = {one.known_by: one for one in wrong_labels(300, labels=(200,), judges=JUDGES[:1])}

    assert found["ignored"].bias == pytest.approx(-0.037, abs=0.006)
    assert found["ignored"].coverage < 0.88
    for known in ("given", "a quarter by two", "all by two"):  # over 4,000 runs: benchmarks/calibration.md
        assert abs(found[known].bias) <= 0.008, known
        assert found[known].coverage >= 0.93, known
        assert abs(found[known].fresh_bias) <= 0.006, known
        assert found[known].fresh_coverage >= 0.92, known

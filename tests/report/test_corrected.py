"""The page shows the pass rate corrected by human labels, for the calibrated evaluator version and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.report.builders import TEN_O_CLOCK, a_unit_span, evaluations, make_score

from spanscore.core.score import JudgeCall, Usage
from spanscore.core.span import SpanData
from spanscore.monitoring.calibration import AnnotatedPair, Calibration, SavedCalibration
from spanscore.monitoring.estimates import moments
from spanscore.report import ReportRow, summarize, write

PAIRS = [(True, True)] * 45 + [(True, False)] * 5 + [(False, True)] * 4 + [(False, False)] * 16
SAVED = SavedCalibration("faithfulness", "1", Calibration.of(AnnotatedPair(*one) for one in PAIRS))


def row(label: bool, *, evaluator_version: str | None = "1", minute: int = 0, probability: float = 1.0) -> ReportRow:
    return ReportRow(
        unit=f"{minute}",
        metric="faithfulness",
        time_ns=TEN_O_CLOCK + minute,
        value=float(label),
        quality=float(label),
        label="pass" if label else "fail",
        evaluator_version=evaluator_version,
        probability=probability,
    )


def test_the_rate_is_corrected_with_the_weights_of_the_scores() -> None:
    rows = [row(True, minute=n, probability=0.5) for n in range(30)] + [row(False, minute=n) for n in range(10)]

    found = summarize(rows, calibrations={"faithfulness": SAVED}).metrics[0].corrected

    assert found is not None
    assert found.raw == pytest.approx(60 / 70)
    assert found.rate == SAVED.calibration.corrected(moments([(1.0, 0.5)] * 30 + [(0.0, 1.0)] * 10))


def test_scores_of_an_earlier_series_are_not_corrected_with_the_others() -> None:
    before = [row(False, minute=n, evaluator_version="0") for n in range(50)]

    found = summarize([*before, row(True, minute=99)], calibrations={"faithfulness": SAVED}).metrics[0].corrected

    assert found is not None
    assert found.raw == 1.0


@pytest.mark.parametrize("evaluator_version", ["2", None])
def test_after_a_change_of_the_series_it_is_not_calibrated(evaluator_version: str | None) -> None:
    rows = [*(row(True, minute=n) for n in range(50)), row(True, minute=99, evaluator_version=evaluator_version)]

    found = summarize(rows, calibrations={"faithfulness": SAVED}).metrics[0].corrected

    assert found is not None
    assert found.rate is None
    assert found.line == "not calibrated"


def test_a_metric_without_a_calibration_says_nothing_of_it() -> None:
    assert summarize([row(True)], calibrations={"other": SAVED}).metrics[0].corrected is None


def spans(evaluator_version: str) -> list[SpanData]:
    found = []
    for number in range(20):
        score = make_score(float(number % 4 > 0), evaluator_version=evaluator_version)
        unit = a_unit_span(score, minute=number)
        found += [unit, *evaluations(unit, score)]
    return found


def test_the_page_says_it_beside_the_raw_rate(tmp_path: Path) -> None:
    write(spans("1"), tmp_path / "page.html", calibrations={"faithfulness": SAVED})

    page = (tmp_path / "page.html").read_text()
    assert re.search(r"corrected by labels: 79\s% \(\d\d\s% to \d{2,3}\s%\) pass", page)
    assert "Pass rate corrected by 70 human labels, assumed to be drawn at random" in page
    assert "by the judge alone it is 75\u00a0%" in page


def test_the_page_of_another_series_says_that_it_is_not_calibrated(tmp_path: Path) -> None:
    write(spans("2"), tmp_path / "page.html", calibrations={"faithfulness": SAVED})

    assert (
        "Not calibrated: the calibration is of evaluator version 1, and the last scores are of 2"
        in (tmp_path / "page.html").read_text()
    )


def test_the_page_counts_scores_whose_judge_read_less_than_half(tmp_path: Path) -> None:
    found = []
    for minute, share in enumerate((0.9, 0.6, 0.5)):
        score = make_score(1.0, usage=Usage((JudgeCall(step="s", input_truncated_ratio=share),)))
        unit = a_unit_span(score, minute=minute)
        found += [unit, *evaluations(unit, score)] if minute else [unit]

    write(found, tmp_path / "page.html")

    said = "The judge read less than half of a question for 2 scores, as it was too long"
    assert said in (tmp_path / "page.html").read_text()

"""``spanscore check`` names the metrics with a corrected pass rate, and the smallest drop that an alert sees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.metrics import ExactMatch
from spanscore.monitoring.calibration import AnnotatedPair, Calibration, SavedCalibration

PAIRS = [(True, True)] * 90 + [(True, False)] * 10 + [(False, True)] * 6 + [(False, False)] * 14
ALERT = "alerts: {exact_match: {baseline: 0.85, min_drop: 0.06}}"


@pytest.fixture(autouse=True)
def _calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept("c.json")


def kept(name: str, metric: str = "exact_match", evaluator_version: str = ExactMatch().evaluator_version) -> None:
    saved = SavedCalibration(metric, evaluator_version, Calibration.of(AnnotatedPair(*one) for one in PAIRS))
    Path(name).write_text(saved.text)


def ran(*lines: str, file: str = "c.json") -> Any:
    calibrated = f"monitoring: {{calibrations: [{file}]}}"
    Path("spanscore.yaml").write_text("\n".join(["metrics: [exact_match]", calibrated, *lines]))
    return CliRunner().invoke(app("check"), ["check", "spanscore.yaml"], env={"COLUMNS": "400"})


def test_an_alert_is_not_corrected_and_what_it_sees_is_reported() -> None:
    result = ran(ALERT)

    assert result.exit_code == 0, result.output
    assert (
        "exact_match: its pass rate is corrected by 120 labels (sensitivity + specificity − 1 = 0.60); alerts are not"
        in result.stdout
    )
    assert "a true drop shows as 0.60 × the drop. min_drop 0.06" in result.stdout
    assert "is a true drop of 0.1; to see one of 0.06 write min_drop: 0.036" in result.stdout


def test_without_an_alert_nothing_is_said_of_drops() -> None:
    output = ran().stdout

    assert "exact_match: its pass rate is corrected by 120 labels (sensitivity + specificity − 1 = 0.60)" in output
    assert "min_drop" not in output


def test_labels_of_another_series_are_no_calibration() -> None:
    kept("c.json", evaluator_version="another")

    result = ran(ALERT)

    assert result.exit_code == 0, result.output
    assert (
        "exact_match: not calibrated: the calibration is of evaluator version another, and the scores are of"
        in result.stdout
    )


def test_what_is_wrong_with_a_file_is_a_fault() -> None:
    kept("other.json", metric="polite")

    assert "one is for 'polite', not a metric of this scorer" in ran(file="other.json").output
    assert "calibration none.json cannot be read: No such file" in ran(file="none.json").output
    assert ran(file="none.json").exit_code == 2


def test_the_file_of_the_judges_answers_is_not_created() -> None:
    ran("judge: {model: lexical, cache: answers.sqlite}")

    assert not Path("answers.sqlite").exists()


def test_a_calibration_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counter[str]()
    read_text = Path.read_text

    def count(path: Path, **how: Any) -> str:
        read[path.name] += 1
        return read_text(path, **how)

    monkeypatch.setattr(Path, "read_text", count)

    ran(ALERT)

    assert read["c.json"] == 1

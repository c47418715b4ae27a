"""Files of ``spanscore calibrate`` are read back unchanged; any other file is rejected, and never taken for a calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spanscore.errors import ConfigurationError
from spanscore.monitoring.calibration import (
    AnnotatedPair,
    Calibration,
    SavedCalibration,
    calibrations_of,
    read_calibration,
)

PAIRS = [AnnotatedPair(True, True)] * 30 + [AnnotatedPair(True, False)] * 4 + [AnnotatedPair(False, False)] * 9
SAVED = SavedCalibration("faithfulness", "1+ab/openai:gpt-4o/1", Calibration.of(PAIRS))


def kept(folder: Path, name: str = "c.json", **changes: Any) -> str:
    (folder / name).write_text(json.dumps({**json.loads(SAVED.text), **changes}))
    return str(folder / name)


def test_it_is_read_back_as_it_was(tmp_path: Path) -> None:
    (tmp_path / SAVED.file_name).write_text(SAVED.text)

    assert SAVED.file_name == "calibration-faithfulness-1-ab-openai-gpt-4o-1.json"
    assert read_calibration(tmp_path / SAVED.file_name) == SAVED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not valid JSON"),
        ("[]", "it must contain metric, evaluator version, assumed_random and labels"),
        ("{}", "it must contain metric, evaluator version, assumed_random and labels"),
        (SAVED.text.replace('"n": 30', '"n": "many"'), "metric, evaluator version"),
        (
            SAVED.text.replace('"evaluator_version": "1+ab/openai:gpt-4o/1"', '"evaluator_version": ""'),
            "metric, evaluator version",
        ),
        (SAVED.text.replace('"n": 9', '"n": 4'), "humans passed 34 and failed 4"),
    ],
)
def test_what_is_no_calibration_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "c.json").write_text(text)

    with pytest.raises(ConfigurationError, match=expected):
        read_calibration(tmp_path / "c.json")


def test_two_files_of_one_metric_are_refused(tmp_path: Path) -> None:
    one, other = kept(tmp_path, "1.json"), kept(tmp_path, "2.json", evaluator_version="other")

    assert calibrations_of([one, kept(tmp_path, "3.json", metric="relevancy")]).keys() == {"faithfulness", "relevancy"}
    with pytest.raises(ConfigurationError, match="another file is for 'faithfulness', too"):
        calibrations_of([one, other])


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"calibration .*c\.json cannot be read: No such file"):
        read_calibration(tmp_path / "c.json")

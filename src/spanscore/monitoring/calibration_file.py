"""The file of ``spanscore calibrate``: what labels say of one evaluator version of a metric, as counts, from which all else
follows.

{"metric": "faithfulness", "evaluator_version": "3f9a0c1d/openai:gpt-4o-mini/1", "assumed_random": true,
 "annotator_error": {"rate": 0.05, "variance": 0.0},
 "labels": {"true_pass": {"n": 150, "w": 150.0, "w2": 150.0}, "false_fail": …, "false_pass": …, "true_fail": …}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from spanscore.core.codecs.text import json_in
from spanscore.errors import ConfigurationError
from spanscore.monitoring.annotators import AnnotatorError
from spanscore.monitoring.calibration import Calibration

__all__ = ["SavedCalibration", "calibrations_of", "read_calibration"]

_WHAT = "no file of `spanscore calibrate`"
_Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class SavedCalibration:
    """What labels say of a judge, and of which scores that holds.

    Attributes:
        metric: name.
        evaluator_version: the only one whose pass rate may be corrected by it.
    """

    metric: _Text
    evaluator_version: _Text
    calibration: Calibration

    @property
    def file_name(self) -> str:
        """What it is called unless somebody says otherwise: by metric and evaluator version."""
        return f"calibration-{_plain(self.metric)}-{_plain(self.evaluator_version)}.json"

    @property
    def text(self) -> str:
        """The file's text."""
        of = self.calibration
        cells = {name: getattr(of, name)._asdict() for name in _CELLS}
        tree = {
            "metric": self.metric,
            "evaluator_version": self.evaluator_version,
            "assumed_random": of.assumed_random,
            "labels": cells,
        }
        if of.annotator_error.rate or of.annotator_error.variance:
            tree["annotator_error"] = of.annotator_error._asdict()
        return json.dumps(tree, indent=2) + "\n"


def read_calibration(path: str | Path) -> SavedCalibration:
    """Return what a file holds.

    Raises:
        ConfigurationError: it cannot be read, is no such file, or its labels say too little.
    """
    try:
        tree = json_in(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"calibration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"calibration {path} is {_WHAT}: not valid JSON") from error
    try:
        read = _SAVED.validate_python(
            {"metric": tree["metric"], "evaluator_version": tree["evaluator_version"], "calibration": _counts(tree)}
        )
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is {_WHAT}: metric, evaluator version, assumed_random and labels must be in it"
        ) from error
    try:
        read.calibration.refuse_too_little()
    except ConfigurationError as error:
        raise ConfigurationError(f"calibration {path}: {error}") from error
    return read


def calibrations_of(paths: Iterable[str]) -> dict[str, SavedCalibration]:
    """Return metric → what its file holds.

    Raises:
        ConfigurationError: as ``read_calibration``; or two files are of one metric.
    """
    found: dict[str, SavedCalibration] = {}
    for path in paths:
        one = read_calibration(path)
        if one.metric in found:
            raise ConfigurationError(
                f"{path}: another file is of {one.metric!r}, too; name the one of its present evaluator version"
            )
        found[one.metric] = one
    return found


def _counts(tree: dict[str, Any]) -> dict[str, Any]:
    error = AnnotatorError(**tree.get("annotator_error", {"rate": 0.0}))
    if not (0.0 <= error.rate < 0.5 and error.variance >= 0.0):  # noqa: PLR2004  (a coin)
        raise TypeError
    cells = {name: tree["labels"][name] for name in _CELLS}
    return {**cells, "assumed_random": tree["assumed_random"], "annotator_error": error}


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.") or "unnamed"


_CELLS = ("true_pass", "false_fail", "false_pass", "true_fail")
_SAVED = TypeAdapter(SavedCalibration)

"""A configuration's calibrations → what ``check`` says of them: whose pass rate they correct, and how far alerts see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spanscore.cli._evaluator_versions import present_evaluator_versions
from spanscore.config.tree import Configuration
from spanscore.errors import ConfigurationError
from spanscore.monitoring.calibration import SavedCalibration, calibrations_of, refuse_unknown
from spanscore.protocols import Metric

__all__ = ["calibration_notes", "calibration_problems"]


def calibration_problems(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what is wrong with the files; ``metrics``: those that can be made."""
    try:
        calibrations = calibrations_of(settings.monitoring.calibrations)
        if len(metrics) == len(settings.metrics):  # else what a file is of may be what cannot be made
            refuse_unknown(calibrations, metrics)
    except ConfigurationError as error:
        yield error


def calibration_notes(settings: Configuration) -> Iterator[str]:
    """Yield what each calibration of a configuration without a fault means."""
    paths = settings.monitoring.calibrations
    present = present_evaluator_versions(settings) if paths else {}
    for metric, saved in calibrations_of(paths).items():
        yield f"{metric}: {_note(saved, present.get(metric), settings)}"


def _note(saved: SavedCalibration, evaluator_version: str | None, settings: Configuration) -> str:
    if evaluator_version is not None and evaluator_version != saved.evaluator_version:
        return (
            f"not calibrated: the labels are of evaluator version {saved.evaluator_version}, and its scores are of "
            f"{evaluator_version}; its pass rate is not "
            "corrected until `spanscore calibrate` has seen verdicts of that"
        )
    of = saved.calibration
    correction = f"its pass rate is corrected by {of.labels:,} labels (J {of.informedness.value:.2f})"
    alert = settings.alerts.get(saved.metric)
    if alert is None:
        return correction
    j, drop = of.informedness.value, alert.min_drop
    return (
        f"{correction}; alerts are not: a true drop shows as {j:.2f} × the drop. min_drop {drop:g}, as the judge sees it, is "
        f"a true drop of {drop / j:.2g}; to see one of {drop:g} write min_drop: {j * drop:.2g}"
    )

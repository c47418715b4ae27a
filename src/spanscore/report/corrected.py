"""Scores and what labels say of their judge → the pass rate as humans would tell it; of the one evaluator version of which that
holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spanscore.core.codecs.text import safe_text
from spanscore.monitoring.calibration import Estimated, SavedCalibration
from spanscore.monitoring.estimates import mean, moments
from spanscore.report.rows import ReportRow

__all__ = ["CorrectedRate", "corrected_rate"]


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """What there is to say of a metric's pass rate by its calibration.

    Attributes:
        rate: corrected; None where the labels are of another evaluator version than the last score.
        raw: as the judge says, of the same scores; None likewise.
        by: of which evaluator version the labels are, and how many there are.
        evaluator_version: of the last score; None = the spans do not tell.
    """

    rate: Estimated | None
    raw: float | None
    by: SavedCalibration
    evaluator_version: str | None

    @property
    def line(self) -> str:
        """What the metric's tile says."""
        return f"corrected by labels: {_percent(self.rate)} pass" if self.rate else "not calibrated"

    @property
    def sentence(self) -> str:
        """What stands below the metric's finding."""
        of = self.by.calibration
        if self.rate is None or self.raw is None:
            now = (
                "do not tell theirs"
                if self.evaluator_version is None
                else f"are of {safe_text(self.evaluator_version)}"
            )
            own = safe_text(self.by.evaluator_version)
            return f"Not calibrated: the labels are of evaluator version {own}, and the last scores {now}"
        assumed = ", assumed to be drawn at random" if of.assumed_random else ""
        error = of.annotator_error.rate
        wrong = f", of which {_share(error)} are taken to be wrong" if error else ""
        passes, fails = of.sensitivity.value, of.specificity.value
        return (
            f"Pass rate corrected by {of.labels:,} human labels{assumed}{wrong}: {_percent(self.rate)}; as the judge says "
            f"{_share(self.raw)}. Of what humans pass it passes {_share(passes)}, of what they fail it fails {_share(fails)}"
        )


def _percent(of: Estimated) -> str:
    return f"{_share(of.value)} ({_share(of.low)} to {_share(of.high)})"


def _share(share: float) -> str:
    return f"{100 * share:.0f}\u00a0%"


def corrected_rate(scored: Sequence[ReportRow], by: SavedCalibration | None) -> CorrectedRate | None:
    """Return the corrected pass rate of a metric's scores; None where it has no calibration, or no score that passes or fails.

    Only scores of the evaluator version that was calibrated count; where the last score is of another one, none do.
    """
    judged = [row for row in scored if row.label]
    if by is None or not judged:
        return None
    last = max(judged, key=lambda row: row.time_ns or 0).evaluator_version
    if last != by.evaluator_version:
        return CorrectedRate(None, None, by, last)
    own = moments((float(row.label == "pass"), 1.0 / row.weight) for row in judged if row.evaluator_version == last)
    return CorrectedRate(by.calibration.corrected(own), mean(own), by, last)

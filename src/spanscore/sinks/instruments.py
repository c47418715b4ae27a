"""Scores → instruments, with an exemplar that points at the scored trace."""

from __future__ import annotations

from collections.abc import Sequence

from spanscore import semconv
from spanscore.core.sample import Annotation
from spanscore.core.score import Score
from spanscore.core.span import Unit
from spanscore.otel.instruments import Telemetry
from spanscore.sinks.emission import context_of

__all__ = ["Instruments"]


class Instruments:
    """Feeds the telemetry; also from units that are not sampled or lost their root, which give no exemplar.

    Args:
        telemetry: the scorer's instruments; they outlive this sink, as the last collection comes after it.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Count each score that is not in the sums of another process."""
        root = unit.root
        context = None if root is None else context_of(root)
        for score in (score for score in scores if not score.counted):
            self._telemetry.record(unit, score, context)

    def label(self, label: Annotation) -> None:
        """Count a unit's label once, and each change of it."""
        said = ((semconv.EVALUATION_SCORE_LABEL, label.text),) if label.text else ()
        name = semconv.ANNOTATION_CHANGES if label.revision else semconv.ANNOTATIONS
        self._telemetry.count(name, ((semconv.EVALUATION_NAME, label.name), *said))

    def shutdown(self) -> None:
        """Hold nothing back: the telemetry outlives it."""

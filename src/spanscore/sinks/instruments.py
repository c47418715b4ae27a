"""Scores → instruments, with an exemplar that points at the scored trace."""

from __future__ import annotations

from collections.abc import Sequence

from spanscore.model.score import Score
from spanscore.model.span import Unit
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
        """Count each score."""
        root = unit.root
        context = None if root is None else context_of(root)
        for score in scores:
            self._telemetry.record(unit, score, context)

    def shutdown(self) -> None:
        """Hold nothing back: the telemetry outlives it."""

"""MemorySink: keeps what a scorer would have published."""

from __future__ import annotations

from collections.abc import Sequence

from spanscore.core.score import Score
from spanscore.core.span import Unit

__all__ = ["MemorySink"]


class MemorySink:
    """A ``Sink`` for tests: hand it to ``Outputs(sinks=[…])`` and read ``emitted`` after ``flush``.

    Attributes:
        emitted: (unit, its scores), in the order in which they left.
    """

    def __init__(self) -> None:
        self.emitted: list[tuple[Unit, list[Score]]] = []
        self.closed = False

    @property
    def scores(self) -> list[Score]:
        """Every score, in order."""
        return [score for _, scores in self.emitted for score in scores]

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Keep them."""
        self.emitted.append((unit, list(scores)))

    def shutdown(self) -> None:
        """Note it."""
        self.closed = True

"""ScoreBatch: scores on their way to the sinks, behind the same pace as the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit
from spanscore.protocols import Sink
from spanscore.units.ledger import Ledger

__all__ = ["ScoreBatch", "ShadowBatch", "has_span"]

_SCORE_BYTES = 2_000
"""A score with its usage and an explanation, roughly."""


@dataclass(slots=True, eq=False)
class ScoreBatch:
    """Scores of one unit.

    Attributes:
        spans: that it makes, roughly: one per score, and one per call of a judge that is traced.
        size: approximate bytes held.
    """

    sink: Sink
    unit: Unit
    scores: Sequence[Score]
    spans: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Count both: they are asked for when it comes and when it goes."""
        sizes = [call.transcript.size for score in self.scores for call in score.usage.calls if call.transcript]
        self.spans = len(self.scores) + len(sizes)
        self.size = _SCORE_BYTES * self.spans + sum(sizes)

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Emit the scores."""
        self.sink.emit(self.unit, self.scores)


@dataclass(slots=True, eq=False)
class ShadowBatch(ScoreBatch):
    """Scores of second judges, which are counted by a ledger of their own."""

    ledger: Ledger

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Emit the scores, and count them."""
        self.sink.emit(self.unit, self.scores)
        self.count()

    def count(self) -> None:
        """Count the scores."""
        for score in self.scores:
            self.ledger.settle(self.unit.key, score.metric, score.outcome)


def has_span(score: Score) -> bool:
    """Whether the sinks are told of a score: it came to something, or cost something."""
    return (
        score.outcome in (Outcome.SCORED, Outcome.NOT_APPLICABLE, Outcome.NO_VALUE)
        or score.outcome.failed
        or bool(score.usage.calls)
    )

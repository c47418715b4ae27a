"""ScoreBatch: scores on their way to the sinks, behind the same pace as the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanscore.model.score import Outcome, Score
from spanscore.model.span import Unit
from spanscore.protocols import Sink
from spanscore.units.ledger import Ledger

__all__ = ["ScoreBatch", "ShadowBatch", "has_span"]

_SCORE_BYTES = 2_000
"""A score with its usage and an explanation, roughly."""


@dataclass(frozen=True, slots=True)
class ScoreBatch:
    """Scores of one unit."""

    sink: Sink
    unit: Unit
    scores: Sequence[Score]

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        said = (call.transcript.size for score in self.scores for call in score.usage.calls if call.transcript)
        return _SCORE_BYTES * self.spans + sum(said)

    @property
    def spans(self) -> int:
        """How many it makes, roughly: one per score, and one per call of a judge that is traced."""
        traced = sum(call.transcript is not None for score in self.scores for call in score.usage.calls)
        return len(self.scores) + traced

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Emit the scores."""
        self.sink.emit(self.unit, self.scores)


@dataclass(frozen=True, slots=True)
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
    return score.outcome in (Outcome.SCORED, Outcome.UNDEFINED) or score.outcome.failed or bool(score.usage.calls)

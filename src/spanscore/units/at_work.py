"""AtWork: what the tracker knows of a unit whose scores are being made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spanscore.model.score import Outcome, Score
from spanscore.model.span import SamplingContext

__all__ = ["AtWork"]

_NOT_BEGUN: Final = frozenset({Outcome.DELEGATED, Outcome.QUEUE_FULL})


@dataclass(slots=True)
class AtWork:
    """A unit that was handed over, and of which scores are to come.

    Attributes:
        others: metric → outcome of those that were not chosen, or found no room.
        scores: those that are in.
        made: attributes that say how its sample was made, from the first score on.
        undecided: what is known of it, while other metrics wait for these scores to be decided on; None where none do.
        has_left: its root has left, as ``pending``, before all scores were in.
        twice: it is scored from a spool, and was on its way there once more.
    """

    others: dict[str, Outcome]
    undecided: SamplingContext | None = None
    scores: list[Score] = field(default_factory=list)
    made: Mapping[str, Any] = field(default_factory=dict)
    has_left: bool = False
    twice: bool = False

    def goes_on_after(self, rest: Outcome) -> bool:
        """Whether a job's end is not the unit's: the spool had it already, and one of the two goes on. True once."""
        goes_on = self.twice and rest in _NOT_BEGUN
        self.twice = self.twice and not goes_on
        return goes_on

"""AtWork: what the tracker knows of a unit whose scores are being made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spanscore.model.score import Outcome, Score
from spanscore.model.span import Facts

__all__ = ["AtWork"]


@dataclass(slots=True)
class AtWork:
    """A unit that was handed over, and of which scores are to come.

    Attributes:
        others: metric → outcome of those that were not chosen, or found no room.
        scores: those that are in.
        made: attributes that say how its sample was made, from the first score on.
        undecided: what is known of it, while other metrics wait for these scores to be decided on; None where none do.
    """

    others: dict[str, Outcome]
    undecided: Facts | None = None
    scores: list[Score] = field(default_factory=list)
    made: Mapping[str, Any] = field(default_factory=dict)

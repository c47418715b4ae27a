"""Counted: how units stand at one moment, and for how many they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spanscore import semconv
from spanscore.model.score import Outcome

__all__ = ["Counted", "Weights"]


class Weights(NamedTuple):
    """For how many units some units stand: Σw and Σw², w = 1/probability."""

    w: float = 0.0
    w2: float = 0.0


class Counted(NamedTuple):
    """How units stand at one moment: per metric, eligible = Σ outcomes + pending.

    Attributes:
        eligible: metric → units that entered.
        outcomes: (metric, outcome, stratum of the score) → units that ended so; None = the population.
        pending: metric → units between.
        excluded: likewise by outcome and stratum, the weights of the units that the mean of the population lacks.
        shadows: of the second judges, of which nothing is among the others; None = there are none.
    """

    eligible: Mapping[str, int]
    outcomes: Mapping[tuple[str, Outcome, str | None], int]
    pending: Mapping[str, int]
    excluded: Mapping[tuple[str, Outcome, str | None], Weights]
    shadows: Counted | None = None

    @property
    def parts(self) -> Iterator[tuple[str | None, Counted]]:
        """These, and those of the second judges, each with its stratum; each adds up for itself."""
        yield None, self
        if self.shadows is not None:
            yield semconv.STRATUM_SHADOW, self.shadows

    def beside(self, shadows: Counted) -> Counted:
        """Return these with those of second judges, which are of that stratum from now on."""
        stratum: str | None = semconv.STRATUM_SHADOW
        outcomes = {(metric, outcome, stratum): units for (metric, outcome, _), units in shadows.outcomes.items()}
        excluded = {(metric, outcome, stratum): of for (metric, outcome, _), of in shadows.excluded.items()}
        return self._replace(shadows=shadows._replace(outcomes=outcomes, excluded=excluded))

"""Counted: how units stand at one moment, and for how many they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

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
        outcomes: (metric, outcome, source of the score) → units that ended so; None = the population.
        pending: metric → units between.
        excluded: likewise by outcome and source, the weights of the units that the mean of the population lacks.
        compared: (metric, compared value) → what ``excluded`` holds; empty where nothing is compared.
        sources: those that stand beside, by their source: second judges', for one. Nothing of them is among the others.
    """

    eligible: Mapping[str, int]
    outcomes: Mapping[tuple[str, Outcome, str | None], int]
    pending: Mapping[str, int]
    excluded: Mapping[tuple[str, Outcome, str | None], Weights]
    sources: Mapping[str, Counted] = MappingProxyType({})
    compared: Mapping[tuple[str, str], Weights] = MappingProxyType({})

    @property
    def parts(self) -> Iterator[tuple[str | None, Counted]]:
        """These, and those beside, each with its source; each adds up for itself."""
        yield None, self
        yield from self.sources.items()

    def joined(self, other: Counted) -> Counted:
        """Return these with another population, of other metrics."""
        return Counted(
            {**self.eligible, **other.eligible},
            {**self.outcomes, **other.outcomes},
            {**self.pending, **other.pending},
            {**self.excluded, **other.excluded},
            {**self.sources, **other.sources},
            {**self.compared, **other.compared},
        )

    def beside(self, source: str, other: Counted) -> Counted:
        """Return these with others, which are of that source from now on."""
        within: str | None = source
        outcomes = {(metric, outcome, within): units for (metric, outcome, _), units in other.outcomes.items()}
        excluded = {(metric, outcome, within): of for (metric, outcome, _), of in other.excluded.items()}
        of_source = other._replace(outcomes=outcomes, excluded=excluded)
        return self._replace(sources={**self.sources, source: of_source})

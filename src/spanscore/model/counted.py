"""Counted: how units stand at one moment, and for how many they stand."""

from __future__ import annotations

from collections.abc import Mapping
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
        outcomes: (metric, outcome, stratum of the score) → units that ended so; None = the population.
        pending: metric → units between.
        excluded: likewise by outcome and stratum, the weights of the units that the mean of the population lacks.
    """

    eligible: Mapping[str, int]
    outcomes: Mapping[tuple[str, Outcome, str | None], int]
    pending: Mapping[str, int]
    excluded: Mapping[tuple[str, Outcome, str | None], Weights]

"""The sums that a scorer keeps for its instruments → how good each metric's scores are so far, and what the mean lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.core.job import Weights
from spanscore.core.score import Scale
from spanscore.monitoring.estimates import MeanInterval, Moments, interval, mean, missing_bounds, missing_share

__all__ = ["WEIGHTED", "MissingShare", "missing_so_far", "running_mean"]

WEIGHTED = {
    "w": semconv.WEIGHT,
    "wy": semconv.WEIGHT_QUALITY,
    "w2": semconv.WEIGHT2,
    "w2y": semconv.WEIGHT2_QUALITY,
    "w2y2": semconv.WEIGHT2_QUALITY2,
}
"""Field of ``Moments`` that weighs scores → its instrument; what is lost is none of a mean."""
_Sums: TypeAlias = Callable[[str], Mapping[tuple[tuple[str, str], ...], float]]
"""Instrument → attributes → sum, as ``Telemetry.sums`` returns them."""


class MissingShare(NamedTuple):
    """What a mean lacks.

    Attributes:
        share: of the chosen units, those without a score of the configured judge; (0, 1].
        low: where the mean of all may lie if these were all as bad as can be, its sampling error included; [0, 1].
        high: if they were all as good as can be, likewise.
    """

    share: float
    low: float
    high: float


def running_mean(metric: str, scale: Scale, sums: _Sums) -> MeanInterval | None:
    """Return what the scores so far say of all eligible traffic; None where nothing is scored, or the scale is open.

    A fallback's scores are not among them.
    """
    of = _population(metric, sums)
    return None if scale.range is None or not of.w else MeanInterval(mean(of), *interval(of))


def missing_so_far(metric: str, scale: Scale, sums: _Sums, lost: Weights) -> MissingShare | None:
    """Return what the mean lacks; None where it lacks nothing, or the scale is open.

    Args:
        lost: of the units without a score that should have one.
    """
    of = _population(metric, sums) + Moments(lost=lost.w, lost2=lost.w2)
    return None if scale.range is None or not of.lost else MissingShare(missing_share(of), *missing_bounds(of))


def _population(metric: str, sums: _Sums) -> Moments:
    instruments = {"n": semconv.SCORED, **WEIGHTED}
    return Moments(**{field: sum(_of_population(metric, sums(name))) for field, name in instruments.items()})


def _of_population(metric: str, sums: Mapping[tuple[tuple[str, str], ...], float]) -> Iterator[float]:
    for labels, value in sums.items():
        named = dict(labels)
        if named[semconv.EVALUATION_NAME] == metric and semconv.EVALUATION_SOURCE not in named:
            yield value

"""The sums that a scorer keeps for its instruments → how good each metric's scores are so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from spanscore import semconv
from spanscore.model.score import Scale
from spanscore.monitoring.estimates import MeanInterval, Moments, interval, mean

__all__ = ["running_mean"]

_SQUARES = (semconv.WEIGHT2, semconv.WEIGHT2_QUALITY, semconv.WEIGHT2_QUALITY2)
_MOMENTS = (semconv.SCORED, semconv.WEIGHT, semconv.WEIGHT_QUALITY, *_SQUARES)
"""The instrument of each field of ``Moments``, in their order; failures are none of a mean."""


def running_mean(
    metric: str, scale: Scale, sums: Callable[[str], Mapping[tuple[tuple[str, str], ...], float]]
) -> MeanInterval | None:
    """Return what the scores so far say of all eligible traffic; None where nothing is scored, or the scale is open.

    A fallback's scores are not among them.

    Args:
        scale: of its values; pass/fail ones have an interval of their own.
        sums: instrument → attributes → sum, as ``Telemetry.sums`` returns them.
    """
    of = Moments(*(sum(_of_population(metric, sums(name))) for name in _MOMENTS))
    if scale.range is None or not of.w:
        return None
    return MeanInterval(mean(of), *interval(of))


def _of_population(metric: str, sums: Mapping[tuple[tuple[str, str], ...], float]) -> Iterator[float]:
    for labels, value in sums.items():
        named = dict(labels)
        if named[semconv.EVALUATION_NAME] == metric and semconv.STRATUM not in named:
            yield value

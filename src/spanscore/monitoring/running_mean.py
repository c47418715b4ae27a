"""The sums that a scorer keeps for its instruments → how good each metric's scores are so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spanscore import semconv
from spanscore.model.score import Scale
from spanscore.monitoring.estimates import MeanInterval, Moments, interval, mean

__all__ = ["running_mean"]

_FIELDS = {
    "n": semconv.SCORED,
    "w": semconv.WEIGHT,
    "wy": semconv.WEIGHT_QUALITY,
    "w2": semconv.WEIGHT2,
    "w2y": semconv.WEIGHT2_QUALITY,
    "w2y2": semconv.WEIGHT2_QUALITY2,
}


def running_mean(
    metric: str, scale: Scale, sums: Callable[[str], Mapping[tuple[tuple[str, str], ...], float]]
) -> MeanInterval | None:
    """Return what the scores so far say of all eligible traffic; None where nothing is scored, or the scale is open.

    Args:
        metric: its name.
        scale: of its values; pass/fail ones have an interval of their own.
        sums: instrument → attributes → sum, as ``Telemetry.sums`` returns them.
    """
    label = (semconv.EVALUATION_NAME, metric)
    of = Moments(
        **{
            field: sum(value for labels, value in sums(name).items() if label in labels)
            for field, name in _FIELDS.items()
        }
    )
    if scale.range is None or not of.w:
        return None
    return MeanInterval(mean(of), *interval(of, binary=scale.kind == "binary"))

"""What an alert says of a mean: of which metric and segment, on which scale, and what it lacks.

A mean is written as quality, as baselines are; if the raw mean is another number, it stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from spanscore.core.score import UNIT_INTERVAL, Scale
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.alert import OF_METRIC, Figure, of_metric
from spanscore.monitoring.estimates import WORTH_TELLING

__all__ = ["FOR_SEGMENT", "figures_of", "mean_of"]

FOR_SEGMENT = f"{{{{ with $labels.{recorded.SEGMENT} }}}} for {{{{ . }}}}{{{{ end }}}}"


class Scaled(Protocol):
    """A metric and its scale."""

    @property
    def name(self) -> str: ...
    @property
    def scale(self) -> Scale: ...


def mean_of(metrics: Sequence[Scaled]) -> str:
    """Return the subject: ``Quality of hedging (lower is better; raw mean {raw}) for tier=gold``."""
    return f"Quality of {OF_METRIC}{of_metric({one.name: _raw_of(one) for one in metrics})}{FOR_SEGMENT}"


def _raw_of(metric: Scaled) -> str:
    scale, (low, high) = metric.scale, _ends(metric.scale)
    if _is_quality(scale):
        return ""
    within = "" if (low, high) == UNIT_INTERVAL.range else f", {low:g} to {high:g}"
    return f" ({scale.direction} is better{within}; raw mean {{{_raw_name(scale)}}})"


def figures_of(metrics: Sequence[Scaled], value: str, window: str) -> Mapping[str, Figure]:
    """Return the figures of ``mean_of``, and ``{worst}``, which is empty if few units lack a score.

    Args:
        value: the expression of the alert's own mean, with ``promql.OWN``.
        window: over which the share of units without a score is counted.
    """
    share = f'{recorded.MISSING_SHARE}{{{recorded.WINDOW}="{window}",{promql.OWN_SERVICE}}} >= {WORTH_TELLING:g}'
    rest = f"on ({', '.join(promql.GROUP)}) group_left () (1 - ({share}))"
    return {
        "worst": Figure(f"{value} * {rest}", " At worst %.2f, if all units without a score failed."),
        **{
            _raw_name(one.scale): Figure(_value_at(value, one.scale), "%.2f")
            for one in metrics
            if not _is_quality(one.scale)
        },
    }


def _is_quality(scale: Scale) -> bool:
    return (scale.range, scale.direction) == (UNIT_INTERVAL.range, UNIT_INTERVAL.direction)


def _raw_name(scale: Scale) -> str:
    """Return the name of the figure of a raw mean, one per scale."""
    return re.sub(r"\W", "_", f"raw_{scale.direction}_{_ends(scale)}")


def _value_at(quality: str, scale: Scale) -> str:
    """Return the expression of the value that has a quality, the inverse of ``Scale.quality``."""
    low, high = _ends(scale)
    return (
        f"{low:g} + {high - low:g} * {quality}"
        if scale.direction == "higher"
        else f"{high:g} - {high - low:g} * {quality}"
    )


def _ends(scale: Scale) -> tuple[float, float]:
    low, high = scale.range or (0.0, 1.0)
    return (0.0 if scale.negatives_are_zero else low), high

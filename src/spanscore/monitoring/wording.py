"""What an alert says of a mean: whose it is, on which scale, of how many scores and replicas, by which judge.

A mean is told as quality, on which baselines are; beside it stands the raw one wherever that is another number.
"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.model.score import UNIT_INTERVAL, Scale
from spanscore.monitoring import promql
from spanscore.monitoring.alert import Figure, Stream, literal, suffix_of
from spanscore.monitoring.estimates import WORTH_TELLING

__all__ = ["evidence_of", "figures_of", "mean_of"]


def evidence_of(stream: Stream) -> str:
    """Return what a mean stands on: the series is metric version, judge and votes."""
    lost = "" if stream.key else "{excluded}{worst}"  # what is lost has no segment
    return f"{{scores}} effective scores, replicas: {{replicas}}, series {{{{ $labels.{promql.SERIES} }}}}.{lost}"


def mean_of(metric: str, scale: Scale, stream: Stream) -> str:
    """Return what is told of: ``Mean quality of hedging (lower is better; raw mean {raw}) for tier=gold``."""
    return f"Mean quality of {literal(metric)}{_raw_of(scale)}{suffix_of(stream)}"


def _raw_of(scale: Scale) -> str:
    if (scale.range, scale.direction) == (UNIT_INTERVAL.range, UNIT_INTERVAL.direction):
        return ""
    low, high = _ends(scale)
    within = "" if (low, high) == UNIT_INTERVAL.range else f", {low:g} to {high:g}"
    return f" ({scale.direction} is better{within}; raw mean {{raw}})"


def figures_of(metric: str, scale: Scale, stream: Stream, of: promql.Estimate, window: str) -> Mapping[str, Figure]:
    """Return the figures of ``mean_of`` and ``evidence_of``.

    Args:
        of: what is recorded of the alert's own service and series: with ``promql.OWN`` among its matchers.
    """
    where = ",".join(filter(None, (promql.matching({promql.METRIC: metric}), stream.where, promql.OWN)))
    found = {"scores": Figure(of.n_eff, "%.0f"), "replicas": Figure(promql.replicas(window, where), "%.0f")}
    if _raw_of(scale):
        found["raw"] = Figure(_value_at(of.mean, scale), "%.2f")
    return found if stream.key else {**found, **_excluded(metric, window)}


def _excluded(metric: str, window: str) -> Mapping[str, Figure]:
    where = f"{{{promql.matching({promql.METRIC: metric})},{promql.OWN_SERVICE}}}"
    share = f"{promql.recorded_as(promql.EXCLUDED_SHARE, window)}{where} >= {WORTH_TELLING:g}"
    lowest = promql.recorded_as(promql.MEAN_IF_WORST, window) + where
    return {
        "excluded": Figure(f"100 * ({share})", " %.0f %% of the chosen units were not scored: the mean is of the rest"),
        "worst": Figure(f"{lowest}\nand {share}", ", at worst %.2f."),
    }


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

"""What ``status()`` tells of a line's scores so far: their means, and what these lack."""

from __future__ import annotations

from spanscore import semconv
from spanscore.line.build import Line
from spanscore.monitoring.estimates import MeanInterval, MissingShare, missing_so_far, running_mean
from spanscore.monitoring.health import Applicability, applied_so_far
from spanscore.outputs.aggregates import is_conditional

__all__ = ["applies_in", "contradictions_in", "count_declined", "find_excluded", "means_of"]


def means_of(line: Line) -> dict[str, MeanInterval | None]:
    """Return metric → how good its scores are so far; None where there are none, or their scale is open."""
    if line.telemetry is None:
        return dict.fromkeys(line.metrics)
    return {name: running_mean(name, metric.scale, line.telemetry.sums) for name, metric in line.metrics.items()}


def find_excluded(line: Line) -> dict[str, MissingShare]:
    """Return metric → what its mean lacks; those that lack nothing, or have no mean, are left out."""
    if line.telemetry is None:
        return {}
    lost, sums = {**line.ledger.lost(), **line.sessions.ledger.lost()}, line.telemetry.sums
    shares = {name: missing_so_far(name, metric.scale, sums, lost[name]) for name, metric in line.metrics.items()}
    return {name: lacking for name, lacking in shares.items() if lacking is not None}


def applies_in(line: Line) -> dict[str, Applicability | None]:
    """Return metric with a condition → to how much of traffic it applies; None where nobody has said yet."""
    if line.telemetry is None:
        return {}
    lost, sums = {**line.ledger.lost(), **line.sessions.ledger.lost()}, line.telemetry.sums
    conditional = (name for name, metric in line.metrics.items() if is_conditional(metric))
    return {name: applied_so_far(name, sums, lost[name]) for name in conditional}


def contradictions_in(line: Line) -> dict[str, int]:
    """Return metric → verdicts of its judges that their own reason speaks against; those without any are left out."""
    counts: dict[str, int] = {}
    for labels, verdicts in (
        () if line.telemetry is None else line.telemetry.sums(semconv.JUDGE_SELF_CONTRADICTIONS).items()
    ):
        if verdicts:
            metric = dict(labels)[semconv.EVALUATION_NAME]
            counts[metric] = counts.get(metric, 0) + int(verdicts)
    return counts


def count_declined(line: Line) -> dict[str, int]:
    """Return metric → units that its judge declined; empty without instruments."""
    sums = {} if line.telemetry is None else line.telemetry.sums(semconv.DECLINED)
    return {dict(labels)[semconv.EVALUATION_NAME]: int(units) for labels, units in sums.items()}

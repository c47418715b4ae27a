"""Rows of one metric → the sums of the population that they are a sample of: what was scored, and what the mean lacks."""

from __future__ import annotations

from collections.abc import Sequence

from spanscore.core.score import Outcome
from spanscore.monitoring.estimates import Moments, moments
from spanscore.monitoring.health import Applicability, applicability
from spanscore.report.rows import ReportRow

__all__ = ["lost_units", "population_applicability", "population_sums"]

_LOST = frozenset(outcome.value for outcome in Outcome if outcome.missing)


def population_sums(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> Moments:
    """Return the sums; what was lost, and what a fallback judged, is excluded.

    Args:
        rows: of a metric that has a quality.
        fallback: of the same metric, those that another judge than the configured one gave.
    """
    pairs = [(row.quality, 1.0 / row.weight) for row in rows if row.quality is not None]
    return moments(pairs, [probability for _, probability in lost_units(rows, fallback)])


def lost_units(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> list[tuple[ReportRow, float]]:
    """Return the units that a metric's mean lacks, each with its probability; arguments as of ``population_sums``.

    A unit whose probability its span does not tell stands for as many as a score does.
    """
    scored = [row for row in rows if row.quality is not None]
    lost = _find_lost(rows) + [row for row in fallback if row.value is not None] + _find_lost(fallback)
    typical = len(scored) / sum(row.weight for row in scored) if scored else 1.0
    return [(row, row.probability or typical) for row in lost]


def population_applicability(rows: Sequence[ReportRow], fallback: Sequence[ReportRow]) -> Applicability | None:
    """Return to how much of traffic a metric applies; what is missing as in its sums. None where nobody said."""
    decided = [(row.applies, 1.0 / row.weight) for row in rows if row.applies is not None]
    if not decided:
        return None
    typical = len(decided) / sum(1.0 / probability for _, probability in decided)
    missing = [*_find_lost(rows), *_find_lost(fallback), *(row for row in fallback if row.applies is not None)]
    return applicability(decided, [row.probability or typical for row in missing])


def _find_lost(rows: Sequence[ReportRow]) -> list[ReportRow]:
    return [row for row in rows if {*row.outcome.split(" or ")} & _LOST]

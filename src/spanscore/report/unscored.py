"""Rows without a score → why, how many for each reason, and one of them to open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spanscore.report.rows import ReportRow

__all__ = ["Unscored", "explain_unscored"]

TURNED_AWAY = frozenset({"not_sampled", "filtered", "trace_not_sampled", "delegated"})
"""Nobody asked for these scores here."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why evaluations of a metric have no score.

    Attributes:
        outcome: one of ``Outcome``, ``pending``, or several joined by " or ".
        reason: what is known beside it: an error's type, a field; empty where nothing is.
        units: how many.
        latest: trace id of the latest; its unit's own name where it has none.
    """

    outcome: str
    reason: str
    units: int
    latest: str


def explain_unscored(rows: Iterable[ReportRow]) -> tuple[Unscored, ...]:
    """Return why rows of one metric have no score, the most frequent reason first."""
    alike: dict[tuple[str, str], list[ReportRow]] = {}
    for row in rows:
        if row.value is None and not {*row.outcome.split(" or ")} <= TURNED_AWAY:
            alike.setdefault((row.outcome, row.reason or ""), []).append(row)
    reasons = (Unscored(*why, len(those), _latest(those)) for why, those in alike.items())
    return tuple(sorted(reasons, key=lambda reason: -reason.units))


def _latest(rows: Iterable[ReportRow]) -> str:
    last = max(rows, key=lambda row: row.time_ns or 0)
    return last.trace_id or last.name or last.unit

"""Rows → the funnel: how many evaluations came how far, and what was lost on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spanscore.report.rows import ReportRow
from spanscore.report.unscored import TURNED_AWAY

__all__ = ["FunnelStep", "funnel"]

_NOT_CHOSEN = TURNED_AWAY | {"event_queue_full"}
_NO_SAMPLE = frozenset({"no_sample", "missing_field", "incomplete"})


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """One step of the funnel.

    Attributes:
        name: what the evaluations that came this far have.
        left: how many came this far.
        lost: outcome → how many ended just before.
    """

    name: str
    left: int
    lost: Mapping[str, int]


def funnel(rows: Sequence[ReportRow]) -> tuple[FunnelStep, ...]:
    """Return what became of all (unit × metric), step by step."""
    ended = Counter(row.outcome for row in rows if row.value is None)
    failed = {"failed the metric's threshold": sum(row.label == "fail" for row in rows)}
    left = len(rows)
    steps = [FunnelStep("came in", left, {})]
    for name, lost in (
        ("chosen by sampling", _only(ended, lambda outcome: outcome in _NOT_CHOSEN)),
        ("had what the metric needs", _only(ended, lambda outcome: outcome in _NO_SAMPLE)),
        ("scored", _only(ended, lambda outcome: outcome not in _NOT_CHOSEN | _NO_SAMPLE)),
        ("passed", {key: count for key, count in failed.items() if count}),
    ):
        left -= sum(lost.values())
        steps.append(FunnelStep(name, left, lost))
    return tuple(steps if any(row.label for row in rows) else steps[:-1])


def _only(counts: Mapping[str, int], wanted: Callable[[str], bool]) -> dict[str, int]:
    return {outcome: count for outcome, count in sorted(counts.items()) if wanted(outcome)}

"""What several scorers of a process may share, an account or a budget, as numbers: each is told once, whoever tells it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from spanscore import semconv
from spanscore.otel.sums import Labels

__all__ = ["Point", "Points", "together"]


class Point(NamedTuple):
    """What one account, budget or watched judge is at.

    Attributes:
        labels: its attributes; others may have the same.
        values: instrument → number.
    """

    labels: Labels
    values: Mapping[str, float]


Points: TypeAlias = Callable[[], Mapping[Hashable, Point]]
"""Reads what there is: by what tells one from every other in this process."""

_WORST: Mapping[str, Callable[[float, float], float]] = {
    semconv.JUDGE_CIRCUIT_BREAKER_STATE: max,
    semconv.BUDGET_FACTOR: min,
    semconv.JUDGE_CHECK_AGREEMENT: min,
    semconv.JUDGE_CHECK_FIRST_AGREEMENT: min,
    semconv.JUDGE_CHECK_P: min,
}
"""Of these the worst stands for all that have the same attributes; others add up."""


def together(name: str, points: Iterable[Point]) -> dict[Labels, float]:
    """Return the numbers of one instrument by their attributes."""
    worst, total = _WORST.get(name), dict[Labels, float]()
    for labels, values in points:
        if name in values:
            value, known = values[name], total.get(labels)
            total[labels] = value if known is None else worst(known, value) if worst else known + value
    return total

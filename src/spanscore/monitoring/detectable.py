"""Scores of each hour and a DropPlan → the smallest drop that alarms within a time.

A drop of d is in a window with the share of it that came since: d̄ = d · share. With as many scores as ``scores_to_see`` says
of d̄ a window alarms half of the time; with n, with the probability Φ(z·√(n ⁄ those) − z), and in a time that holds m windows,
one behind the other, with 1 − Π (1 − p). Windows overlap and are evaluated more often than that: a drop is seen somewhat
sooner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, prod, sqrt
from statistics import NormalDist

from spanscore.monitoring.drops import DropPlan

__all__ = ["SmallestDrop", "smallest_drop"]

_HOUR_S = 3_600.0
_HALF = 0.5
_STEPS = 20
"""Halvings of [0, 1]: to 1e-6."""
_normal = NormalDist()
_Looks = Mapping[tuple[float, float], int]
"""What windows hold, effective scores and the share of them that came since the drop → how many of them do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestDrop:
    """The smallest drop that alarms within a time, half of the time; None = none does.

    Attributes:
        within_s: seconds since the drop began.
        at_best: where it begins at the best hour of the profile.
        at_worst: at the worst.
    """

    within_s: float
    at_best: float | None
    at_worst: float | None


def smallest_drop(plan: DropPlan, *, scores: Sequence[float], within_s: float) -> SmallestDrop:
    """Return the smallest drop of a pass/fail metric that is seen; of a continuous metric it is smaller.

    Args:
        scores: effective ones of each hour; behind the last hour comes the first again.
        within_s: seconds since the drop began.
    """
    begins = range(1 if within_s % (len(scores) * _HOUR_S) == 0 else len(scores))  # whole turns: it is all one when
    found = [
        _smallest(plan, {window: _looks(scores, window, hour, within_s) for window in plan.windows}) for hour in begins
    ]
    seen = [drop for drop in found if drop is not None]
    return SmallestDrop(
        within_s=within_s,
        at_best=min(seen, default=None),
        at_worst=max(seen) if len(seen) == len(found) else None,
    )


def _smallest(plan: DropPlan, windows: Mapping[float, _Looks]) -> float | None:
    lowest, highest = 0.0, plan.baseline.level  # a mean cannot drop by more
    if not _is_seen(plan, windows, highest):
        return None
    for _ in range(_STEPS):
        middle = (lowest + highest) / 2
        lowest, highest = (lowest, middle) if _is_seen(plan, windows, middle) else (middle, highest)
    return highest


def _is_seen(plan: DropPlan, windows: Mapping[float, _Looks], drop: float) -> bool:
    return any(1 - prod(_unseen(plan, window, looks, drop)) >= _HALF for window, looks in windows.items())


def _unseen(plan: DropPlan, window_s: float, looks: _Looks, drop: float) -> Iterator[float]:
    """Yield the probability that looks at windows of a length do not see a drop."""
    means = 2 if plan.baseline.offset_s else 1  # that of before has an error of its own
    z = plan.windows[window_s]
    for (scores, share), times in looks.items():
        if scores >= plan.least:
            half = means * plan.scores_to_see(drop * share, window_s, z)
            yield _normal.cdf(z - z * sqrt(scores / half)) ** times


def _looks(scores: Sequence[float], window_s: float, begin: int, within_s: float) -> _Looks:
    """Return what windows hold that lie behind one another since a drop began; where none has room, one that reaches back."""
    whole = floor(within_s / window_s)
    if not whole:
        since = _held(scores, begin, begin + within_s / _HOUR_S)
        held = since + _held(scores, begin - (window_s - within_s) / _HOUR_S, begin)
        return {(held, since / held): 1} if held else {}
    hours = window_s / _HOUR_S
    return Counter((_held(scores, begin + i * hours, begin + (i + 1) * hours), 1.0) for i in range(whole))


def _held(scores: Sequence[float], begin: float, end: float) -> float:
    """Return the scores between two times, in hours."""
    return sum(
        scores[hour % len(scores)] * (min(end, hour + 1) - max(begin, hour)) for hour in range(floor(begin), ceil(end))
    )

"""What is normal at a time, as PromQL: an hour of the week, the hours of a window, what was days before. Text in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from spanscore.monitoring.promql import METRIC, Estimate

__all__ = ["NORMAL", "NORMAL_WEIGHT", "STEP_WEIGHT", "before", "normal_by_hour", "normal_over"]

NORMAL = "spanscore:baseline:now"
"""The name under which ``normal_by_hour()`` is recorded."""
STEP_WEIGHT, NORMAL_WEIGHT = "spanscore:weight:step", "spanscore:baseline_weight:step"
"""The names under which a few evaluations' weight is, and the same times what is normal."""
_SEEN = 0.9
"""Share of a window of which must be known what was normal."""


def normal_by_hour(hours: Sequence[float]) -> str:
    """Return what is normal in this hour.

    Args:
        hours: of the week, 168, from Sunday 00:00 UTC on.
    """
    return "\nor ".join(_normal_on(day, hours[24 * day : 24 * (day + 1)]) for day in range(7))


def normal_over(window: str, metric: str, *, evaluations: float) -> str:
    """Return the mean of what was normal in a window, by the weight that was scored in each part of it.

    The plain mean over the window would be another one where quiet hours are better or worse than busy ones.

    Args:
        metric: the matcher of its name.
        evaluations: in the window, of which most have to be there.
    """
    weighted, weights = (f"sum_over_time({name}{{{metric}}}[{window}])" for name in (NORMAL_WEIGHT, STEP_WEIGHT))
    seen = f"count_over_time({NORMAL}{{{metric}}}[{window}]) >= {_SEEN * evaluations:g}"
    return f"{weighted} / {weights}\nand on ({METRIC}) {seen}"


def before(of: Estimate, offset: str, *, min_scores: int) -> str:
    """Return the mean that was so long before, where there were enough scores."""
    return f"{of.mean} offset {offset}\nand {of.n_eff} offset {offset} >= {min_scores}"


def _normal_on(day: int, hours: Sequence[float]) -> str:
    chosen = " + ".join(f"{value:.4g} * (hour() == bool {hour})" for hour, value in enumerate(hours))
    return f"({chosen})\nand on () day_of_week() == {day}"

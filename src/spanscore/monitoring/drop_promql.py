"""A drop, the end of one and the alarm on it, as PromQL on what is recorded of each window. No state but that.

A window sees a drop where its mean is significantly below what is tolerated. A long one would see it long after its end: where
the next shorter one is good again, and significantly better than the long one, the long one is silent for its own length: until
then what it holds is of the time before, and shorter ones watch.
"""

from __future__ import annotations

from spanscore.monitoring.promql import Estimate, recorded_as

__all__ = ["DROPPED", "RECOVERED", "alarm", "deviance", "dropped", "recovered"]

DROPPED, RECOVERED = "dropped", "recovered"
"""What is recorded of each window, ``spanscore:dropped:1h``: by how much below what is tolerated; and that it is over."""
EDGE = 1e-9
"""How near to 0 and 1 a mean is taken, for its logarithm."""
LITTLE_VARIED = 16.0
"""Scores that vary less count as if their standard deviation were a quarter of what is possible."""


def deviance(of: Estimate, level: str, *, strays: str = "", most: float = 1.0) -> str:
    """Return the deviance of a mean from a level: beyond z² it is z standard errors away.

    Twice the logarithm of how much likelier scores of this mean are under it than under the level (Wilks 1938; of pass/fail
    scores the G statistic). Scores count as so many pass/fail ones as have the mean's standard error. Unlike a distance in
    standard errors it holds where the scores are skewed: near 1 a few failures decide.

    Args:
        level: a number, or an expression with the labels of ``of``; (0, 1).
        strays: the variance of the level itself: a number or an expression; empty = none.
        most: so many pass/fail scores one effective score may count for, where scores vary little or not at all.
    """
    p = f"clamp({of.mean}, {EDGE:g}, {1 - EDGE:.9g})"
    error = f"({of.standard_error} ^ 2{strays and ' + '}{strays})"
    size = f"{of.n_eff} * clamp_max({p} * (1 - {p}) / ({error} * {of.n_eff}), {most:g})"
    return f"2 * {size} * ({p} * ln({p} / {level}) + (1 - {p}) * ln((1 - {p}) / (1 - {level})))"


def dropped(of: Estimate, *, null: str, z: float, min_scores: int, binary: bool, strays: str = "") -> str:
    """Return by how much the mean is below ``null`` where that is significant, else nothing. No state: only the window's sums.

    Args:
        null: baseline − tolerance, (0, 1): a number, or an expression with the labels of ``of``.
        z: of the allowed rate of false alarms.
        min_scores: effective scores without which nothing is said.
        binary: whether the metric knows only 0 and 1.
        strays: the variance of the null itself: a number or an expression; empty = none.
    """
    far = deviance(of, null, strays=strays, most=1.0 if binary else LITTLE_VARIED)
    return f"{null} - {of.mean} > 0\nand {far} > {z * z:.4g}\nand {of.n_eff} >= {min_scores}"


def recovered(window: str, shorter: str, *, z: float, min_scores: int, shortest: bool) -> str:
    """Return where the drop that a window sees is over: the next shorter is above what is tolerated, and z above the window.

    Also where that is recorded of the shorter one. Of all metrics at once.

    Args:
        min_scores: effective scores which the shorter one needs.
        shortest: whether the shorter one is the shortest, of which nothing is recorded.
    """
    whole, part, drop = Estimate.recorded(window), Estimate.recorded(shorter), recorded_as(DROPPED, window)
    far = deviance(part, f"clamp({whole.mean}, {EDGE:g}, {1 - EDGE:.9g})")
    found = f"{part.mean} - {whole.mean} > {drop}\nand {far} > {z * z:.4g}\nand {part.n_eff} >= {min_scores}"
    return found if shortest else f"{found}\nor {recorded_as(RECOVERED, shorter)}"


def alarm(window: str, where: str, *, shortest: bool) -> str:
    """Return the mean where it has dropped and has not recovered within the window, and nothing elsewhere.

    Args:
        where: matchers of the metric and of what is watched of it.
        shortest: whether no window is shorter: it ends with its drop.
    """
    seen = f"{recorded_as('mean', window)}{{{where}}}\nand {recorded_as(DROPPED, window)}"
    over = f"present_over_time({recorded_as(RECOVERED, window)}{{{where}}}[{window}])"
    return seen if shortest else f"{seen}\nunless {over}"

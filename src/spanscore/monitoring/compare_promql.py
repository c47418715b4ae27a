"""Two releases as PromQL: their means, the difference, and its interval at one look. Text in, text out.

What a panel shows is for a look: its interval is ``sequential.at_one_look``, of a window that slides. Watched for a day it
misses sooner or later; who decides asks ``spanscore compare``, whose interval holds at every look.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.names import label

__all__ = ["RELEASE", "difference", "difference_bounds", "difference_interval", "missing_of", "release_sums"]

RELEASE: Final = label(semconv.COMPARED)
"""The label of the compared value."""


def release_sums(value: str, window: str, where: str = "", by: Iterable[str] = promql.GROUP) -> promql.Sums:
    """Return the sums of a release.

    Args:
        value: as it stands between the quotes of a matcher: escaped, or a dashboard's variable.
        window: ``1h``, or a dashboard's ``$__range``.
        where: further matchers.
        by: the labels that are told apart.
    """
    of_release = promql.increases(window, ",".join(filter(None, (where, f'{RELEASE}="{value}"'))), by)
    return lambda instrument: of_release(_OF_RELEASES.get(instrument, instrument))


_OF_RELEASES: Final = {
    semconv.MISSING_WEIGHT: semconv.COMPARED_MISSING_WEIGHT,
    semconv.MISSING_WEIGHT2: semconv.COMPARED_MISSING_WEIGHT2,
}
"""What is lost is of no release in the sums of all."""


def difference(a: promql.Sums, b: promql.Sums) -> str:
    """Return by how much the mean quality of b is above that of a, [−1, 1]."""
    return f"({promql.mean(b)} - {promql.mean(a)})"


def difference_interval(a: promql.Sums, b: promql.Sums, *, level: float = 0.95) -> tuple[str, str]:
    """Return the ends of its interval at one look, as ``sequential.at_one_look``."""
    (low_a, high_a), (low_b, high_b) = (promql.interval(side, level=level) for side in (a, b))
    below = f"({promql.mean(b)} - {low_b}) ^ 2 + ({high_a} - {promql.mean(a)}) ^ 2"
    above = f"({high_b} - {promql.mean(b)}) ^ 2 + ({promql.mean(a)} - {low_a}) ^ 2"
    middle = difference(a, b)
    return f"clamp_min({middle} - sqrt({below}), -1)", f"clamp_max({middle} + sqrt({above}), 1)"


def difference_bounds(a: promql.Sums, b: promql.Sums, *, level: float = 0.95) -> tuple[str, str]:
    """Return where the difference lies, at one look, whatever the lost units of both would have scored."""
    low, _ = difference_interval(promql.if_best(a), promql.if_worst(b), level=level)
    _, high = difference_interval(promql.if_worst(a), promql.if_best(b), level=level)
    return low, high


def missing_of(of: promql.Sums) -> str:
    """Return the share of a release's chosen units that have no score of the configured judge, [0, 1]."""
    lost = of(semconv.MISSING_WEIGHT)
    return f"({lost} / ({lost} + {of(semconv.WEIGHT)}))"

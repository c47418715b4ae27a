"""A Prometheus → the sums of each metric's scores, five minutes by five minutes.

Differences of the raw counters, replica by replica, and then added up: they are exact, which ``increase()`` is not around a
restart. The five minutes of a restart, or of a replica's first scores, are left out of all sums alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spanscore.monitoring import promql
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.hour_of_week import DAY_S, STEP_S
from spanscore.monitoring.prometheus_api import PrometheusApi
from spanscore.monitoring.running_mean import WEIGHTED

__all__ = ["History", "ScoredSeries", "scored_days"]


class ScoredSeries(NamedTuple):
    """A metric, and the series (its version, judge and votes) of its scores."""

    metric: str
    series: str


History = Mapping[ScoredSeries, Mapping[int, Moments]]
"""Start of five minutes, in seconds since the epoch → sums; only those with scores."""


def scored_days(api: PrometheusApi, *, end_s: float, days: int, where: Mapping[str, str]) -> Iterator[History]:
    """Yield what was scored on each day before ``end_s``, oldest first.

    Args:
        where: label → the value that is asked for.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses.
    """
    end = int(end_s // STEP_S) * STEP_S
    for day in range(days, 0, -1):
        yield _between(api, end - day * DAY_S, end - (day - 1) * DAY_S, promql.matching(where))


def _between(api: PrometheusApi, start: int, end: int, where: str) -> History:
    sums: defaultdict[ScoredSeries, defaultdict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for field, instrument in WEIGHTED.items():
        grown = promql.grown(instrument, promql.duration(STEP_S), where, (promql.METRIC, promql.SERIES))
        for one in api.query_range(grown, start_s=start + STEP_S, end_s=end, step_s=STEP_S):
            of = sums[ScoredSeries(one.labels.get(promql.METRIC, ""), one.labels.get(promql.SERIES, ""))]
            for time, value in one.points:
                of[int(time) - STEP_S][field] = value
    return {
        series: {
            time: Moments(**parts) for time, parts in steps.items() if parts.get("w") and len(parts) == len(WEIGHTED)
        }
        for series, steps in sums.items()
    }

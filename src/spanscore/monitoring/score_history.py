"""A Prometheus → the sums of each metric's scores, five minutes by five minutes.

Differences of the raw counters, replica by replica, and then added up: they are exact, which ``increase()`` is not around a
restart. The five minutes of a restart, or of a replica's first scores, are left out of all sums alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from spanscore.monitoring import promql
from spanscore.monitoring.estimates import Moments
from spanscore.monitoring.hour_of_week import DAY_S, STEP_S
from spanscore.monitoring.prometheus_api import PrometheusApi
from spanscore.monitoring.running_mean import WEIGHTED

__all__ = ["History", "ScoredEvaluator", "scored_days", "stepped"]


class ScoredEvaluator(NamedTuple):
    """A metric, and the evaluator version (its version, judge and votes) of its scores."""

    metric: str
    evaluator_version: str


History = Mapping[ScoredEvaluator, Mapping[int, Moments]]
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


def stepped(
    api: PrometheusApi, instrument: str, *, by: Sequence[str], where: str, begin: int, end: int, step: int
) -> Iterator[tuple[Mapping[str, str], dict[int, float]]]:
    """Yield labels, and start of a step in seconds since the epoch → by how much the population's counters grew in it.

    Args:
        by: the labels that are told apart.
        where: matchers.
        begin: of the first step, seconds since the epoch, a multiple of ``step``; ``end``: of the last one, likewise.

    Raises:
        ConfigurationError: Prometheus does not answer, or refuses.
    """
    grown = promql.grown(instrument, promql.duration(step), where, by)
    for one in api.query_range(grown, start_s=begin + step, end_s=end, step_s=step):
        yield one.labels, {int(time) - step: value for time, value in one.points}


def _between(api: PrometheusApi, start: int, end: int, where: str) -> History:
    sums: defaultdict[ScoredEvaluator, defaultdict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    by = (promql.METRIC, promql.EVALUATOR_VERSION)
    for field, instrument in WEIGHTED.items():
        for labels, points in stepped(api, instrument, by=by, where=where, begin=start, end=end, step=STEP_S):
            of = sums[ScoredEvaluator(labels.get(promql.METRIC, ""), labels.get(promql.EVALUATOR_VERSION, ""))]
            for time, value in points.items():
                of[time][field] = value
    return {
        evaluator_version: {
            time: Moments(**parts) for time, parts in steps.items() if parts.get("w") and len(parts) == len(WEIGHTED)
        }
        for evaluator_version, steps in sums.items()
    }

"""Silence: units come and none is scored, or nothing comes at all."""

from __future__ import annotations

from collections.abc import Iterator

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.alert import SERIES, Alert, labels_of, literal, steady_window
from spanscore.monitoring.names import label, series
from spanscore.protocols import Metric
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = ["SILENT", "UNSCORED", "silence"]

UNSCORED, SILENT = "unscored", "silent"
"""Why there are no scores: the units come and none is scored, or nothing comes."""
EVALUATED = 10
"""Units that were to be evaluated without one score, from which on that is no chance any more."""


def silence(metric: Metric, alert: AlertSettings, shared: MonitoringSettings) -> Iterator[Alert]:
    """Yield the alerts on a metric without scores."""
    where = promql.matching({promql.METRIC: metric.name})
    scored = promql.matching({promql.METRIC: metric.name, **({SERIES: alert.series} if alert.series else {})})
    first, long = steady_window(shared), promql.duration(shared.no_scores_after)
    outcome = label(semconv.OUTCOME)
    chosen = promql.increase(
        semconv.EVALUATIONS, first, f'{where},{outcome}!~"{promql.TURNED_AWAY}",{promql.POPULATION}'
    )
    yield Alert(
        name="SpanscoreNoScores",
        expression=f"{chosen} >= {EVALUATED}\nand {promql.increase(semconv.SCORED, first, scored)} == 0",
        labels={**labels_of("critical", metric.name, first), "reason": UNSCORED},
        summary=f"{literal(metric.name)} has no scores",
        text=f"{{value}} units were to be evaluated by {literal(metric.name)} over the last {first}, and none got a score "
        "({service}). spanscore.outcome of spanscore_evaluations_total tells how they ended.",
    )
    # Known: from before the window, by up to twice its length. One that is new is not silent yet; of a service that is gone
    # there is no increase at all.
    memory = promql.duration(2 * shared.no_scores_after)
    counter = f"{series(semconv.SCORED)}{{{scored},{promql.POPULATION}}}"
    known = f"last_over_time({counter}[{memory}] offset {long})"
    silent = f"sum by ({', '.join(promql.GROUP)}) ({known})\nunless {promql.increase(semconv.SCORED, long, scored)} > 0"
    yield Alert(
        name="SpanscoreNoScores",
        expression=f"{silent}\nor absent({counter})",
        labels={**labels_of("critical", metric.name, long), "reason": SILENT},
        summary=f"{literal(metric.name)} has no scores",
        text=f"No score of {literal(metric.name)} arrived over the last {long}, or its counters are not here at all "
        "({service}): no traffic, no scorer, or no way from it to here. No other alert on this metric can fire meanwhile.",
    )

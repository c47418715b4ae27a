"""Canary → the alert on a judge that has changed, and what the alert on a drop says of it.

A scorer exports the exact p of what changed since the first run (``paired_runs.py``); here it is compared with a rate. A run is
one look, so each of the n runs in ``false_alarm_every`` may alarm falsely with 1 ⁄ n of the canary's share of it: a metric that
is watched has one share, as each window and segment of a drop has. Replicas have runs of their own: their smallest p counts,
times their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.alert import OF_METRIC, Alert, Figure, labels_of, literal, of_metric, streams_of
from spanscore.monitoring.names import label, series
from spanscore.protocols import Metric
from spanscore.settings.alerting import AlertSettings, MonitoringSettings
from spanscore.settings.canary import Canary

__all__ = ["CanaryPlan", "canary_figures", "canary_plans", "canary_records", "judge_changed", "told_by", "watched_by"]

KEPT_S = 900.0
"""For so long the alert stays on without a number: a process that starts has none before its first run has ended."""
HIGHEST = 0.05
"""Of the rate, where runs are rarer than false alarms may be."""


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """How one metric's judge is watched.

    Attributes:
        every_s: between two runs.
        below: p from which a change is told on downwards, (0, 1).
        false_alarm_every_s: at most one false alarm in this time, with those on drops.
        severity: of the alert.
    """

    metric: str
    every_s: float
    below: float
    false_alarm_every_s: float
    severity: str


def watched_by(canary: Canary, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a canary watches, by name.

    Raises:
        ConfigurationError: it names one that is none or has an open scale, or there is none to watch.
    """
    for name in canary.metrics:
        if name not in metrics:
            raise ConfigurationError(
                f"canary.metrics names {name!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
            )
        if metrics[name].scale.range is None:
            raise ConfigurationError(f"canary.metrics names {name!r}, which has an open scale: give the metric range=")
    asking = (
        name
        for name, one in metrics.items()
        if getattr(one, "_judge", None) is not None and one.scale.range is not None
    )
    names = list(canary.metrics or asking)
    if not names:
        raise ConfigurationError("canary: no metric with a closed scale asks a judge; name what it watches in metrics")
    return {name: metrics[name] for name in names}


def canary_plans(
    canary: Canary | None,
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: MonitoringSettings,
) -> list[CanaryPlan]:
    """Return how the judges are watched; none without a canary.

    Raises:
        ConfigurationError: it names no metric that can be watched.
    """
    if canary is None:
        return []
    watched = watched_by(canary, {metric.name: metric for metric in metrics})
    dropping = [one for one in metrics if alerts.get(one.name, _UNWATCHED).baseline is not None and one.scale.range]
    shares = len(dropping) * len(streams_of(shared)) * len(shared.windows) + len(watched)
    shares *= max(1, len(shared.services))
    return [_plan(name, canary.every_s, alerts.get(name, _UNWATCHED), shares) for name in watched]


_UNWATCHED = AlertSettings()


def _plan(metric: str, every_s: float, alert: AlertSettings, shares: int) -> CanaryPlan:
    below = min(HIGHEST, every_s / (alert.false_alarm_every * shares))
    return CanaryPlan(metric, every_s, below, alert.false_alarm_every, alert.severity)


def canary_records(plans: Sequence[CanaryPlan]) -> Iterator[dict[str, Any]]:
    """Yield the p of each metric below which its judge has changed."""
    return (recorded.constant(recorded.JUDGE_P, plan.below, plan.metric) for plan in plans)


def judge_changed(plans: Sequence[CanaryPlan]) -> Alert:
    """Return the alert on a judge that answers its labelled samples otherwise than at first."""
    window = promql.duration(plans[0].every_s)  # one canary, so one for all metrics
    agreement, first = (
        Figure(f"min({series(name)}{{{_CANARY},{promql.OWN_SERIES}}})", "%.2f")
        for name in (semconv.CANARY_AGREEMENT, semconv.CANARY_FIRST_AGREEMENT)
    )
    below = of_metric({plan.metric: f"{plan.below:.2g}" for plan in plans})
    return Alert(
        name="SpanscoreJudgeChanged",
        expression=f"{_p(_CANARY)} < {_LIMIT}",
        labels=labels_of(of_metric({plan.metric: literal(plan.severity) for plan in plans}), OF_METRIC, window),
        summary=f"the judge of {OF_METRIC} has changed",
        text=f"The judge of {OF_METRIC} answers its labelled samples otherwise than at first ({{service}}): it "
        f"agrees with {{agreement}} of the labels, at first with {{first}} (p = {{value}}, below {below}), series "
        f"{{{{ $labels.{promql.SERIES} }}}}. Its provider may have changed the model behind its name: a drop may be the "
        f"judge's. {of_metric({plan.metric: _promise(plan) for plan in plans})}",
        figures={"agreement": agreement, "first": first},
        keep_s=KEPT_S,
    )


def told_by(plans: Sequence[CanaryPlan]) -> str:
    """Return the places, in the text of a drop, of what the canary says; empty without one."""
    return "{judge_changed}{judge_steady}" if plans else ""


def canary_figures(plans: Sequence[CanaryPlan]) -> dict[str, Figure]:
    """Return what stands there: one of them, and neither if no run has ended, or the metric has no canary."""
    if not plans:
        return {}
    p = _p(f"{_CANARY},{promql.OWN_SERIES}")
    changed = (
        " Its judge answers labelled samples otherwise than at first (canary, p = %.2g): it may be the judge's drop."
    )
    steady = " Its judge answers labelled samples as at first (canary, p = %.2g)."
    return {
        "judge_changed": Figure(f"{p} < {_LIMIT}", changed),
        "judge_steady": Figure(f"{p} >= {_LIMIT}", steady),
    }


_CANARY = promql.matching({label(semconv.STRATUM): semconv.STRATUM_CANARY})
_LIMIT = f"on ({promql.METRIC}) group_left () {recorded.JUDGE_P}"


def _p(where: str) -> str:
    told, by = f"{series(semconv.CANARY_P)}{{{where}}}", ", ".join(promql.BY_SERIES)
    return f"(min by ({by}) ({told}) * count by ({by}) ({told}))"


def _promise(plan: CanaryPlan) -> str:
    every = promql.duration(plan.false_alarm_every_s)
    return f"At most one false alarm in {every}, with those on drops."

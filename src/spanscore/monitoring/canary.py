"""Canary → the alert on a judge that has changed, and what the alert on a drop says of it.

A scorer exports the exact p of what changed since the first run (``paired_runs.py``); here it is compared with a rate. A run is
one look, so each of the n runs in ``false_alarm_every`` may alarm falsely with 1 ⁄ n of the canary's share of it: a metric that
is watched has one share, as each window and segment of a drop has. Replicas have runs of their own: their smallest p counts,
times their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spanscore import semconv
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.alert import Alert, Figure, labels_of, literal, streams_of
from spanscore.monitoring.names import label, series
from spanscore.protocols import Metric
from spanscore.settings.alerting import AlertSettings, MonitoringSettings
from spanscore.settings.canary import Canary

__all__ = ["CanaryPlan", "canary_figures", "canary_plans", "judge_changed", "told_by", "watched_by"]

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
    return [_plan(name, canary.every_s, alerts.get(name, _UNWATCHED), shares) for name in watched]


_UNWATCHED = AlertSettings()


def _plan(metric: str, every_s: float, alert: AlertSettings, shares: int) -> CanaryPlan:
    below = min(HIGHEST, every_s / (alert.false_alarm_every * shares))
    return CanaryPlan(metric, every_s, below, alert.false_alarm_every, alert.severity)


def judge_changed(plan: CanaryPlan) -> Alert:
    """Return the alert on a judge that answers its labelled samples otherwise than at first."""
    where, window = _where(plan.metric), promql.duration(plan.every_s)
    agreement, first = (
        Figure(f"min({series(name)}{{{where},{promql.OWN}}})", "%.2f")
        for name in (semconv.CANARY_AGREEMENT, semconv.CANARY_FIRST_AGREEMENT)
    )
    return Alert(
        name="SpanscoreJudgeChanged",
        expression=f"{_p(where)} < {plan.below:.3g}",
        labels=labels_of(plan.severity, plan.metric, window),
        summary=f"the judge of {literal(plan.metric)} has changed",
        text=f"The judge of {literal(plan.metric)} answers its labelled samples otherwise than at first ({{service}}): it "
        f"agrees with {{agreement}} of the labels, at first with {{first}} (p = {{value}}, below {plan.below:.2g}), series "
        f"{{{{ $labels.{promql.SERIES} }}}}. Its provider may have changed the model behind its name: a drop may be the "
        f"judge's. {_promise(plan)}",
        figures={"agreement": agreement, "first": first},
        keep_s=KEPT_S,
    )


def told_by(plan: CanaryPlan | None) -> str:
    """Return the places, in the text of a drop, of what the canary says; empty where none watches the metric."""
    return "" if plan is None else "{judge_changed}{judge_steady}"


def canary_figures(plan: CanaryPlan | None) -> dict[str, Figure]:
    """Return what stands there: one of them, and neither where no run has ended."""
    if plan is None:
        return {}
    p = _p(f"{_where(plan.metric)},{promql.OWN}")
    changed = (
        " Its judge answers labelled samples otherwise than at first (canary, p = %.2g): it may be the judge's drop."
    )
    steady = " Its judge answers labelled samples as at first (canary, p = %.2g): look at the application."
    return {
        "judge_changed": Figure(f"{p} < {plan.below:.3g}", changed),
        "judge_steady": Figure(f"{p} >= {plan.below:.3g}", steady),
    }


def _where(metric: str) -> str:
    return promql.matching({promql.METRIC: metric, label(semconv.STRATUM): semconv.STRATUM_CANARY})


def _p(where: str) -> str:
    told, by = f"{series(semconv.CANARY_P)}{{{where}}}", ", ".join(promql.BY_SERIES)
    return f"(min by ({by}) ({told}) * count by ({by}) ({told}))"


def _promise(plan: CanaryPlan) -> str:
    every = promql.duration(plan.false_alarm_every_s)
    return f"At most one false alarm in {every}, with those on drops."

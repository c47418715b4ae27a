"""Judge check → the alert on a changed judge, and the sentence on the judge in the alert on a drop.

A scorer exports the exact p of the changes since the first run (``judge_check_runs.py``); here it is compared with a rate. A
run is one look, so each of the n runs in ``false_alarm_every`` may alarm falsely with 1 ⁄ n of the judge check's share of it: a
watched metric has one share, as each window and segment of a drop has. Replicas have runs of their own: their smallest p
counts, times their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanscore import semconv
from spanscore.config.monitoring import AlertSettings, JudgeCheck, Monitoring
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql, recorded
from spanscore.monitoring.alert import OF_METRIC, Alert, AlertNumber, labels_of, literal, of_metric, streams_of
from spanscore.monitoring.promql import label, series
from spanscore.protocols import Metric

KEPT_S = 900.0
"""For so long the alert stays on without a number: a process that starts has none before its first run has ended."""
HIGHEST = 0.05
"""The highest p that is compared with, as runs may be rarer than false alarms may be."""


@dataclass(frozen=True, slots=True)
class JudgeCheckPlan:
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


def watched_by(judge_check: JudgeCheck, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a judge check watches, by name.

    Raises:
        ConfigurationError: it names one that is none or has an open scale, or there is none to watch.
    """
    for name in judge_check.metrics:
        if name not in metrics:
            raise ConfigurationError(
                f"judge_check.metrics names {name!r}, which is no metric of this scorer; it has {', '.join(metrics)}"
            )
        if metrics[name].scale.range is None:
            raise ConfigurationError(
                f"judge_check.metrics names {name!r}, which has an open scale: give the metric range="
            )
    asking = (
        name
        for name, one in metrics.items()
        if getattr(one, "_judge", None) is not None and one.scale.range is not None
    )
    names = list(judge_check.metrics or asking)
    if not names:
        raise ConfigurationError(
            "judge check: no metric with a closed scale asks a judge; name what it watches in metrics"
        )
    return {name: metrics[name] for name in names}


def judge_check_plans(
    judge_check: JudgeCheck | None,
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring,
) -> list[JudgeCheckPlan]:
    """Return how the judges are watched; none without a judge check.

    Raises:
        ConfigurationError: it names no metric that can be watched.
    """
    if judge_check is None:
        return []
    watched = watched_by(judge_check, {metric.name: metric for metric in metrics})
    dropping = [one for one in metrics if alerts.get(one.name, _UNWATCHED).baseline is not None and one.scale.range]
    shares = len(dropping) * len(streams_of(shared)) * len(shared.windows) + len(watched)
    shares *= max(1, len(shared.services))
    plans = []
    for name in watched:
        alert = alerts.get(name, _UNWATCHED)
        below = min(HIGHEST, judge_check.every / (alert.false_alarm_every * shares))
        plans.append(JudgeCheckPlan(name, judge_check.every, below, alert.false_alarm_every, alert.severity))
    return plans


_UNWATCHED = AlertSettings()


def judge_check_records(plans: Sequence[JudgeCheckPlan]) -> Iterator[dict[str, Any]]:
    """Yield the p of each metric below which its judge has changed."""
    return (recorded.constant(recorded.JUDGE_P, plan.below, plan.metric) for plan in plans)


def judge_changed(plans: Sequence[JudgeCheckPlan]) -> Alert:
    """Return the alert on a judge that answers its labelled samples otherwise than at first."""
    window = promql.duration(plans[0].every_s)  # one judge check, so one for all metrics
    agreement, first = (
        AlertNumber(f"min({series(name)}{{{_JUDGE_CHECK},{promql.OWN_EVALUATOR}}})", "%.2f")
        for name in (semconv.JUDGE_CHECK_AGREEMENT, semconv.JUDGE_CHECK_FIRST_AGREEMENT)
    )
    below = of_metric({plan.metric: f"{plan.below:.2g}" for plan in plans})
    promises = {
        plan.metric: f"At most one false alarm in {promql.duration(plan.false_alarm_every_s)}, with those on drops."
        for plan in plans
    }
    return Alert(
        name="SpanscoreJudgeChanged",
        expression=f"{_p(_JUDGE_CHECK)} < {_LIMIT}",
        labels=labels_of(of_metric({plan.metric: literal(plan.severity) for plan in plans}), OF_METRIC, window),
        summary=f"the judge of {OF_METRIC} has changed",
        text=f"The judge of {OF_METRIC} answers its labelled samples otherwise than at first ({{service}}): it "
        f"agrees with {{agreement}} of the labels, at first with {{first}} (p = {{value}}, below {below}), series "
        f"{{{{ $labels.{promql.EVALUATOR_VERSION} }}}}. Its provider may have changed the model behind its name: a "
        f"drop may be the judge's. {of_metric(promises)}",
        figures={"agreement": agreement, "first": first},
        keep_s=KEPT_S,
    )


def told_by(plans: Sequence[JudgeCheckPlan]) -> str:
    """Return the places, in the text of a drop, of what the judge check says; empty without one."""
    return "{judge_changed}{judge_steady}" if plans else ""


def judge_check_figures(plans: Sequence[JudgeCheckPlan]) -> dict[str, AlertNumber]:
    """Return what stands there: one of them, and neither if no run has ended, or the metric has no judge check."""
    if not plans:
        return {}
    p = _p(f"{_JUDGE_CHECK},{promql.OWN_EVALUATOR}")
    changed = " Its judge answers labelled samples otherwise than at first (judge check, p = %.2g): it may be the judge's drop."
    steady = " Its judge answers labelled samples as at first (judge check, p = %.2g)."
    return {
        "judge_changed": AlertNumber(f"{p} < {_LIMIT}", changed),
        "judge_steady": AlertNumber(f"{p} >= {_LIMIT}", steady),
    }


_JUDGE_CHECK = promql.matching({label(semconv.EVALUATION_SOURCE): semconv.SOURCE_JUDGE_CHECK})
_LIMIT = f"on ({promql.METRIC}) group_left () {recorded.JUDGE_P}"


def _p(where: str) -> str:
    told, by = f"{series(semconv.JUDGE_CHECK_P)}{{{where}}}", ", ".join(promql.BY_EVALUATOR)
    return f"(min by ({by}) ({told}) * count by ({by}) ({told}))"

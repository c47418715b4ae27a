"""Settings → every alert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.monitoring.alert import Alert, literal, of_metric
from spanscore.monitoring.applicability import never_applies
from spanscore.monitoring.changes import changed
from spanscore.monitoring.drops import DropPlan, drop, threshold
from spanscore.monitoring.durable import durable
from spanscore.monitoring.health import binding, breaker, declining, failing, lost, mixed, unaccounted
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_changed
from spanscore.monitoring.silence import silence
from spanscore.outputs.aggregates import is_conditional
from spanscore.protocols import Metric

__all__ = ["alerts_of"]


def alerts_of(
    plans: Sequence[DropPlan],
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring,
    judge_checks: Sequence[JudgeCheckPlan] = (),
) -> list[Alert]:
    """Return every alert, once for all metrics: on drops, thresholds, judges and silence; on accounts, budgets and backlogs.

    The alert on a condition that never holds is left out if no metric has a condition.
    """
    settings = {metric.name: alerts.get(metric.name, AlertSettings()) for metric in metrics}
    owned = [_owned(alert, settings) for alert in _of_metrics(plans, settings, metrics, shared, judge_checks)]
    conditions = [never_applies()] if any(map(is_conditional, metrics)) else []
    parts = (breaker(), binding(), lost(shared), mixed(shared), *durable(shared), *conditions, unaccounted(shared))
    return [*owned, *parts]


def _of_metrics(
    plans: Sequence[DropPlan],
    settings: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring,
    judge_checks: Sequence[JudgeCheckPlan],
) -> Iterator[Alert]:
    if plans:
        watched = {plan.metric for plan in plans}
        yield drop(plans, shared, [judge_check for judge_check in judge_checks if judge_check.metric in watched])
    if bound := [metric for metric in metrics if settings[metric.name].threshold is not None]:
        yield threshold(bound, settings, shared)
    yield from (
        failing(metrics, shared),
        declining(metrics, shared),
        *silence(metrics, shared),
        changed(settings, shared),
    )
    if judge_checks:
        yield judge_changed(judge_checks)


def _owned(alert: Alert, settings: Mapping[str, AlertSettings]) -> Alert:
    """Return the alert with the labels and the runbook of its metric."""
    names = dict.fromkeys(name for one in settings.values() for name in one.labels)
    labels = {
        name: of_metric({metric: literal(one.labels.get(name, "")) for metric, one in settings.items()})
        for name in names
    }
    runbook = of_metric({metric: literal(one.runbook or "") for metric, one in settings.items()})
    return replace(alert, labels={**alert.labels, **labels}, runbook=runbook)

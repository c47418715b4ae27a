"""Settings → every alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spanscore.monitoring.alert import Alert
from spanscore.monitoring.applicability import never_applies
from spanscore.monitoring.canary import CanaryPlan, judge_changed
from spanscore.monitoring.changes import changed
from spanscore.monitoring.drops import DropPlan, drops, least_of, thresholds
from spanscore.monitoring.durable import durable
from spanscore.monitoring.health import binding, breaker, declining, failing, lost, unaccounted
from spanscore.monitoring.silence import silence
from spanscore.protocols import Metric
from spanscore.settings.alerting import AlertSettings, MonitoringSettings

__all__ = ["alerts_of"]


def alerts_of(
    plans: Sequence[DropPlan],
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: MonitoringSettings,
    canaries: Sequence[CanaryPlan] = (),
) -> list[Alert]:
    """Return every alert: drops, thresholds, judges, silence per metric; accounts, budgets, lost units and backlogs for all."""
    found = [alert for plan in plans for alert in drops(plan, shared)]
    for metric in metrics:
        own = alerts.get(metric.name, AlertSettings())
        if own.threshold is not None and metric.scale.range is not None:
            found += thresholds(metric, own, shared, least=least_of(own))
        found += [failing(metric, shared), declining(metric, shared), *silence(metric, shared)]
        found.append(changed(metric, own, shared))
    found += map(judge_changed, canaries)
    owned = [_owned(alert, alerts.get(alert.labels["metric"], AlertSettings())) for alert in found]
    return [*owned, breaker(), binding(), *lost(shared), *durable(shared), never_applies(), unaccounted(shared)]


def _owned(alert: Alert, settings: AlertSettings) -> Alert:
    """Return the alert with the labels and the runbook of its metric."""
    return replace(alert, labels={**alert.labels, **settings.labels}, runbook=settings.runbook or "")

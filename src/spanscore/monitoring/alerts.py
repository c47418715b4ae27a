"""Settings → every alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spanscore.monitoring.alert import Alert
from spanscore.monitoring.drops import drops, plans_of, thresholds
from spanscore.monitoring.health import binding, breaker, declining, failing, lost, unaccounted
from spanscore.monitoring.silence import silence
from spanscore.protocols import Metric
from spanscore.settings.tree import AlertSettings, MonitoringSettings

__all__ = ["alerts_of"]


def alerts_of(
    alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], shared: MonitoringSettings
) -> list[Alert]:
    """Return every alert: drops, thresholds, failing judges, silence per metric; accounts, budgets and lost units for all."""
    found: list[Alert] = []
    for plan in plans_of(alerts, metrics, shared):
        found += drops(plan, shared)
    for metric in metrics:
        own = alerts.get(metric.name, AlertSettings())
        if own.threshold is not None and metric.scale.range is not None:
            found += thresholds(metric, own, shared)
        found += [failing(metric, shared), declining(metric, shared), *silence(metric, own, shared)]
    return [*found, breaker(), binding(), *lost(shared), unaccounted(shared)]

"""Alerts → the files that an operator loads: Prometheus' rules with their unit tests, Alertmanager's route, Grafana's alerts.

prometheus/spanscore.rules.yml                promtool check rules
prometheus/spanscore.rules_test.yml           promtool test rules
alertmanager/alertmanager.yml                 amtool check-config
grafana/alerting/spanscore.yaml               for those who alert in Grafana instead; asks what the rules record
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.alert import PATIENCE, SEGMENT, Alert, Figure, filled, literal, streams_of
from spanscore.monitoring.alerts import alerts_of
from spanscore.monitoring.baselines import baseline_records
from spanscore.monitoring.calibration_file import SavedCalibration, calibrations_of
from spanscore.monitoring.calibration_rules import corrected_records, refuse_unknown
from spanscore.monitoring.canary import canary_plans
from spanscore.monitoring.drops import DropPlan, drop_records, plans_of
from spanscore.monitoring.durable import durable_records
from spanscore.monitoring.grafana import provisioned
from spanscore.monitoring.links import links_of, times_of
from spanscore.monitoring.rule_tests import unit_tests
from spanscore.monitoring.silence import silences
from spanscore.monitoring.yaml_files import as_yaml
from spanscore.otel.declared_sets import refuse_too_many
from spanscore.protocols import Metric
from spanscore.settings.alerting import AlertSettings, MonitoringSettings
from spanscore.settings.canary import Canary

__all__ = ["ALERTMANAGER", "GRAFANA", "RULES", "RULES_TEST", "rule_files"]

RULES = "prometheus/spanscore.rules.yml"
RULES_TEST = "prometheus/spanscore.rules_test.yml"
ALERTMANAGER = "alertmanager/alertmanager.yml"
GRAFANA = "grafana/alerting/spanscore.yaml"

_SERVICE = (
    "{{ with $labels.service_name }}service {{ . }}{{ else }}{{ with $labels.job }}job {{ . }}{{ else }}any service"
    "{{ end }}{{ end }}"
)


def rule_files(
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: MonitoringSettings | None = None,
    canary: Canary | None = None,
) -> dict[str, str]:
    """Return path → text.

    Args:
        alerts: metric name → when it is worth a page; metrics that are left out are watched for silence and failures only.
        shared: interval, windows, segments, links; None = the defaults.
        canary: that the scorer has; None = none.

    Raises:
        ConfigurationError: an alert or a calibration names no metric, a file of either cannot be read, a drop or threshold is
            asked of a metric without a quality, or there are more metrics and segments than can be told apart.
    """
    shared = shared or MonitoringSettings()
    _check(alerts, metrics)
    refuse_too_many(metrics, shared.segments)
    calibrations = calibrations_of(shared.calibrations)
    refuse_unknown(calibrations, metrics)
    canaries = canary_plans(canary, alerts, metrics, shared)
    plans = plans_of(alerts, metrics, shared, canaries)
    found = alerts_of(plans, alerts, metrics, shared, canaries)
    return {
        RULES: as_yaml(_rules(found, plans, shared, calibrations.values())),
        RULES_TEST: as_yaml(unit_tests(RULES.rpartition("/")[2], plans, alerts, metrics, shared, canaries)),
        ALERTMANAGER: _ROUTE,
        GRAFANA: as_yaml(provisioned(found, shared)),
    }


def _check(alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric]) -> None:
    by_name = {metric.name: metric for metric in metrics}
    for name, alert in alerts.items():
        if name not in by_name:
            raise ConfigurationError(
                f"alerts names {name!r}, which is not a metric of this scorer; it has {', '.join(by_name)}"
            )
        if by_name[name].scale.range is None and (alert.baseline is not None or alert.threshold is not None):
            raise ConfigurationError(
                f"alerts.{name}: the metric has an open scale and so no quality; give it range= to watch its mean"
            )


def _rules(
    found: Sequence[Alert],
    plans: Sequence[DropPlan],
    shared: MonitoringSettings,
    calibrations: Iterable[SavedCalibration],
) -> dict[str, Any]:
    """Return one group: its rules are evaluated one after the other, so each sees what those before it have recorded."""
    rules = [*_records(shared)]
    for calibration in calibrations:
        rules += corrected_records(calibration, shared)
    for plan in plans:
        rules += baseline_records(plan.metric, plan.baseline, plan.least, shared)
    rules += [*drop_records(plans, shared), *(_alert(one, shared) for one in found)]
    return {"groups": [{"name": "spanscore", "interval": promql.duration(shared.interval), "rules": rules}]}


def _records(shared: MonitoringSettings) -> Iterator[dict[str, Any]]:
    """Yield each window's estimates, what its mean lacks, the series, backlogs, what is unaccounted for, the budgets."""
    for window, stream in product(map(promql.duration, shared.windows), streams_of(shared)):
        sums = promql.increases(window, stream.where, promql.BY_SERIES)
        segment = {"labels": {SEGMENT: stream.name}} if stream.key else {}
        for name, expression in asdict(promql.Estimate.of(sums)).items():
            yield {"record": promql.recorded_as(name, window), "expr": expression, **segment}
    for window in map(promql.duration, shared.windows):
        yield {"record": promql.recorded_as(promql.EXCLUDED_SHARE, window), "expr": promql.excluded_share(window)}
        lowest = promql.mean_if_worst(promql.increases(window))
        yield {"record": promql.recorded_as(promql.MEAN_IF_WORST, window), "expr": lowest}
    yield {"record": promql.WRITTEN, "expr": promql.written([promql.duration(one) for one in sorted(shared.windows)])}
    yield {"record": promql.WATCHED, "expr": promql.watched(promql.duration(max(shared.windows)))}
    yield from ({"record": name, "expr": expression} for name, expression in (*silences(shared), *durable_records()))
    yield {"record": promql.UNACCOUNTED, "expr": promql.unaccounted()}
    yield {"record": promql.LOWEST_FACTOR, "expr": promql.lowest_factor()}


def _alert(alert: Alert, shared: MonitoringSettings) -> dict[str, Any]:
    figures = {name: _asked(figure) for name, figure in {**alert.figures, **times_of(alert)}.items()}
    value = {
        "value": '{{ $value | printf "%.3g" }}',
        "count": '{{ $value | printf "%.0f" }}',
        "lasting": "{{ $value | humanizeDuration }}",
    }
    parts = {**value, "service": _SERVICE, **figures}
    annotations = {"summary": alert.summary, "description": alert.text, **links_of(alert, shared)}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": promql.duration(PATIENCE * shared.interval),
        **({"keep_firing_for": promql.duration(alert.keep_s)} if alert.keep_s else {}),
        "labels": {name: literal(value) for name, value in alert.labels.items()},
        "annotations": {name: filled(template, parts) for name, template in annotations.items()},
    }


def _asked(figure: Figure) -> str:
    """Return the template that asks Prometheus for a figure of the alert's own service and series."""
    quoted = figure.expression.replace("%", "%%").replace("\\", r"\\").replace('"', r"\"")
    asked = _OWN.sub(lambda found: ",".join(f"{name}=%q" for name in _OWNED[found[0]]), quoted).replace("\n", " ")
    values = "".join(f" $labels.{name}" for found in _OWN.findall(quoted) for name in _OWNED[found])
    return f'{{{{ with printf "{asked}"{values} | query }}}}{{{{ . | first | value | printf "{figure.form}" }}}}{{{{ end }}}}'


_OWNED = {promql.OWN_SERVICE: ("service_name", "job"), promql.OWN: ("service_name", "job", promql.SERIES)}
_OWN = re.compile("|".join(_OWNED))


_ROUTE = """\
# An example: one notification per metric and service, to a webhook. Take the route and the receiver over into your own file.
route:
  receiver: spanscore
  group_by: [alertname, metric, service_name, job]
  group_wait: 30s
  group_interval: 5m
  repeat_interval: 12h

inhibit_rules:
  # Where a drop is told, the threshold says nothing new of the same segment.
  - source_matchers: [alertname="SpanscoreQualityDrop"]
    target_matchers: [alertname="SpanscoreQualityBelowThreshold"]
    equal: [metric, segment, service_name, job]

receivers:
  - name: spanscore
    webhook_configs:
      - url: http://127.0.0.1:8080/alerts  # gets JSON: status, labels, annotations (description, dashboard_url), startsAt
        send_resolved: true
"""

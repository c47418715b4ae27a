"""Alerts → the files that an operator loads: Prometheus' rules with their unit tests, Alertmanager's route, Grafana's alerts.

prometheus/spanscore.rules.yml                promtool check rules
prometheus/spanscore.rules_test.yml           promtool test rules
alertmanager/alertmanager.yml                 amtool check-config
grafana/alerting/spanscore.yaml               for those who alert in Grafana instead; asks what the rules record
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spanscore.config.monitoring import AlertSettings, JudgeCheck, Monitoring
from spanscore.errors import ConfigurationError
from spanscore.monitoring import promql
from spanscore.monitoring.alert import PATIENCE, Alert, Figure, filled
from spanscore.monitoring.alerts import alerts_of
from spanscore.monitoring.calibration_file import calibrations_of
from spanscore.monitoring.calibration_rules import corrected_records, refuse_unknown
from spanscore.monitoring.drops import least_of, plan_records, plans_of
from spanscore.monitoring.durable import durable_records
from spanscore.monitoring.grafana import provisioned
from spanscore.monitoring.judge_check import judge_check_plans, judge_check_records
from spanscore.monitoring.links import links_of, times_of
from spanscore.monitoring.recorded import MIN_SCORES, SEGMENT, THRESHOLD, constant, estimate_records
from spanscore.monitoring.rule_tests import unit_tests
from spanscore.monitoring.silence import silences
from spanscore.monitoring.yaml_files import as_yaml
from spanscore.outputs.aggregates import refuse_too_many
from spanscore.protocols import Metric

__all__ = ["ALERTMANAGER", "GRAFANA", "RULES", "RULES_TEST", "rule_files"]

RULES = "prometheus/spanscore.rules.yml"
RULES_TEST = "prometheus/spanscore.rules_test.yml"
ALERTMANAGER = "alertmanager/alertmanager.yml"
GRAFANA = "grafana/alerting/spanscore.yaml"

_SERVICE = "service {{ or $labels.service_name $labels.job }}"


def rule_files(
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring | None = None,
    judge_check: JudgeCheck | None = None,
) -> dict[str, str]:
    """Return path → text.

    Args:
        alerts: metric name → when it is worth a page; metrics that are left out are watched for silence and failures only.
        shared: interval, windows, dimensions, links; None = the defaults.
        judge_check: that the scorer has; None = none.

    Raises:
        ConfigurationError: an alert or a calibration names no metric, a file of either cannot be read, a drop or threshold is
            asked of a metric without a quality, or there are more metrics and segments than can be told apart.
    """
    shared = shared or Monitoring()
    _check(alerts, metrics)
    refuse_too_many(metrics, shared.dimensions)
    calibrations = calibrations_of(shared.calibrations)
    refuse_unknown(calibrations, metrics)
    judge_checks = judge_check_plans(judge_check, alerts, metrics, shared)
    plans = plans_of(alerts, metrics, shared, judge_checks)
    found = alerts_of(plans, alerts, metrics, shared, judge_checks)
    records = [
        *_numbers(alerts, metrics),
        *estimate_records(shared),
        *_accounts(shared),
        *(one for calibration in calibrations.values() for one in corrected_records(calibration, shared)),
        *judge_check_records(judge_checks),
        *plan_records(plans, shared),
    ]
    return {
        RULES: as_yaml(_rules(records, found, shared)),
        RULES_TEST: as_yaml(unit_tests(RULES.rpartition("/")[2], plans, alerts, metrics, shared, judge_checks)),
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


def _rules(records: Sequence[dict[str, Any]], found: Sequence[Alert], shared: Monitoring) -> dict[str, Any]:
    """Return one group: its rules are evaluated one after the other, so each sees what those before it have recorded."""
    rules = [*records, *(_alert(one, shared) for one in found)]
    return {"groups": [{"name": "spanscore", "interval": promql.duration(shared.interval), "rules": rules}]}


def _numbers(alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric]) -> Iterator[dict[str, Any]]:
    """Yield the numbers of each metric that do not depend on a baseline."""
    for metric in metrics:
        own = alerts.get(metric.name, AlertSettings())
        yield constant(MIN_SCORES, least_of(own), metric.name)
        if own.threshold is not None:
            yield constant(THRESHOLD, own.threshold, metric.name)


def _accounts(shared: Monitoring) -> Iterator[dict[str, Any]]:
    """Yield silences, backlogs, what is unaccounted for, the budgets."""
    yield from ({"record": name, "expr": expression} for name, expression in (*silences(shared), *durable_records()))
    yield {"record": promql.UNACCOUNTED, "expr": promql.unaccounted()}
    yield {"record": promql.LOWEST_FACTOR, "expr": promql.lowest_factor()}


def _alert(alert: Alert, shared: Monitoring) -> dict[str, Any]:
    figures = {name: _asked(figure) for name, figure in {**times_of(alert), **alert.figures}.items()}
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
        "labels": dict(alert.labels),
        "annotations": {name: _declared(filled(template, parts)) for name, template in annotations.items()},
    }


def _asked(figure: Figure) -> str:
    """Return the template that asks Prometheus for a figure. ``_declared`` declares the variables in it."""
    text = figure.expression.replace("\\", r"\\").replace('"', r"\"")
    own = list(dict.fromkeys(_OWN.findall(text)))
    if not own:  # a number that is always there
        return figure.written(f'query "{text}" | first | value')
    text = text.replace("%", "%%")
    for number, place in enumerate(own, 1):
        text = text.replace(place, "%s" if text.count(place) == len(own) == 1 else f"%[{number}]s")
    query = f'printf "{text}" {" ".join(_OWNED[place][0] for place in own)}'.replace("\n", " ")
    return f"{{{{ with {query} | query }}}}{figure.written('. | first | value')}{{{{ end }}}}"


def _declared(template: str) -> str:
    """Return a template behind the variables in it: the matchers of what the alert is about."""
    for variable, labels in _OWNED.values():
        if f"{variable} " in template:
            matchers, values = ",".join(f"{name}=%q" for name in labels), " ".join(f"$labels.{name}" for name in labels)
            template = f'{{{{ {variable} := printf "{matchers}" {values} }}}}{template}'
    return template


_OWNED = {
    promql.OWN_SERVICE: ("$service", promql.GROUP),
    promql.OWN_EVALUATOR: ("$evaluator_version", promql.BY_EVALUATOR),
    promql.OWN: ("$own", (*promql.BY_EVALUATOR, SEGMENT)),
}
"""A place among matchers → the variable of these, and their labels."""
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

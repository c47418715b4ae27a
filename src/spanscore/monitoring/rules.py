"""Collects all alerts, and writes them as files for Prometheus, Alertmanager, Grafana and Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from spanscore.config.monitoring import AlertSettings, JudgeCheck, Monitoring
from spanscore.config.units import InnerUnit
from spanscore.core.printable import parse_duration
from spanscore.errors import ConfigurationError
from spanscore.monitoring import health, promql
from spanscore.monitoring.alert import (
    ALL,
    FOR_INTERVALS,
    METRIC_OF_SHARE,
    WITHOUT_UNITS,
    Alert,
    AlertNumber,
    by_metric,
    fill_template,
    literal,
)
from spanscore.monitoring.calibration import calibrations_of, corrected_records, refuse_unknown
from spanscore.monitoring.drops import (
    DropPlan,
    least_of,
    plan_records,
    plans_of,
    quality_below_threshold,
    quality_drop,
    share_above_max,
    share_rise,
)
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_changed, judge_check_plans
from spanscore.monitoring.recorded import JUDGE_P, MAX_SHARE, MIN_SCORES, SEGMENT, THRESHOLD, constant, estimate_records
from spanscore.monitoring.rule_tests import unit_tests
from spanscore.monitoring.watched_means import (
    WatchedMean,
    alerts_by_key,
    means_of_inner_units,
    means_of_roots,
    refuse_unwatchable,
    watched_means,
)
from spanscore.outputs.aggregates import is_conditional, refuse_too_many
from spanscore.protocols import Metric


def alerts_of(
    plans: Sequence[DropPlan],
    means: Sequence[WatchedMean],
    shared: Monitoring,
    judge_checks: Sequence[JudgeCheckPlan] = (),
) -> list[Alert]:
    """Return all alerts: on drops, thresholds, judges, silence, accounts, budgets and backlogs. One alert covers all metrics.

    An alert that could never fire is left out, such as the one on conditions if no metric has a condition.
    """
    metrics = [mean.of for mean in means_of_roots(means)]
    inner = means_of_inner_units(means)
    settings = {mean.subject: mean.settings for mean in means}
    shares = {mean.name: mean.settings for mean in means if mean.category}
    without_units = WITHOUT_UNITS if inner else ""  # links lead to dashboards, which show metrics without inner units
    of_metrics = [
        *quality_drop(plans, shared, judge_checks),
        *quality_below_threshold(means, shared),
        health.judge_failing(metrics, shared, inner),
        health.judge_declining(metrics, shared),
        health.no_scores_of_units(metrics, shared, inner),
        health.no_scores_for_long(metrics, shared),
        health.new_evaluator_version({mean.metric: mean.settings for mean in means_of_roots(means)}, shared),
        *([judge_changed(judge_checks)] if judge_checks else []),
    ]
    of_shares = [*share_rise(plans, shared), *share_above_max(means, shared)]
    return [
        *(_apply_settings(alert, settings, f"$labels.{promql.METRIC}{without_units}") for alert in of_metrics),
        *(_apply_settings(alert, shares, METRIC_OF_SHARE + without_units) for alert in of_shares),
        health.judge_breaker_open(),
        health.budget_binding(),
        health.units_lost(shared),
        health.head_sampling_unknown(shared),
        *health.backlog_alerts(shared),
        *([health.never_applies()] if any(map(is_conditional, metrics)) else []),
        health.outcomes_do_not_add_up(shared),
    ]


def _apply_settings(alert: Alert, settings: Mapping[str, AlertSettings], metric: str) -> Alert:
    """Return the alert with the labels and runbooks that are configured for each metric."""
    labels = {
        name: by_metric({key: literal(own.labels.get(name, "")) for key, own in settings.items()})
        for name in dict.fromkeys(name for own in settings.values() for name in own.labels)
    }
    runbook = by_metric({key: literal(own.runbook or "") for key, own in settings.items()})
    return replace(alert, labels={**alert.labels, **labels}, metric=metric, runbook=runbook)


# --- links of an alert ------------------------------------------------------------------------------------------------

SERVICE = '{{ or $labels.job "$__all" | urlquery }}'
"""Template of the value by which dashboards select a service; for an alert without a service, all services."""
BEFORE = 2
"""Number of windows that a linked dashboard shows: the window of the alert, and the window before it."""


def links_of(alert: Alert, shared: Monitoring) -> dict[str, str]:
    """Return annotation → address of each configured link: dashboard, traces, runbook.

    An address is a template in which ``{from}`` and ``{to}`` are not yet filled. For an alert over all metrics, the parameter
    with ``{metric}`` is removed: a dashboard with an empty variable is empty, and without the parameter shows its default.
    """
    is_general = alert.labels.get("metric", ALL) == ALL
    metric = "" if is_general else f"{{{{ {alert.metric} | urlquery }}}}"
    parts = {"{metric}": metric, "{service}": SERVICE, "{from}": "{from}", "{to}": "{to}"}
    links = {}
    for name, url in (("dashboard_url", shared.dashboard_url), ("trace_url", shared.trace_url)):
        if url:
            address = _EMPTY_QUERY.sub("", _PARAMETER.sub("", url)) if is_general else url
            links[name] = "".join(parts[part] if part in parts else literal(part) for part in _PARTS.split(address))
    return links | ({"runbook_url": alert.runbook} if alert.runbook else {})


def times_of(alert: Alert) -> Mapping[str, AlertNumber]:
    """Return the figures ``from`` and ``to`` of links: Unix times in ms, from before the alert's window until now.

    An alert without the label ``window`` has its own ``from`` in ``Alert.figures``.
    """
    now = {"to": AlertNumber("1000 * time()", "%.0f")}
    if "window" not in alert.labels:
        return now
    back = BEFORE * parse_duration(alert.labels["window"])
    return {"from": AlertNumber(f"1000 * (time() - {back:g})", "%.0f"), **now}


_PARTS = re.compile(r"(\{(?:metric|service|from|to)\})")
_PARAMETER = re.compile(r"(?<=[?&])[^&#]*\{metric\}[^&#]*&?")
_EMPTY_QUERY = re.compile(r"[?&]+(?=#|$)")


# --- YAML -------------------------------------------------------------------------------------------------------------

_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's dumper, which needs a tenth of the time; a PyYAML without libyaml lacks it."""

_MADE = "# Made by `spanscore rules`: change the configuration and make it again.\n"
LONGEST_LINE = 120
"""Most characters of a mapping of texts, such as labels, that is written in one line."""


class _Literal(_Dumper):  # type: ignore[misc, valid-type]  # one of two classes
    """A YAML dumper that writes multi-line texts as block literals."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        node: yaml.Node = self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
        return node

    def represent_tree(self, tree: dict[str, Any]) -> yaml.Node:
        node: yaml.MappingNode = self.represent_mapping("tag:yaml.org,2002:map", tree.items())
        node.flow_style = all(isinstance(text, str) for text in tree.values()) and len(str(tree)) <= LONGEST_LINE
        return node


_Literal.add_representer(str, _Literal.represent_text)
_Literal.add_representer(dict, _Literal.represent_tree)


def as_yaml(tree: Any) -> str:
    """Return the YAML text of a tree. The first line names the command that made the file."""
    return _MADE + yaml.dump(tree, Dumper=_Literal, sort_keys=False, allow_unicode=True, width=10_000)


# --- alert rules of Grafana -------------------------------------------------------------------------------------------

DATASOURCE = "prometheus"
"""The uid of the data source, as in integrations/grafana/provisioning/datasources."""
EXPRESSION = "__expr__"
STEP_S = 10
"""Grafana evaluates at multiples of this number of seconds."""
_TITLED = ("window", "reason")
BELOW_ALL = -1e9
"""A threshold that every value exceeds."""
GRAFANA_SERVICE = "{{ if $labels.service_name }}{{ $labels.service_name }}{{ else }}{{ $labels.job }}{{ end }}"


def provision_grafana(alerts: Sequence[Alert], shared: Monitoring) -> dict[str, Any]:
    """Return the content of a file below Grafana's ``provisioning/alerting``.

    Each rule has three steps: A is the alert's query, which returns only faulty series, B its last value, and C a condition
    that is always true. No data means that no series is faulty; missing scores have an alert of their own. The queries read
    records of the Prometheus rules, so that file must be loaded, too.
    """
    interval = STEP_S * ceil(shared.interval / STEP_S)
    group = {"orgId": 1, "name": "spanscore", "folder": "spanscore", "interval": promql.duration(interval)}
    return {"apiVersion": 1, "groups": [{**group, "rules": [_grafana_rule(alert, shared) for alert in alerts]}]}


def _grafana_rule(alert: Alert, shared: Monitoring) -> dict[str, Any]:
    title = " ".join(
        [alert.name, *(value for name, value in alert.labels.items() if name in _TITLED and "{" not in value)]
    )
    templates = {"summary": alert.summary, "description": alert.text, **links_of(alert, shared)}
    text = "".join(templates.values())
    all_figures = {**alert.figures, **times_of(alert)}
    figures = {name: figure for name, figure in all_figures.items() if f"{{{name}}}" in text}
    parts = {
        "value": '{{ printf "%.3g" $values.B.Value }}',
        "count": '{{ printf "%.0f" $values.B.Value }}',
        "lasting": "{{ humanizeDuration $values.B.Value }}",
        "service": f"service {GRAFANA_SERVICE}",
    }
    condition = {"evaluator": {"type": "gt", "params": [BELOW_ALL]}}
    is_true = _step("C", EXPRESSION, EXPRESSION, type="threshold", expression="B", conditions=[condition])
    steps = [_query("A", alert.expression), _reduce("B", "A"), is_true]
    for name, figure in figures.items():
        value = f"{name}_value"
        expression = figure.expression
        for placeholder in _OWN_LABELS:  # no matchers: Grafana joins the series to the alert's by labels
            expression = expression.replace(f",{placeholder}", "").replace(placeholder, "")
        steps += [_query(name, expression), _reduce(value, name)]
        # Grafana uses NaN for an absent value, which is not equal to itself; the text then stays empty
        present = f"{{{{ if eq .Value .Value }}}}{figure.template('.Value')}{{{{ end }}}}"
        parts[name] = f"{{{{ with $values.{value} }}}}{present}{{{{ end }}}}"
    return {
        "uid": f"spanscore-{blake2b(title.encode(), digest_size=8).hexdigest()}",
        "title": title,
        "condition": "C",
        "data": steps,
        "noDataState": "OK",
        "execErrState": "Error",
        "for": promql.duration(FOR_INTERVALS * shared.interval),
        **({"keepFiringFor": promql.duration(alert.keep_s)} if alert.keep_s else {}),
        "annotations": {name: fill_template(template, parts) for name, template in templates.items()},
        "labels": {name: value.replace("$", "$$") for name, value in alert.labels.items()},  # Grafana reads $$ as $
        "isPaused": False,
    }


def _query(ref: str, expression: str) -> dict[str, Any]:
    return _step(ref, DATASOURCE, "prometheus", expr=expression, instant=True, range=False)


def _reduce(ref: str, of: str) -> dict[str, Any]:
    return _step(ref, EXPRESSION, EXPRESSION, type="reduce", expression=of, reducer="last")


def _step(ref: str, source: str, kind: str, **model: Any) -> dict[str, Any]:
    model = {"refId": ref, "datasource": {"type": kind, "uid": source}, **model}
    return {"refId": ref, "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": source, "model": model}


# --- the files --------------------------------------------------------------------------------------------------------

RULES = "prometheus/spanscore.rules.yml"
"""Recording and alerting rules; ``promtool check rules`` checks them."""
RULES_TEST = "prometheus/spanscore.rules_test.yml"
"""Their unit tests, for ``promtool test rules``."""
ALERTMANAGER = "alertmanager/alertmanager.yml"
"""An example of a route; ``amtool check-config`` checks it."""
GRAFANA = "grafana/alerting/spanscore.yaml"
"""The alerts as rules of Grafana, for users without an Alertmanager."""


def rule_files(
    alerts: Mapping[str, AlertSettings],
    metrics: Sequence[Metric],
    shared: Monitoring | None = None,
    judge_check: JudgeCheck | None = None,
    also: Sequence[InnerUnit] = (),
) -> dict[str, str]:
    """Return path → text of each file.

    Args:
        alerts: metric name → its alert settings; other metrics are watched for silence and failures only.
        shared: interval, windows, dimensions, links; None = the defaults.
        judge_check: the scorer's judge check; None = no judge check.
        also: entries of ``units.also``, with the alert settings of their metrics.

    Raises:
        ConfigurationError: an alert or a calibration names no metric; a file of either cannot be read; a drop or threshold is
            configured for a metric without a quality; or metrics and segments exceed the instruments' limit.
    """
    shared = shared or Monitoring()
    for key, own in alerts_by_key(alerts, also).items():
        refuse_unwatchable(own, metrics, key)
    refuse_too_many(metrics, shared.dimensions)
    calibrations = calibrations_of(shared.calibrations)
    refuse_unknown(calibrations, metrics)
    means = watched_means(alerts, metrics, also)
    judge_checks = judge_check_plans(judge_check, means, shared)
    plans = plans_of(means, shared, judge_checks)
    all_alerts = alerts_of(plans, means, shared, judge_checks)
    records = {
        **dict(health.silence_records(shared)),
        **dict(health.backlog_records()),
        promql.UNACCOUNTED: promql.unaccounted_units(),
        promql.LOWEST_FACTOR: promql.lowest_factor(),
    }
    # one group, because the rules of a group are evaluated in order, and a rule reads the records of earlier rules
    rules = [
        *_mean_constants(means),
        *estimate_records(shared, means),
        *({"record": name, "expr": expression} for name, expression in records.items()),
        *(record for calibration in calibrations.values() for record in corrected_records(calibration, shared)),
        *(constant(JUDGE_P, check.below, check.metric) for check in judge_checks),
        *plan_records(plans, shared),
        *(_prometheus_rule(alert, shared) for alert in all_alerts),
    ]
    group = {"name": "spanscore", "interval": promql.duration(shared.interval), "rules": rules}
    return {
        RULES: as_yaml({"groups": [group]}),
        RULES_TEST: as_yaml(unit_tests(RULES.rpartition("/")[2], plans, means, shared, judge_checks)),
        ALERTMANAGER: _ROUTE,
        GRAFANA: as_yaml(provision_grafana(all_alerts, shared)),
    }


def _mean_constants(means: Sequence[WatchedMean]) -> Iterator[dict[str, Any]]:
    for mean in means:
        own = mean.settings
        for name in dict.fromkeys((mean.subject, mean.name)):
            yield constant(MIN_SCORES, least_of(own), name)
        if own.threshold is not None:
            yield constant(THRESHOLD, own.threshold, mean.name)
        if own.max is not None:
            yield constant(MAX_SHARE, own.max, mean.name)


def _prometheus_rule(alert: Alert, shared: Monitoring) -> dict[str, Any]:
    parts = {
        "value": '{{ $value | printf "%.3g" }}',
        "count": '{{ $value | printf "%.0f" }}',
        "lasting": "{{ $value | humanizeDuration }}",
        "service": "service {{ or $labels.service_name $labels.job }}",
        **{name: _query_template(figure) for name, figure in {**times_of(alert), **alert.figures}.items()},
    }
    annotations = {"summary": alert.summary, "description": alert.text, **links_of(alert, shared)}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": promql.duration(FOR_INTERVALS * shared.interval),
        **({"keep_firing_for": promql.duration(alert.keep_s)} if alert.keep_s else {}),
        "labels": dict(alert.labels),
        "annotations": {
            name: _declare_variables(fill_template(template, parts)) for name, template in annotations.items()
        },
    }


def _query_template(figure: AlertNumber) -> str:
    """Return the template that queries Prometheus for a figure. ``_declare_variables`` declares its variables.

    ``printf`` replaces each placeholder in the query by the matchers in a variable. ``rate(x{OWN}[5m])`` becomes
    ``with printf "rate(x{%s}[5m])" $own | query``. ``OWN`` is ``promql.OWN``, and ``$own`` has the matchers of the alert's
    series, ``service_name="…",…``.
    """
    text = figure.expression.replace("\\", r"\\").replace('"', r"\"")
    placeholders = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
    if not placeholders:  # a number that always exists
        return figure.template(f'query "{text}" | first | value')
    text = text.replace("%", "%%")
    for number, placeholder in enumerate(placeholders, 1):
        is_only = text.count(placeholder) == len(placeholders) == 1
        text = text.replace(placeholder, "%s" if is_only else f"%[{number}]s")
    variables = " ".join(_OWN_LABELS[placeholder][0] for placeholder in placeholders)
    query = f'printf "{text}" {variables}'.replace("\n", " ")
    return f"{{{{ with {query} | query }}}}{figure.template('. | first | value')}{{{{ end }}}}"


def _declare_variables(template: str) -> str:
    """Return a template with a declaration of each variable in it: the matchers of the alert's series."""
    for variable, labels in _OWN_LABELS.values():
        if f"{variable} " in template:
            matchers, values = ",".join(f"{name}=%q" for name in labels), " ".join(f"$labels.{name}" for name in labels)
            template = f'{{{{ {variable} := printf "{matchers}" {values} }}}}{template}'
    return template


_OWN_LABELS = {
    promql.OWN_SERVICE: ("$service", promql.GROUP),
    promql.OWN_EVALUATOR: ("$evaluator_version", promql.BY_EVALUATOR),
    promql.OWN: ("$own", (*promql.BY_EVALUATOR, SEGMENT)),
}
"""Placeholder in a query → its template variable, and the labels of the matchers that replace it."""
_PLACEHOLDER = re.compile("|".join(_OWN_LABELS))

_ROUTE = """\
# An example: one notification per metric and service, to a webhook. Copy the route and the receiver into your own file.
route:
  receiver: spanscore
  group_by: [alertname, metric, service_name, job]
  group_wait: 30s
  group_interval: 5m
  repeat_interval: 12h

inhibit_rules:
  # An alert on a drop suppresses the threshold alert of the same segment, which adds no information.
  - source_matchers: [alertname="SpanscoreQualityDrop"]
    target_matchers: [alertname="SpanscoreQualityBelowThreshold"]
    equal: [metric, segment, service_name, job]

receivers:
  - name: spanscore
    webhook_configs:
      - url: http://127.0.0.1:8080/alerts  # gets JSON: status, labels, annotations (description, dashboard_url), startsAt
        send_resolved: true
"""
_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "integrations", _PACKAGE.parents[1] / "integrations")


def folder(name: str) -> Path:
    """Return the folder of one integration, as in ``folder("grafana")``.

    Raises:
        FileNotFoundError: no integration has this name; the message lists the names.
    """
    folders = {path.name: path for place in PLACES if place.is_dir() for path in place.iterdir() if path.is_dir()}
    if name not in folders:
        raise FileNotFoundError(f"no integration {name!r}; there are: {', '.join(sorted(folders)) or 'none'}")
    return folders[name]


# --- objects of Kubernetes --------------------------------------------------------------------------------------------

NAME = "spanscore"
PORT = "spanscore"
"""Name of the container port on which ``serve_metrics`` listens; at most 15 letters, which is Kubernetes' limit."""
SCRAPED = {"spanscore/scrape": "true"}
"""Label of pods that are scraped."""
_OURS = {"app.kubernetes.io/name": NAME}
_SIDECAR = {"grafana_dashboard": "1"}
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")


def operator_files(rules: str, dashboards: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return path → text of each object's file.

    - ``prometheusrule.yaml``: the rules; a Prometheus selects them by its ``ruleSelector``.
    - ``podmonitor.yaml``: the pods and the port to scrape.
    - ``dashboard-*.yaml``: ConfigMaps; Grafana's sidecar selects them by the label that the Grafana chart sets by default.

    Source: prometheus-operator, API ``monitoring.coreos.com/v1``.

    Args:
        rules: text of Prometheus' rule file.
        dashboards: file name → text.
        labels: further labels of every object, by which a Prometheus selects: ``{"release": "prometheus"}``.

    Raises:
        ConfigurationError: Kubernetes would refuse a label.
    """
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or not (value == "" or re.fullmatch(_WORD, value)):
            raise ConfigurationError(
                f"{key}={value} is not a valid label in Kubernetes: write letters, digits, -, _ and ., at most 63 of them"
            )
    shared = {**_OURS, **labels}
    files = {
        "operator/prometheusrule.yaml": _monitoring("PrometheusRule", shared, yaml.safe_load(rules)),
        "operator/podmonitor.yaml": _monitoring("PodMonitor", shared, _POD_MONITOR),
    }
    for path, text in dashboards.items():
        file = PurePosixPath(path)
        metadata = {"name": file.stem, "labels": {**shared, **_SIDECAR}}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {file.name: text}}
        files[f"operator/dashboard-{file.stem}.yaml"] = as_yaml(config_map)
    return files


def _monitoring(kind: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> str:
    metadata = {"name": NAME, "labels": dict(labels)}
    return as_yaml({"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": metadata, "spec": dict(spec)})


_POD_MONITOR = {
    "selector": {"matchLabels": SCRAPED},
    "podMetricsEndpoints": [
        {
            "port": PORT,
            "interval": "15s",
            # the scraped service becomes the job, as in remote write, because rules and dashboards read the label job
            "metricRelabelings": [{"sourceLabels": ["service_name"], "regex": "(.+)", "targetLabel": "job"}],
        }
    ],
}

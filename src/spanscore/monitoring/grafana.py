"""Alerts → Grafana's alert provisioning, for those who alert there and not in Prometheus.

Each rule asks A (the alert's expression), reduces it to B, and fires on C, as A returns only what is wrong. The mean and its
error are those that Prometheus records, so the rule file is loaded there all the same. No data is fine: that nothing is wrong;
that nothing arrives is an alert of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from math import ceil
from typing import Any

from spanscore.config.monitoring import Monitoring
from spanscore.monitoring import promql
from spanscore.monitoring.alert import PATIENCE, Alert, Figure, filled
from spanscore.monitoring.links import links_of, times_of

__all__ = ["provisioned"]

DATASOURCE = "prometheus"
"""The uid of the data source; that of integrations/grafana/provisioning/datasources."""
EXPRESSION = "__expr__"
STEP_S = 10
"""Grafana evaluates every so many seconds, or a multiple."""
_TITLED = ("window", "reason")
EVERYTHING = -1e9
"""What A returns is wrong, whatever its value."""
SERVICE = "{{ if $labels.service_name }}{{ $labels.service_name }}{{ else }}{{ $labels.job }}{{ end }}"


def provisioned(found: Sequence[Alert], shared: Monitoring) -> dict[str, Any]:
    """Return the tree of a file below ``provisioning/alerting``."""
    interval = STEP_S * ceil(shared.interval / STEP_S)
    group = {"orgId": 1, "name": "spanscore", "folder": "spanscore", "interval": promql.duration(interval)}
    return {"apiVersion": 1, "groups": [{**group, "rules": [_rule(alert, shared) for alert in found]}]}


def _rule(alert: Alert, shared: Monitoring) -> dict[str, Any]:
    title = " ".join(
        [alert.name, *(value for name, value in alert.labels.items() if name in _TITLED and "{" not in value)]
    )
    templates = {"summary": alert.summary, "description": alert.text, **links_of(alert, shared)}
    told = "".join(templates.values())
    figures = {name: one for name, one in {**alert.figures, **times_of(alert)}.items() if f"{{{name}}}" in told}
    lasting = "{{ humanizeDuration $values.B.Value }}"
    parts = {
        "value": _value("B", "%.3g"),
        "count": _value("B", "%.0f"),
        "lasting": lasting,
        "service": f"service {SERVICE}",
    }
    parts |= {name: _known(_reduced_as(name), one) for name, one in figures.items()}
    return {
        "uid": f"spanscore-{blake2b(title.encode(), digest_size=8).hexdigest()}",
        "title": title,
        "condition": "C",
        "data": [*_condition(alert), *_asked(figures)],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": promql.duration(PATIENCE * shared.interval),
        **({"keepFiringFor": promql.duration(alert.keep_s)} if alert.keep_s else {}),
        "annotations": {name: filled(template, parts) for name, template in templates.items()},
        "labels": {name: value.replace("$", "$$") for name, value in alert.labels.items()},  # Grafana reads two as one
        "isPaused": False,
    }


def _condition(alert: Alert) -> Iterator[dict[str, Any]]:
    yield _query("A", alert.expression)
    yield _reduced("B", "A")
    condition = {"evaluator": {"type": "gt", "params": [EVERYTHING]}}
    yield _step("C", EXPRESSION, EXPRESSION, type="threshold", expression="B", conditions=[condition])


def _asked(figures: Mapping[str, Figure]) -> Iterator[dict[str, Any]]:
    """Yield the queries of figures: of all services, as Grafana puts those with the alert's own labels beside it."""
    for name, figure in figures.items():
        yield _query(name, _of_all(figure.expression))
        yield _reduced(_reduced_as(name), name)


def _of_all(expression: str) -> str:
    for own in (promql.OWN, promql.OWN_EVALUATOR, promql.OWN_SERVICE):
        expression = expression.replace(f",{own}", "").replace(own, "")
    return expression


def _reduced_as(figure: str) -> str:
    return f"{figure}_value"


def _query(ref: str, expression: str) -> dict[str, Any]:
    return _step(ref, DATASOURCE, "prometheus", expr=expression, instant=True, range=False)


def _reduced(ref: str, of: str) -> dict[str, Any]:
    return _step(ref, EXPRESSION, EXPRESSION, type="reduce", expression=of, reducer="last")


def _step(ref: str, source: str, kind: str, **model: Any) -> dict[str, Any]:
    whole = {"refId": ref, "datasource": {"type": kind, "uid": source}, **model}
    return {"refId": ref, "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": source, "model": whole}


def _known(ref: str, figure: Figure) -> str:
    """Return the template of a figure, empty if there is no value: Grafana has NaN for that."""
    return (
        f"{{{{ with $values.{ref} }}}}{{{{ if eq .Value .Value }}}}{figure.written('.Value')}{{{{ end }}}}{{{{ end }}}}"
    )


def _value(ref: str, form: str) -> str:
    return f'{{{{ printf "{form}" $values.{ref}.Value }}}}'

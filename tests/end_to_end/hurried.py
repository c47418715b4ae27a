"""A stage on which an hour takes a minute: the operator's own rules, every duration in them shortened alike.

replicas ─ OTLP ─▶ Collector of integrations/collector ─ remote write ─▶ Prometheus ─▶ Alertmanager ─▶ webhook
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from tests.end_to_end.replicas import METRIC, MoodyJudge, Service, harmless
from tests.end_to_end.webhook import Webhook
from tests.integrations.stage import carrying
from tests.servers.prometheus import Prometheus
from tests.servers.server import poll
from tests.yaml_files import read_yaml

from spanscore.config.monitoring import AlertSettings
from spanscore.monitoring.rules import ALERTMANAGER, RULES, rule_files

FASTER = 60
BASELINE = 0.9
ALERTS = {METRIC: AlertSettings(baseline=BASELINE, min_drop=0.1)}
_LOOKBACK_S = 300 / FASTER
"""For how long Prometheus takes the last value of a series for the present one."""
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(?<=\[)[\d\w:]+(?=\])|(?<=offset )\w+|(?<=for: )\w+|(?<=interval: )\w+")
_NO_RULES = "groups: []\n"


def hurried(rules: str) -> str:
    """Return rules with all windows, offsets, waits and intervals shortened by a factor; texts are unchanged."""
    return _SPAN.sub(lambda span: ":".join(map(_shorter, span.group().split(":"))), rules)


def _shorter(span: str) -> str:
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", span)
    return f"{round(int(found[1]) * _UNITS_MS[found[2]] / FASTER)}ms" if found else span


class Stage:
    """The monitoring servers, and the notifications of each service."""

    def __init__(self, endpoint: str, watch: Prometheus, webhook: Webhook) -> None:
        self.endpoint, self.watch, self._webhook = endpoint, watch, webhook

    @contextmanager
    def service(self, name: str, judge: MoodyJudge, **shape: Any) -> Iterator[Service]:
        """Run a service until the end of the block; yields when its scores are here."""
        with Service(name, self.endpoint, judge, **shape) as service:
            counted = f'sum(spanscore_scored_total{{gen_ai_evaluation_name="{METRIC}",job="{name}"}}) > 0'
            poll(lambda: self.watch.query(counted), deadline_s=60, what=f"scores of {name}")
            yield service

    def watch_with(self, rules: str) -> None:
        """Load the shortened rules when the first counters have arrived, because silence counts from the first evaluation."""
        (self.watch.folder / "rules.yml").write_text(hurried(rules), encoding="utf-8")
        self.watch.reload()

    def alerts(self, service: str, name: str = "") -> list[Mapping[str, Any]]:
        """Return the webhook's notifications of a service, oldest first; each with ``at``, by ``time.monotonic()``."""
        return [
            alert
            for alert in list(self._webhook.alerts)
            if service in (alert["labels"].get("job"), alert["labels"].get("service_name"))
            and name in ("", alert["labels"]["alertname"])
        ]

    def names(self, service: str) -> set[str]:
        """Return the names of all alerts that ever fired for a service."""
        return {alert["labels"]["alertname"] for alert in self.alerts(service)}

    def first(self, service: str, name: str, *, since: float, within_min: float) -> Mapping[str, Any]:
        """Return the first notice of an alert that came since, by ``time.monotonic()``; waits for it."""
        return poll(
            lambda: [
                alert for alert in self.alerts(service, name) if alert["status"] == "firing" and alert["at"] >= since
            ],
            deadline_s=seconds(within_min),
            what=f"{name} of {service}",
        )[0]

    def end(self, service: str, *, within_min: float) -> float:
        """Return when the last alert of a service was resolved, by ``time.monotonic()``; waits for it."""
        poll(
            lambda: not self.firing(service), deadline_s=seconds(within_min), what=f"the end of all alerts of {service}"
        )
        return float(self.alerts(service)[-1]["at"])

    def firing(self, service: str) -> set[str]:
        """Return the names of a service's alerts without a notification of their end."""
        latest = {tuple(sorted(alert["labels"].items())): alert for alert in self.alerts(service)}
        return {alert["labels"]["alertname"] for alert in latest.values() if alert["status"] == "firing"}


def seconds(minutes: float) -> float:
    """Return how long so many minutes of the stage take."""
    return 60 * minutes / FASTER


@contextmanager
def staged(folder: Path, *, prometheus: ModuleType, alertmanager: ModuleType, collector: ModuleType) -> Iterator[Stage]:
    """Run the stage, without rules as yet."""
    with (
        Webhook() as webhook,
        alertmanager.running(folder / "am", _route(webhook.url)) as notifier,
        prometheus.running(
            folder / "watch", _config(notifier.target), {"rules.yml": _NO_RULES}, lookback_s=_LOOKBACK_S
        ) as watch,
        carrying(folder, collector, {"PROMETHEUS_WRITE_URL": watch.remote_write}) as endpoint,
    ):
        yield Stage(endpoint, watch, webhook)


def rules() -> str:
    """Return the operator's rules for the metric of all services."""
    return rule_files(ALERTS, [harmless()])[RULES]


def _route(url: str) -> str:
    """Return the operator's route, with waits of a minute of the stage and our webhook."""
    tree = read_yaml(rule_files({}, [harmless()])[ALERTMANAGER])
    tree["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    tree["receivers"][0]["webhook_configs"][0]["url"] = url
    return yaml.safe_dump(tree)


def _config(notify: str) -> str:
    every = f"{60 / FASTER:g}s"
    tree = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [notify]}]}]},
    }
    return yaml.safe_dump(tree)

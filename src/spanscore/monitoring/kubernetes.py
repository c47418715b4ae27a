"""Rules and dashboards → what the Prometheus operator of a cluster picks up: kubectl apply --server-side -f operator/

operator/prometheusrule.yaml                  the rules; a Prometheus takes them by its ruleSelector
operator/podmonitor.yaml                      which pods are scraped, on which port
operator/dashboard-*.yaml                     ConfigMaps; Grafana's sidecar takes them by their label

Source: prometheus-operator, API ``monitoring.coreos.com/v1``; the sidecar's label is the default of the Grafana chart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from spanscore.errors import ConfigurationError
from spanscore.monitoring.yaml_files import as_yaml

__all__ = ["PORT", "SCRAPED", "operator_files"]

NAME = "spanscore"
PORT = "spanscore"
"""The name of the containers' port that ``serve_metrics`` listens on; at most 15 letters, as Kubernetes has it."""
SCRAPED = {"spanscore/scrape": "true"}
"""The label of pods that are scraped."""
_OURS = {"app.kubernetes.io/name": NAME}
_SIDECAR = {"grafana_dashboard": "1"}
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")


def operator_files(rules: str, dashboards: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return path → text.

    Args:
        rules: the text of Prometheus' rule file.
        dashboards: file name → text.
        labels: more labels of every object, by which a Prometheus selects: ``{"release": "prometheus"}``.

    Raises:
        ConfigurationError: Kubernetes would refuse a label.
    """
    _check(labels)
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
            # the scraped service becomes the job, as remote write makes it: rules and dashboards tell services apart by it
            "metricRelabelings": [{"sourceLabels": ["service_name"], "regex": "(.+)", "targetLabel": "job"}],
        }
    ],
}


def _check(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or not (value == "" or re.fullmatch(_WORD, value)):
            raise ConfigurationError(
                f"{key}={value} can be no label in Kubernetes: write letters, digits, -, _ and ., at most 63 of them"
            )

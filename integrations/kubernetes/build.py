"""The Collector's files, and how pods are scraped, as objects of a cluster: python integrations/kubernetes/build.py [FOLDER]

At development time only. What it writes is committed, and a test makes it anew and compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from spanscore.monitoring.kubernetes import NAME, operator_files
from spanscore.monitoring.yaml_files import as_yaml

HERE = Path(__file__).parent
IN_CLUSTER = {
    "OTLP_HTTP_LISTEN": "0.0.0.0:4318",
    "OTLP_GRPC_LISTEN": "0.0.0.0:4317",
    "HEALTH_LISTEN": "0.0.0.0:13133",
    "TRACES_OTLP_ENDPOINT": "http://tempo.monitoring:4318",
    "PROMETHEUS_WRITE_URL": "http://prometheus-operated.monitoring:9090/api/v1/write",
    "SCORER_1": "spanscore-serve-0.spanscore-serve:4317",
    "SCORER_2": "spanscore-serve-1.spanscore-serve:4317",
}
"""Variable of the Collector's files → its value; written out, as the operator reads the ports of its Service from it."""
_MADE = "# Made of collector/{file} by build.py: put the addresses of your {others} in.\n"
_SERVE = "spanscore-serve"
_TOKEN = "SPANSCORE_TOKEN"


def collector() -> str:
    """Return ``collector/otelcol.yaml`` as the operator takes it. One replica: a decision needs the whole trace."""
    return _written("otelcol.yaml", "trace store and Prometheus", _object(NAME, _configuration("otelcol.yaml")))


def serve_collector() -> str:
    """Return ``collector/load_balancing.yaml``, likewise, before the pods of ``serve.yaml``, each by its name that stays."""
    config = _configuration("load_balancing.yaml")
    to_serve = config["exporters"]["load_balancing"]["protocol"]["otlp"]
    to_serve["headers"] = {"authorization": f"Bearer ${{env:{_TOKEN}}}"}
    token = {"name": _TOKEN, "valueFrom": {"secretKeyRef": {"name": "spanscore", "key": "token"}}}
    return _written("load_balancing.yaml", "trace store", _object(_SERVE, config, env=[token]))


def _configuration(file: str) -> dict[str, Any]:
    text = (HERE.parent / "collector" / file).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{env:(\w+):-([^}]*)\}", _value, text))
    return found


def _object(name: str, config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    image = "otel/opentelemetry-collector-contrib:0.159.0"
    spec = {"mode": "deployment", "replicas": 1, "image": image, **more, "config": config}
    kind = {"apiVersion": "opentelemetry.io/v1beta1", "kind": "OpenTelemetryCollector"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def _written(file: str, others: str, made: Mapping[str, Any]) -> str:
    return _MADE.format(file=file, others=others) + as_yaml(made).partition("\n")[2]


def _value(found: re.Match[str]) -> str:
    name, default = found.groups()
    return IN_CLUSTER.get(name, default)


def main(arguments: list[str]) -> None:
    """Write the files into the folder, by default the one that this file is in."""
    folder = Path(arguments[0]) if arguments else HERE
    (folder / "collector.yaml").write_text(collector(), encoding="utf-8")
    (folder / "serve-collector.yaml").write_text(serve_collector(), encoding="utf-8")
    monitor = operator_files("groups: []", {}, {})["operator/podmonitor.yaml"]
    (folder / "podmonitor.yaml").write_text(monitor, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

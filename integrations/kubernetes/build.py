"""The Collector's file, and how pods are scraped, as objects of a cluster: python integrations/kubernetes/build.py [FOLDER]

At development time only. What it writes is committed, and a test makes it anew and compares.
"""

from __future__ import annotations

import re
import sys
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
}
"""Variable of ``otelcol.yaml`` → its value; written out, as the operator reads the ports of its Service from it."""


_MADE = "# Made of collector/otelcol.yaml by build.py: put the addresses of your trace store and Prometheus in.\n"


def collector() -> str:
    """Return ``collector/otelcol.yaml`` as the operator takes it. One replica: a decision needs the whole trace."""
    text = (HERE.parent / "collector" / "otelcol.yaml").read_text(encoding="utf-8")
    spec: dict[str, Any] = {
        "mode": "deployment",
        "replicas": 1,
        "image": "otel/opentelemetry-collector-contrib:0.159.0",
        "config": yaml.safe_load(re.sub(r"\$\{env:(\w+):-([^}]*)\}", _value, text)),
    }
    kind = {"apiVersion": "opentelemetry.io/v1beta1", "kind": "OpenTelemetryCollector"}
    tree = as_yaml({**kind, "metadata": {"name": NAME}, "spec": spec})
    return _MADE + tree.partition("\n")[2]


def _value(found: re.Match[str]) -> str:
    name, default = found.groups()
    return IN_CLUSTER.get(name, default)


def main(arguments: list[str]) -> None:
    """Write the files into the folder, by default the one that this file is in."""
    folder = Path(arguments[0]) if arguments else HERE
    (folder / "collector.yaml").write_text(collector(), encoding="utf-8")
    monitor = operator_files("groups: []", {}, {})["operator/podmonitor.yaml"]
    (folder / "podmonitor.yaml").write_text(monitor, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

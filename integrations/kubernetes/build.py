"""Writes the Collector, PodMonitor, image and Helm chart from the other files: python integrations/kubernetes/build.py DIR

For development only. Its output is committed, and a test builds it anew and compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from spanscore.monitoring.rules import NAME, as_yaml, operator_files

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
"""Variable of the Collector's files → its value, written out because the operator reads its Service's ports from it."""
_IMAGE = "registry.example/spanscore:1"
_ENDPOINT = "http://spanscore-collector:4318"
_PARTS = {"worker.yaml": "worker", "worker-keda.yaml": "worker", "worker-hpa.yaml": "worker", "serve.yaml": "serve"}
"""Manifest → the section of the chart's values."""
_SCALERS = {"worker-keda.yaml": "keda", "worker-hpa.yaml": "hpa"}
_MADE = "# Generated from collector/{file} by build.py: insert the addresses of your {others}.\n"
_SERVE = "spanscore-serve"
_TOKEN = "SPANSCORE_TOKEN"


def collector() -> str:
    """Return ``collector/otelcol.yaml`` as an object of the operator. One replica, because a decision needs the whole trace."""
    return _written("otelcol.yaml", "trace store and Prometheus", _object(NAME, _configuration("otelcol.yaml")))


def serve_collector() -> str:
    """Return ``collector/load_balancing.yaml`` as an object of the operator, for ``serve.yaml``'s pods by their fixed names."""
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


def chart() -> dict[str, str]:
    """Return the files of the Helm chart: the manifests, with values for everything that differs between clusters."""
    files = {f"templates/{file}": _template(file, part) for file, part in _PARTS.items()}
    about = {"apiVersion": "v2", "name": NAME, "type": "application", "version": "0.1.0", "appVersion": "1"}
    about["description"] = "Workers of spanscore on a topic, and spanscore serve"
    values = {
        "image": _IMAGE,
        "otlpEndpoint": _ENDPOINT,
        "judgeSecret": {"name": "judge", "key": "api-key"},
        "worker": {
            "enabled": True,
            "scaler": "keda",
            "minReplicas": 2,
            "maxReplicas": 12,
            "lagThreshold": "5000",
            "kafkaSecret": "kafka",
            "sasl": "scram_sha512",
            "tls": "enable",
            "configuration": _spanscore("worker.yaml"),
        },
        "serve": {"enabled": False, "replicas": 2, "storage": "2Gi", "configuration": _spanscore("serve.yaml")},
    }
    header = "# Made by ../build.py; ../README.md describes each value.\n"
    made = {"Chart.yaml": about, "values.yaml": values}
    return files | {file: header + as_yaml(tree).partition("\n")[2] for file, tree in made.items()}


def _template(file: str, part: str) -> str:
    """Return a manifest as a template; each line that a value replaces must occur at least once."""
    text = (HERE / file).read_text(encoding="utf-8")
    for old, new in {**_EVERYWHERE, **_VALUES[file]}.items():
        if old not in text and old in _VALUES[file]:
            raise ValueError(f"{file} has no {old!r} any more")
        text = text.replace(old, new)
    text = re.sub(r"  spanscore\.yaml: \|\n(?:    .*\n)+", _CONFIGURATION.format(part=part), text)
    scaler = f' (eq .Values.{part}.scaler "{_SCALERS[file]}")' if file in _SCALERS else ""
    condition = f"and .Values.{part}.enabled{scaler}" if scaler else f".Values.{part}.enabled"
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _spanscore(file: str) -> str:
    """Return the configuration in a manifest, unchanged."""
    found = re.search(r"  spanscore\.yaml: \|\n((?:    .*\n)+)", (HERE / file).read_text(encoding="utf-8"))
    assert found is not None
    return re.sub(r"^    ", "", found[1], flags=re.MULTILINE)


_CONFIGURATION = "  spanscore.yaml: |\n{{{{ .Values.{part}.configuration | indent 4 }}}}\n"
_EVERYWHERE = {
    "spanscore-worker": "{{ .Release.Name }}-worker",
    "spanscore-serve": "{{ .Release.Name }}-serve",
    _IMAGE: "{{ .Values.image }}",
    _ENDPOINT: "{{ .Values.otlpEndpoint }}",
    "{name: judge, key: api-key}": "{{ .Values.judgeSecret | toJson }}",
}
_REPLICAS = {"minReplica": "{{ .Values.worker.minReplicas }}", "maxReplica": "{{ .Values.worker.maxReplicas }}"}
_KAFKA = "(fromYaml .Values.worker.configuration).kafka"


def _rolled(part: str, labels: str) -> dict[str, str]:
    """Return the lines that restart pods when their configuration changes."""
    sum_of = f"{{{{ .Values.{part}.configuration | sha256sum }}}}"
    return {labels: f"      annotations: {{checksum/configuration: {sum_of}}}\n{labels}"}


_VALUES: dict[str, dict[str, str]] = {
    "worker.yaml": {
        "secretName: kafka,": "secretName: {{ .Values.worker.kafkaSecret }},",
        **_rolled("worker", "      labels: {app: {{ .Release.Name }}-worker, spanscore/scrape"),
    },
    "worker-keda.yaml": {
        "minReplicaCount: 2": f"minReplicaCount: {_REPLICAS['minReplica']}",
        "maxReplicaCount: 12 ": f"maxReplicaCount: {_REPLICAS['maxReplica']} ",
        "bootstrapServers: kafka.messaging:9093": f'bootstrapServers: {{{{ join "," {_KAFKA}.brokers }}}}',
        "topic: otlp_spans": f"topic: {{{{ {_KAFKA}.topic }}}}",
        "consumerGroup: spanscore\n": f"consumerGroup: {{{{ {_KAFKA}.group }}}}\n",
        'lagThreshold: "5000"': "lagThreshold: {{ .Values.worker.lagThreshold | quote }}",
        "sasl: scram_sha512": "sasl: {{ .Values.worker.sasl }}",
        "tls: enable": "tls: {{ .Values.worker.tls }}",
        "name: kafka,": "name: {{ .Values.worker.kafkaSecret }},",
        "spanscore-kafka": "{{ .Release.Name }}-kafka",
    },
    "worker-hpa.yaml": {
        "minReplicas: 2": f"minReplicas: {_REPLICAS['minReplica']}",
        "maxReplicas: 12 ": f"maxReplicas: {_REPLICAS['maxReplica']} ",
    },
    "serve.yaml": {
        "replicas: 2 ": "replicas: {{ .Values.serve.replicas }} ",
        "storage: 2Gi": "storage: {{ .Values.serve.storage }}",
        **_rolled("serve", "      labels: {app: {{ .Release.Name }}-serve, spanscore/scrape"),
    },
}


def dockerfile() -> str:
    """Return the image's build file, with the extras and the user that the manifests name."""
    manifests = "".join((HERE / file).read_text(encoding="utf-8") for file in _PARTS)
    extras = sorted({one for named in re.findall(r"spanscore\[([a-z,]+)\]", manifests) for one in named.split(",")})
    (user,) = {*re.findall(r"runAsUser: (\d+)", manifests)}
    return _DOCKERFILE.format(extras=",".join(extras), user=user)


_DOCKERFILE = """\
# Made by build.py. From the folder with pyproject.toml: docker build -f integrations/kubernetes/Dockerfile -t {{image}} .
FROM python:3.11-slim AS build
WORKDIR /source
COPY . .
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir '.[{extras}]'

FROM python:3.11-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER {user}:{user}
CMD ["spanscore", "--help"]
""".replace("{{image}}", _IMAGE)


def main(arguments: list[str]) -> None:
    """Write the files into the given folder, by default the folder of this file."""
    folder = Path(arguments[0]) if arguments else HERE
    (folder / "collector.yaml").write_text(collector(), encoding="utf-8")
    (folder / "serve-collector.yaml").write_text(serve_collector(), encoding="utf-8")
    monitor = operator_files("groups: []", {}, {})["operator/podmonitor.yaml"]
    (folder / "podmonitor.yaml").write_text(monitor, encoding="utf-8")
    (folder / "Dockerfile").write_text(dockerfile(), encoding="utf-8")
    for name, text in chart().items():
        (folder / "chart" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "chart" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a cluster is given fits its schemas, and what belongs together: ports, labels, addresses. It is run in no cluster."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.integrations.stage import INTEGRATIONS
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.line.configuration import Configuration
from spanscore.monitoring.kubernetes import PORT, SCRAPED

FOLDER = INTEGRATIONS / "kubernetes"


def objects(folder: Path = FOLDER) -> list[dict[str, Any]]:
    files = sorted(folder.rglob("*.yaml"))
    return [one for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (one for one in objects() if one["kind"] == kind)
    return found


def container() -> dict[str, Any]:
    (only,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(only)


def configuration() -> Any:
    return Configuration(**yaml.safe_load(of_kind("ConfigMap")["data"]["spanscore.yaml"]))


@pytest.mark.server
def test_what_is_written_by_hand_fits_the_clusters_schemas(kubernetes: ModuleType) -> None:
    assert {one["kind"] for one in objects()} >= {"Deployment", "ConfigMap", "PodMonitor", "OpenTelemetryCollector"}
    assert kubernetes.refused(objects()) == []


@pytest.mark.server
def test_what_the_command_writes_fits_them_too(kubernetes: ModuleType, tmp_path: Path) -> None:
    config = INTEGRATIONS / "prometheus" / "spanscore.yaml"
    command = ["rules", str(config), "--out", str(tmp_path), "--format", "operator", "--label", "release=prometheus"]
    assert CliRunner().invoke(app(), command).exit_code == 0

    made = objects(tmp_path)

    assert {one["kind"] for one in made} == {"PrometheusRule", "PodMonitor", "ConfigMap"}
    assert kubernetes.refused(made) == []


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "path"), [("PodMonitor", ["spec"]), ("OpenTelemetryCollector", ["spec"]), ("Deployment", ["spec"])]
)
def test_a_field_that_is_in_no_schema_is_refused(kubernetes: ModuleType, kind: str, path: list[str]) -> None:
    wrong = deepcopy(of_kind(kind))
    for part in path:
        wrong[part] = {**wrong[part], "spanscored": True}

    (told,) = kubernetes.refused([wrong])

    assert "spanscored" in told


def test_what_is_committed_is_what_is_made(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FOLDER / "build.py"), str(tmp_path)], check=True)

    assert {file.name for file in tmp_path.iterdir()} == {"collector.yaml", "podmonitor.yaml"}
    for file in tmp_path.iterdir():
        assert file.read_text(encoding="utf-8") == (FOLDER / file.name).read_text(encoding="utf-8")


def test_the_collector_listens_to_other_pods_and_asks_for_no_variable() -> None:
    text = (FOLDER / "collector.yaml").read_text(encoding="utf-8")

    assert "127.0.0.1" not in text
    assert "${" not in text


def test_the_applications_port_is_the_one_that_is_served_and_scraped() -> None:
    served, (port,) = configuration().serve_metrics, container()["ports"]

    assert (served.port, served.host) == (port["containerPort"], "0.0.0.0")
    assert port["name"] == PORT == of_kind("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"]
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("PodMonitor")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert SCRAPED.items() <= labels.items()


def test_the_application_sends_its_traces_to_the_collectors_service() -> None:
    endpoint = {one["name"]: one.get("value") for one in container()["env"]}["OTEL_EXPORTER_OTLP_ENDPOINT"]

    assert endpoint == f"http://{of_kind('OpenTelemetryCollector')['metadata']['name']}-collector:4318"


def test_a_replicas_share_of_the_budget_is_that_of_one_of_all() -> None:
    assert configuration().judge.share == 1 / of_kind("Deployment")["spec"]["replicas"]

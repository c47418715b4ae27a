"""A cluster's files fit the schemas and each other: ports, labels, addresses. They are not run in a cluster."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.integrations.stage import INTEGRATIONS
from tests.yaml_files import read_yaml
from typer.testing import CliRunner

from spanscore.cli.main import app
from spanscore.config.tree import Configuration
from spanscore.monitoring.rules import PORT, SCRAPED
from spanscore.wiring.build import EVENT_QUEUE_BYTES

FOLDER = INTEGRATIONS / "kubernetes"
CHART = FOLDER / "chart"
APPLICATION, WORKER, SERVE = "application.yaml", "worker.yaml", "serve.yaml"


def objects(folder: Path = FOLDER) -> list[dict[str, Any]]:
    files = sorted(file for file in folder.rglob("*.yaml") if "chart" not in file.parts)
    return [one for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def of_kind(kind: str, file: str = "") -> dict[str, Any]:
    """Return the object of a kind, of a file or the only one."""
    there = yaml.safe_load_all((FOLDER / file).read_text(encoding="utf-8")) if file else objects()
    (found,) = (one for one in there if one["kind"] == kind)
    return dict(found)


def pod(file: str) -> dict[str, Any]:
    (kind,) = {one["kind"] for one in yaml.safe_load_all((FOLDER / file).read_text())} & {"Deployment", "StatefulSet"}
    return dict(of_kind(kind, file)["spec"]["template"])


def container(file: str = APPLICATION) -> dict[str, Any]:
    (only,) = pod(file)["spec"]["containers"]
    return dict(only)


def configuration(file: str = APPLICATION) -> Any:
    return Configuration(**read_yaml(of_kind("ConfigMap", file)["data"]["spanscore.yaml"]))


@pytest.mark.server
def test_what_is_written_by_hand_fits_the_clusters_schemas(kubernetes: ModuleType) -> None:
    ours = {"Deployment", "ConfigMap", "StatefulSet", "HorizontalPodAutoscaler", "PodDisruptionBudget"}
    assert {one["kind"] for one in objects()} > ours | {"PodMonitor", "ScaledObject", "OpenTelemetryCollector"}
    assert kubernetes.refused(objects()) == []


@pytest.mark.server
def test_what_the_command_writes_fits_them_too(kubernetes: ModuleType, tmp_path: Path) -> None:
    config = INTEGRATIONS / "prometheus" / "spanscore.yaml"
    command = ["rules", str(config), "--out", str(tmp_path), "--format", "operator", "--label", "release=prometheus"]
    assert CliRunner().invoke(app("rules"), command).exit_code == 0

    made = objects(tmp_path)

    assert {one["kind"] for one in made} == {"PrometheusRule", "PodMonitor", "ConfigMap"}
    assert kubernetes.refused(made) == []


@pytest.mark.server
@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("PodMonitor", "podmonitor.yaml"),
        ("OpenTelemetryCollector", "collector.yaml"),
        ("Deployment", WORKER),
        ("ScaledObject", "worker-keda.yaml"),
    ],
)
def test_a_field_that_is_in_no_schema_is_refused(kubernetes: ModuleType, kind: str, file: str) -> None:
    wrong = deepcopy(of_kind(kind, file))
    wrong["spec"] = {**wrong["spec"], "spanscored": True}

    (message,) = kubernetes.refused([wrong])

    assert "spanscored" in message


def test_what_is_committed_is_what_is_made(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FOLDER / "build.py"), str(tmp_path)], check=True)

    made = {file.relative_to(tmp_path) for file in tmp_path.rglob("*") if file.is_file()}
    chart = {file.relative_to(FOLDER) for file in CHART.rglob("*") if file.is_file()}
    alone = {"collector.yaml", "serve-collector.yaml", "podmonitor.yaml", "Dockerfile"}
    assert made == chart | {*map(Path, alone)}
    for file in made:
        assert (tmp_path / file).read_text(encoding="utf-8") == (FOLDER / file).read_text(encoding="utf-8")


@pytest.mark.server
@pytest.mark.parametrize(("scaler", "other"), [("keda", "worker-hpa.yaml"), ("hpa", "worker-keda.yaml")])
def test_the_chart_makes_the_objects_of_the_manifests(helm: ModuleType, scaler: str, other: str) -> None:
    rendered = helm.run("template", "spanscore", str(CHART), "--set", f"serve.enabled=true,worker.scaler={scaler}")

    files = {WORKER, SERVE, "worker-keda.yaml", "worker-hpa.yaml"} - {other}
    wanted = [one for file in files for one in yaml.safe_load_all((FOLDER / file).read_text(encoding="utf-8"))]
    assert named(wanted) == named(yaml.safe_load_all(rendered))


@pytest.mark.server
def test_the_chart_is_linted_and_fits_the_clusters_schemas_with_other_values(
    helm: ModuleType, kubernetes: ModuleType, tmp_path: Path
) -> None:
    kafka = {"brokers": ["one:9092", "two:9092"], "topic": "spans", "group": "scorers"}
    worker = {"maxReplicas": 3, "configuration": yaml.safe_dump({"metrics": ["faithfulness"], "kafka": kafka})}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"image": "mine:2", "worker": worker}))
    chosen = [str(CHART), "--values", str(tmp_path / "values.yaml")]

    made = [*yaml.safe_load_all(helm.run("template", "night", *chosen))]

    assert "0 chart(s) failed" in helm.run("lint", "--strict", *chosen)
    assert kubernetes.refused(made) == []
    (scaled,) = (one for one in made if one["kind"] == "ScaledObject")
    trigger = scaled["spec"]["triggers"][0]["metadata"]
    assert (scaled["metadata"]["name"], scaled["spec"]["maxReplicaCount"]) == ("night-worker", 3)
    assert [trigger[name] for name in ("bootstrapServers", "topic", "consumerGroup")] == [
        "one:9092,two:9092",
        "spans",
        "scorers",
    ]


def named(rendered: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by kind and name, without the annotation by which pods start anew."""
    made = {(one["kind"], one["metadata"]["name"]): deepcopy(one) for one in rendered}
    for one in made.values():
        one.get("spec", {}).get("template", {}).get("metadata", {}).pop("annotations", None)
    return made


def test_the_image_has_the_extras_and_the_user_of_the_manifests() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    known = tomllib.loads((INTEGRATIONS.parent / "pyproject.toml").read_text(encoding="utf-8"))

    assert {*extras.split(",")} <= known["project"]["optional-dependencies"].keys()
    assert {*extras.split(",")} >= {"kafka", "openai", "prometheus", "serve"}
    assert f"USER {pod(WORKER)['spec']['securityContext']['runAsUser']}:" in text


@pytest.mark.parametrize(("file", "variables"), [("collector.yaml", []), ("serve-collector.yaml", ["SPANSCORE_TOKEN"])])
def test_the_collector_listens_to_other_pods_and_asks_for_no_variable_but_the_token(
    file: str, variables: list[str]
) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")

    assert "127.0.0.1" not in text
    assert re.findall(r"\$\{env:(\w+)", text) == variables
    assert {one["name"] for one in of_kind("OpenTelemetryCollector", file)["spec"].get("env", [])} == {*variables}


@pytest.mark.parametrize("file", [APPLICATION, WORKER, SERVE])
def test_the_port_is_the_one_that_is_served_and_scraped(file: str) -> None:
    served, ports = configuration(file).serve_metrics, container(file)["ports"]
    (port,) = (one for one in ports if one["name"] == PORT)

    assert (served.port, served.host) == (port["containerPort"], "0.0.0.0")
    assert port["name"] == of_kind("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"]
    labels = pod(file)["metadata"]["labels"]
    assert of_kind("PodMonitor")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert SCRAPED.items() <= labels.items()


@pytest.mark.parametrize("file", [APPLICATION, WORKER, SERVE])
def test_scores_go_to_the_collectors_service(file: str) -> None:
    endpoint = {one["name"]: one.get("value") for one in container(file)["env"]}["OTEL_EXPORTER_OTLP_ENDPOINT"]

    assert (
        endpoint == f"http://{of_kind('OpenTelemetryCollector', 'collector.yaml')['metadata']['name']}-collector:4318"
    )


@pytest.mark.parametrize(("file", "kind"), [(APPLICATION, "Deployment"), (SERVE, "StatefulSet")])
def test_a_replicas_share_of_the_budget_is_that_of_one_of_all(file: str, kind: str) -> None:
    assert configuration(file).judge.replica_share == 1 / of_kind(kind, file)["spec"]["replicas"]


@pytest.mark.parametrize(("file", "section"), [(WORKER, "worker"), (SERVE, "serve")])
def test_a_pod_is_given_longer_than_its_drain_and_more_memory_than_what_waits(file: str, section: str) -> None:
    chosen, limit = configuration(file), container(file)["resources"]["limits"]["memory"]
    waits = chosen.units.bytes + chosen.limits.queue_bytes + EVENT_QUEUE_BYTES

    assert getattr(chosen, section).drain < pod(file)["spec"]["terminationGracePeriodSeconds"]
    assert 200_000_000 + waits < int(limit.removesuffix("Gi")) * 2**30


@pytest.mark.parametrize("file", [WORKER, SERVE])
def test_a_pod_writes_to_its_volumes_alone_and_holds_no_secret_in_its_file(file: str) -> None:
    mounted = {one["name"]: one["mountPath"] for one in container(file)["volumeMounts"] if not one.get("readOnly")}
    secret = [one for one in container(file)["env"] if "secretKeyRef" in one.get("valueFrom", {})]

    assert container(file)["securityContext"]["readOnlyRootFilesystem"]
    assert {*mounted} == ({"tmp", "spool"} if file == SERVE else {"tmp"})
    assert [one["name"] for one in secret] == ["OPENAI_API_KEY"]
    assert "kind: Secret" not in (FOLDER / file).read_text()


def test_each_scaler_is_for_the_worker_and_asks_of_its_group_and_topic() -> None:
    kafka, (asked,) = configuration(WORKER).kafka, of_kind("ScaledObject")["spec"]["triggers"]
    scaled = [of_kind(kind)["spec"]["scaleTargetRef"]["name"] for kind in ("ScaledObject", "HorizontalPodAutoscaler")]

    assert scaled == [of_kind("Deployment", WORKER)["metadata"]["name"]] * 2
    values = {key: asked["metadata"][key] for key in ("bootstrapServers", "topic", "consumerGroup")}
    assert values == {"bootstrapServers": ",".join(kafka.brokers), "topic": kafka.topic, "consumerGroup": kafka.group}


def test_the_collector_sends_to_each_pod_of_serve_by_its_name() -> None:
    pods, service = of_kind("StatefulSet")["spec"]["replicas"], of_kind("Service", SERVE)["metadata"]["name"]
    resolver = of_kind("OpenTelemetryCollector", "serve-collector.yaml")["spec"]["config"]["exporters"][
        "load_balancing"
    ]
    name = of_kind("StatefulSet")["metadata"]["name"]

    assert resolver["resolver"]["static"]["hostnames"] == [f"{name}-{pod}.{service}:4317" for pod in range(pods)]


def test_the_spool_of_serve_lies_on_the_volume_that_comes_back() -> None:
    (mounted,) = (one["mountPath"] for one in container(SERVE)["volumeMounts"] if one["name"] == "spool")
    (claimed,) = of_kind("StatefulSet")["spec"]["volumeClaimTemplates"]
    size = int(claimed["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) * 2**30

    assert configuration(SERVE).spool.path == f"{mounted}/spool.db"
    assert (claimed["metadata"]["name"], configuration(SERVE).spool.max_bytes < size) == ("spool", True)

"""There is no container engine here; the tests check the references in the compose file."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.integrations.stage import INTEGRATIONS

COMPOSE = INTEGRATIONS / "compose"
KEYS = {"image", "command", "environment", "volumes", "ports", "depends_on", "profiles", "extra_hosts", "user"}


def _tree() -> dict[str, Any]:
    return yaml.safe_load((COMPOSE / "docker-compose.yaml").read_text(encoding="utf-8"))


def _mounts() -> list[tuple[str, str, str]]:
    return [
        (name, *volume.split(":")[:2]) for name, one in _tree()["services"].items() for volume in one.get("volumes", [])
    ]


def test_services_hold_what_compose_knows_and_refer_to_each_other() -> None:
    tree = _tree()

    assert tree.keys() == {"name", "services", "volumes"}
    for service in tree["services"].values():
        assert service.keys() <= KEYS
        assert set(service.get("depends_on", [])) <= tree["services"].keys()


def test_every_image_has_a_version() -> None:
    images = [service["image"] for service in _tree()["services"].values()]

    assert [image for image in images if not re.fullmatch(r"[a-z0-9/-]+:(v|version-)?\d+\.\d+\.\d+", image)] == []


def test_every_port_is_on_loopback() -> None:
    ports = [port for service in _tree()["services"].values() for port in service.get("ports", [])]

    assert ports
    assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []


@pytest.mark.parametrize(("service", "source", "target"), _mounts())
def test_what_is_mounted_exists(service: str, source: str, target: str) -> None:
    assert target.startswith("/")
    assert (COMPOSE / source).exists() if source.startswith(".") else source in _tree()["volumes"]


def test_what_a_configuration_asks_of_its_environment_is_set() -> None:
    collector = _tree()["services"]["collector"]["environment"]
    grafana = _tree()["services"]["grafana"]["environment"]
    sources = (INTEGRATIONS / "grafana" / "provisioning" / "datasources" / "spanscore.yaml").read_text(encoding="utf-8")
    otelcol = (INTEGRATIONS / "collector" / "otelcol.yaml").read_text(encoding="utf-8")

    assert set(re.findall(r"\$\{(\w+)\}", sources)) <= grafana.keys()
    assert collector.keys() <= set(re.findall(r"\$\{env:(\w+)", otelcol))


def test_hosts_that_are_named_are_services() -> None:
    texts = [(COMPOSE / name).read_text(encoding="utf-8") for name in ("docker-compose.yaml", "prometheus.yml")]
    hosts = {host for text in texts for host in re.findall(r"(?:http://|\[\")([a-z.]+):\d+", text)}

    assert hosts - {"host.docker.internal"} <= _tree()["services"].keys()


@pytest.mark.server
@pytest.mark.parametrize("file", ["compose/prometheus.yml", "prometheus/prometheus.yml"])
def test_promtool_takes_the_configuration(prometheus: ModuleType, file: str) -> None:
    assert "SUCCESS" in prometheus.promtool("check", "config", INTEGRATIONS / file)


@pytest.mark.server
def test_the_collector_takes_its_configuration(collector: ModuleType) -> None:
    collector.validate(INTEGRATIONS / "collector" / "otelcol.yaml")

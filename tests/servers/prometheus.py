"""Prometheus, from Debian's package: scrapes, takes remote write, keeps exemplars, on a free loopback port; and promtool."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.servers import apt
from tests.servers.server import Server, fetch_json, free_port

__all__ = ["CONFIG", "Prometheus", "install", "installed", "promtool", "running"]

PACKAGE = "prometheus"
READY_WITHIN_S = 30.0  # 0.5 s on a quiet machine
TOOL_WITHIN_S = 100.0
FEATURES = "exemplar-storage,native-histograms"
CONFIG = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
"""A configuration without scraping, for data by remote write."""

Series = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus.

    Attributes:
        url: base of the page and the API.
        folder: holds ``prometheus.yml`` and the rule files; write there and ``reload()``.
        pid: of the process that keeps it; Prometheus is its child.
    """

    url: str
    folder: Path
    pid: int

    @property
    def remote_write(self) -> str:
        """Address for samples by remote write."""
        return f"{self.url}/api/v1/write"

    def query(self, promql: str, at: float | None = None) -> Series:
        """Return the instant vector: ``[{"metric": {…}, "value": [time, "1"]}, …]``; a scalar as one series without labels.

        Raises:
            RuntimeError: Prometheus refused the expression; holds its message.
        """
        given = {"query": promql, **({} if at is None else {"time": f"{at:.3f}"})}
        data = self._ask("query", given)
        return [{"metric": {}, "value": data["result"]}] if data["resultType"] == "scalar" else list(data["result"])

    def query_range(self, promql: str, start: float, end: float, step: float) -> Series:
        """Return the matrix: ``[{"metric": {…}, "values": [[time, "1"], …]}, …]``; times and step in seconds."""
        given = {"query": promql, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return list(self._ask("query_range", given)["result"])

    def exemplars(self, promql: str, start: float | None = None, end: float | None = None) -> Series:
        """Return ``[{"seriesLabels": {…}, "exemplars": [{"labels": {"trace_id": …}, "value": "1"}]}]``; by default of 1 h."""
        now = time.time()
        given = {"query": promql, "start": f"{start or now - 3600:.3f}", "end": f"{end or now + 60:.3f}"}
        return list(self._ask("query_exemplars", given))

    def alerts(self) -> Series:
        """Return the alerts that are pending or firing: ``[{"labels": {…}, "annotations": {…}, "state": …}]``."""
        return list(self._ask("alerts", {})["alerts"])

    def rules(self) -> Series:
        """Return every rule with its health and last error."""
        return [rule for group in self._ask("rules", {})["groups"] for rule in group["rules"]]

    def reload(self) -> None:
        """Read the configuration and the rule files again; raises when Prometheus refuses them."""
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/-/reload", method="POST"), timeout=10):
            pass

    def _ask(self, what: str, given: Mapping[str, str]) -> Any:
        return fetch_json(f"{self.url}/api/v1/{what}", given)["data"]


def installed() -> bool:
    """Whether the server and its tool are there."""
    return all(shutil.which(command) for command in ("prometheus", "promtool"))


def install() -> None:
    """Install the Debian package (some seconds) unless it is there."""
    if not installed():
        apt.install(PACKAGE)


def promtool(*arguments: str | os.PathLike[str]) -> str:
    """Run promtool, as in ``promtool("check", "rules", file)``, and return its output.

    Raises:
        ValueError: promtool found a fault; has its output.
    """
    command = ["promtool", *map(os.fspath, arguments)]
    environment = {**os.environ, "GOGC": "400"}  # with Go's default, a third of its time is garbage collection
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=TOOL_WITHIN_S, env=environment)
    if done.returncode:
        raise ValueError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def running(
    folder: Path,
    config: str = CONFIG,
    rules: Mapping[str, str] | None = None,
    *,
    retention: str = "15d",
    lookback_s: float = 300.0,
) -> Iterator[Prometheus]:
    """Run Prometheus with its data in ``folder``; stopped at the end of the block, or with this process.

    Args:
        folder: a new one for each server.
        config: the text of ``prometheus.yml``.
        rules: file name → text; loaded whether or not the configuration has ``rule_files``.
        retention: older data is deleted.
        lookback_s: for how long a series that gets no more samples still has its last value.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (rules or {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "prometheus.yml").write_text(_with_rules(config, list(rules or {})), encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = Server(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={retention}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--enable-feature={FEATURES}",
            f"--query.lookback-delta={round(1_000 * lookback_s)}ms",
            "--web.enable-remote-write-receiver",
            "--web.enable-lifecycle",
        ],
        environment={},
        folder=folder,
        ready=f"{url}/-/ready",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Prometheus(url, folder, server.pid)
    finally:
        server.stop()


def _with_rules(config: str, names: list[str]) -> str:
    if not names:
        return config
    tree = yaml.safe_load(config) or {}
    tree["rule_files"] = sorted({*tree.get("rule_files", []), *names})
    return yaml.safe_dump(tree, sort_keys=False)

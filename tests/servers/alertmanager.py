"""Alertmanager, from Debian's package, on a free loopback port and without a cluster; and amtool."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import apt
from tests.servers.server import Server, fetch_json, free_port

__all__ = ["NOBODY", "Alertmanager", "amtool", "install", "installed", "running"]

PACKAGE = "prometheus-alertmanager"
READY_WITHIN_S = 30.0  # 0.5 s on a quiet machine
TOOL_WITHIN_S = 30.0
NOBODY = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"
"""A configuration without notifications."""


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """A running Alertmanager.

    Attributes:
        url: base of the API.
        target: host:port, for Prometheus' ``alerting: {alertmanagers: [{static_configs: [{targets: […]}]}]}``.
        folder: holds ``alertmanager.yml``.
        pid: of the process that keeps it; Alertmanager is its child.
    """

    url: str
    target: str
    folder: Path
    pid: int

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts it holds, as its API v2 gives them."""
        return list(fetch_json(f"{self.url}/api/v2/alerts"))


def installed() -> bool:
    """Whether the server and its tool are there."""
    return all(shutil.which(command) for command in ("prometheus-alertmanager", "amtool"))


def install() -> None:
    """Install the Debian package (some seconds) unless it is there."""
    if not installed():
        apt.install(PACKAGE)


def amtool(*arguments: str | os.PathLike[str]) -> str:
    """Run amtool, as in ``amtool("check-config", file)``, and return its output.

    Raises:
        ValueError: amtool found a fault; has its output.
    """
    command = ["amtool", *map(os.fspath, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=TOOL_WITHIN_S)
    if done.returncode:
        raise ValueError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def running(folder: Path, config: str) -> Iterator[Alertmanager]:
    """Run Alertmanager with its data in ``folder``; stopped at the end of the block, or with this process.

    Args:
        folder: a new one for each server.
        config: the text of ``alertmanager.yml``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(config, encoding="utf-8")
    target = f"127.0.0.1:{free_port()}"
    server = Server(
        [
            "prometheus-alertmanager",
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={target}",
            "--cluster.listen-address=",  # else it opens a gossip port on every interface
        ],
        environment={},
        folder=folder,
        ready=f"http://{target}/-/ready",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Alertmanager(f"http://{target}", target, folder, server.pid)
    finally:
        server.stop()

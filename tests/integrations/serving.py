"""``spanscore serve`` as its users run it: a process with a file, and its ``/metrics``."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.servers.server import Server, children, free_port

__all__ = ["Served", "free_ports", "serving"]

READY_WITHIN_S = 30.0  # 2 s on a quiet machine
_POINT = re.compile(r"^(\w+)(?:\{(.*)\})? ([\d.e+-]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class Served:
    """A running ``spanscore serve``.

    Attributes:
        http: base of OTLP over HTTP.
        grpc: host:port of OTLP over gRPC.
        monitor: base of ``/metrics``, ``/healthz`` and ``/readyz``.
        log: output of the process.
        pid: of the process that keeps it.
        ports: listening ports by name.
    """

    http: str
    grpc: str
    monitor: str
    log: Path
    pid: int
    ports: Mapping[str, int]

    def kill(self) -> None:
        """End it at once, as an operating system without memory does."""
        for child in children(self.pid):
            os.kill(child, signal.SIGKILL)

    def total(self, metric: str, by: str = "") -> Counter[str]:
        """Return the sums of a counter or gauge, by the values of a label; one sum under "" without a label."""
        with urllib.request.urlopen(f"{self.monitor}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found: Counter[str] = Counter()
        for name, labels, value in _POINT.findall(text):
            if name == metric:
                found[dict(_LABEL.findall(labels)).get(by, "")] += int(float(value))
        return +found

    def eligible(self) -> int:
        """Return how many units × metrics arrived."""
        return self.total("spanscore_eligible_total")[""]

    def outcomes(self) -> Counter[str]:
        """Return how they ended: outcome → how many."""
        return self.total("spanscore_evaluations_total", "spanscore_evaluation_outcome")


def free_ports() -> dict[str, int]:
    """Return ports for a ``serve`` that is yet to be started."""
    return {name: free_port() for name in ("http", "grpc", "monitor")}


@contextmanager
def serving(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    scores_to: str,
    ports: Mapping[str, int] | None = None,
    first: str = "",
) -> Iterator[Served]:
    """Run ``spanscore serve`` with these settings on free loopback ports; stopped at the end of the block.

    Args:
        folder: for its file and its output; modules in it are found.
        settings: of the file; ``serve`` and ``serve_metrics`` are added to.
        scores_to: base of OTLP over HTTP.
        ports: result of ``free_ports``, or the ports of an earlier process to replace; None = any.
        first: Python that the process runs before anything of ours is imported.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = ports or free_ports()
    at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    serve = {**settings.get("serve", {}), "http": at["http"], "grpc": at["grpc"]}
    whole = {**settings, "serve": serve, "serve_metrics": ports["monitor"]}
    (folder / "spanscore.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    server = Server(
        [sys.executable, "-c", f"{first}\nfrom spanscore.cli.main import main; main()", "serve", "spanscore.yaml"],
        environment={"OTEL_EXPORTER_OTLP_ENDPOINT": scores_to, "OTEL_BSP_SCHEDULE_DELAY": "200"},
        folder=folder,
        ready=f"http://{at['monitor']}/readyz",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Served(f"http://{at['http']}", at["grpc"], f"http://{at['monitor']}", server.log, server.pid, ports)
    finally:
        server.stop()

"""Install the servers the tests need, or run one to look at: ``python -m tests.servers install | phoenix | prometheus | …``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

from tests.servers import (
    alertmanager,
    chromium,
    collector,
    helm,
    jaeger,
    kafka,
    kubernetes,
    node,
    phoenix,
    prometheus,
    zipkin,
)
from tests.servers.server import free_port

_INSTALLED: Mapping[str, tuple[ModuleType, str]] = {
    "prometheus, promtool": (prometheus, "installing Debian's package"),
    "alertmanager, amtool": (alertmanager, "installing Debian's package"),
    "chromium": (chromium, "installing Debian's package"),
    f"zipkin {zipkin.VERSION}": (zipkin, "fetching the jar"),
    f"kafka {kafka.VERSION}": (kafka, "fetching the jars"),
    f"jaeger {jaeger.VERSION}": (jaeger, "building with Go, 5 to 8 minutes"),
    f"phoenix {phoenix.VERSION}": (phoenix, "installing, some minutes"),
    "application of node": (node, "installing, some seconds"),
    f"schemas of kubernetes {kubernetes.VERSION}": (kubernetes, "fetching"),
    f"helm {helm.VERSION}": (helm, "building with Go, some 3 minutes"),
    f"collector {collector.VERSION}": (collector, "building with Go, 5 to 11 minutes"),
}
"""A server for the tests → the function that installs it."""


def main(arguments: list[str]) -> int:
    """Return 0 when the command was known and done, 1 when a server could not be installed."""
    if arguments == ["install"]:
        return _install()
    if len(arguments) != 1 or arguments[0] not in _RUN:
        print(f"usage: python -m tests.servers install | {' | '.join(_RUN)}", file=sys.stderr)
        return 2
    _look_at(_RUN[arguments[0]])
    return 0


def _install() -> int:
    failed = [name for name, (server, how) in _INSTALLED.items() if not _installed(name, server, how)]
    return 1 if failed else 0


def _installed(name: str, server: ModuleType, how: str) -> bool:
    """Install one server. Return False, with a printed reason, if that is impossible; its tests are skipped, or fail in CI."""
    if server.installed():
        print(f"{name}: there", flush=True)
        return True
    print(f"{name}: {how}", flush=True)
    begun = time.monotonic()
    try:
        server.install()
    except (RuntimeError, subprocess.CalledProcessError) as reason:
        print(f"{name}: not installed: {reason}", file=sys.stderr, flush=True)
        return False
    print(f"{name}: installed in {time.monotonic() - begun:.0f} s", flush=True)
    return True


def _look_at(run: Callable[[Path, ExitStack], str]) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        print(f"{run(Path(folder), stack)}   Ctrl-C stops it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopped")


def _phoenix(folder: Path, stack: ExitStack) -> str:
    server = stack.enter_context(phoenix.running(folder))
    return f"page {server.url}   OTLP http {server.traces_endpoint}   grpc {server.grpc}"


def _prometheus(folder: Path, stack: ExitStack) -> str:
    server = stack.enter_context(prometheus.running(folder))
    return f"page {server.url}   remote write {server.remote_write}   configuration {server.folder}/prometheus.yml"


def _alertmanager(folder: Path, stack: ExitStack) -> str:
    server = stack.enter_context(alertmanager.running(folder, alertmanager.NOBODY))
    return f"amtool --alertmanager.url={server.url} alert   configuration {server.folder}/alertmanager.yml"


def _zipkin(folder: Path, stack: ExitStack) -> str:
    server = stack.enter_context(zipkin.running(folder))
    return f"page {server.url}   spans {server.spans_endpoint}"


def _jaeger(folder: Path, stack: ExitStack) -> str:
    server = stack.enter_context(jaeger.running(folder))
    return f"query API {server.url}/api   OTLP http {server.otlp}   grpc {server.grpc}"


def _kafka(folder: Path, stack: ExitStack) -> str:
    server = stack.enter_context(kafka.running(folder))
    return f"brokers {server.brokers}   with a password {server.with_password}   topics are made by who needs them"


def _collector(folder: Path, stack: ExitStack) -> str:
    http, grpc = free_port(), free_port()
    (folder / "otelcol.yaml").write_text(collector.printing(http, grpc), encoding="utf-8")
    server = stack.enter_context(collector.running(folder, folder / "otelcol.yaml"))
    return f"OTLP http http://127.0.0.1:{http}   grpc 127.0.0.1:{grpc}   what comes is printed to {server.log}"


_RUN: Mapping[str, Callable[[Path, ExitStack], str]] = {
    "phoenix": _phoenix,
    "prometheus": _prometheus,
    "alertmanager": _alertmanager,
    "zipkin": _zipkin,
    "jaeger": _jaeger,
    "kafka": _kafka,
    "collector": _collector,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

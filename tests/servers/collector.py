"""The OpenTelemetry Collector, built once by Go's builder into the cache and run on free loopback ports.

Its components are in ``collector_builder.yaml``; the binary is cached by a hash of that file.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers import go
from tests.servers.server import Server, cache_dir, free_port

__all__ = [
    "VERSION",
    "Collector",
    "health_check",
    "install",
    "installed",
    "obstacle",
    "printing",
    "running",
    "validate",
]

VERSION = "0.159.0"
MANIFEST = Path(__file__).with_name("collector_builder.yaml")
BUILDER = f"go.opentelemetry.io/collector/cmd/builder@v{VERSION}"
READY_WITHIN_S = 30.0  # 0.2 s on a quiet machine
VALIDATE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Collector:
    """A running Collector.

    Attributes:
        log: its output, including that of the debug exporter.
        pid: of the process that keeps it; the Collector is its child.
    """

    log: Path
    pid: int


def installed() -> bool:
    """Whether the binary of the present manifest is there."""
    return _binary().is_file()


def obstacle() -> str | None:
    """Return why the Collector cannot be built here; None when it can, or already is."""
    return None if installed() else go.obstacle("the Collector")


def install() -> None:
    """Build the Collector (5 to 11 minutes, 3.4 GB in Go's own caches) unless it is there.

    Raises:
        RuntimeError: there is no Go.
        subprocess.CalledProcessError: the build failed; the builder has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(reason)
    if installed():
        return
    with go.building(_binary()) as (work, go_environment):
        environment = {**go_environment, "GOBIN": str(work), "CGO_ENABLED": "0"}
        subprocess.run(["go", "install", BUILDER], cwd=work, env=environment, check=True)
        command = [str(work / "builder"), "--config", str(MANIFEST)]
        subprocess.run(command, cwd=work, env=environment, check=True, stdin=subprocess.DEVNULL)
        (work / "build" / "otelcol").replace(work / "otelcol")


def validate(config: Path, environment: Mapping[str, str] | None = None) -> None:
    """Let the Collector itself check a configuration.

    Raises:
        ValueError: the configuration is invalid; has the Collector's output.
    """
    done = subprocess.run(
        [str(_binary()), "validate", "--config", str(config)],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        check=False,
        text=True,
        timeout=VALIDATE_WITHIN_S,
    )
    if done.returncode:
        raise ValueError(f"{config.name}: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def running(
    folder: Path,
    *configs: Path,
    environment: Mapping[str, str] | None = None,
    health: int | None = None,
    gates: str = "",
) -> Iterator[Collector]:
    """Run the Collector with these configurations merged, the last one winning; stopped at the end of the block.

    Args:
        folder: for its output.
        configs: at least one.
        environment: for the ``${env:…}`` of the configurations.
        health: the port of a ``health_check`` extension that the configurations already have; None adds one
            (see ``health_check``), in place of the extensions they name.
        gates: feature gates to enable, separated by commas.
    """
    port = health or free_port()
    sources = [argument for config in configs for argument in ("--config", str(config))]
    if health is None:
        sources += ["--config", f"yaml:{health_check(port)}"]
    if gates:
        sources.append(f"--feature-gates={gates}")
    server = Server(
        [str(_binary()), *sources],
        environment=dict(environment or {}),
        folder=folder,
        ready=f"http://127.0.0.1:{port}/",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Collector(server.log, server.pid)
    finally:
        server.stop()


def health_check(port: int) -> str:
    """Return the configuration (YAML in one line) of a health check on loopback, and of no port for its own metrics."""
    return (
        f"{{extensions: {{health_check: {{endpoint: '127.0.0.1:{port}'}}}}, "
        "service: {extensions: [health_check], telemetry: {metrics: {level: none}}}}"
    )


def printing(http: int, grpc: int) -> str:
    """Return a configuration that accepts OTLP on these loopback ports and prints the data."""
    protocols = f"{{http: {{endpoint: '127.0.0.1:{http}'}}, grpc: {{endpoint: '127.0.0.1:{grpc}'}}}}"
    pipeline = "{receivers: [otlp], exporters: [debug]}"
    return (
        f"receivers: {{otlp: {{protocols: {protocols}}}}}\n"
        "exporters: {debug: {verbosity: detailed}}\n"
        f"service: {{pipelines: {{traces: {pipeline}, metrics: {pipeline}, logs: {pipeline}}}}}\n"
    )


def _binary() -> Path:
    fingerprint = hashlib.sha256(MANIFEST.read_bytes()).hexdigest()[:12]
    return cache_dir() / f"otelcol-{VERSION}-{fingerprint}" / "otelcol"

"""Jaeger: the trace store itself, built once with Go into the cache and run in memory on free loopback ports.

Its query API, OTLP inputs and storage are the real ones; the page is a placeholder, as its bundle is not a Go module.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import go
from tests.servers.server import Server, cache_dir, fetch_json, free_port, poll

__all__ = ["VERSION", "Jaeger", "install", "installed", "obstacle", "running"]

VERSION = "2.13"
MODULE, MODULE_VERSION = "github.com/jaegertracing/jaeger", "v1.76.0"
"""Jaeger 2 is released from the module's v1."""
READY_WITHIN_S = 30.0  # 1 s on a quiet machine
TRACES_WITHIN_S = 20.0
LIMIT = 1_000

Traces = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Jaeger:
    """A running Jaeger.

    Attributes:
        url: base of the query API.
        otlp: base of OTLP over HTTP.
        grpc: host:port of OTLP over gRPC.
        pid: of the process that keeps it; Jaeger is its child.
    """

    url: str
    otlp: str
    grpc: str
    pid: int

    @property
    def traces_endpoint(self) -> str:
        """For an OTLP HTTP exporter's ``endpoint``; it takes no metrics and no logs."""
        return f"{self.otlp}/v1/traces"

    def search(
        self,
        service: str,
        tags: Mapping[str, str],
        until: Callable[[Traces], bool] = bool,
        *,
        deadline_s: float = TRACES_WITHIN_S,
    ) -> Traces:
        """Return the traces of a service that have one span with all these tags, once they satisfy ``until``.

        Args:
            service: asked for as the page does, which cannot search without one.
            tags: compared as strings, booleans in lower case; empty = every trace.
            until: called repeatedly with the results so far; by default, whether there is any.

        Raises:
            TimeoutError: ``until`` was not satisfied in time.
        """
        query = {"service": service, "tags": json.dumps(tags), "limit": str(LIMIT)}
        found: Traces = []

        def satisfied() -> bool:
            found[:] = fetch_json(f"{self.url}/api/traces", query)["data"]
            return until(found)

        poll(satisfied, deadline_s=deadline_s, what=f"traces of {service} with {tags} in Jaeger", every_s=0.2)
        return found


def installed() -> bool:
    """Whether the binary is in the cache."""
    return _binary().is_file()


def obstacle() -> str | None:
    """Return why Jaeger cannot be built here; None when it can, or already is."""
    return None if installed() else go.obstacle("Jaeger")


def install() -> None:
    """Build Jaeger (5 to 8 minutes) unless it is there.

    ``go install`` is refused by Go, as Jaeger's ``go.mod`` replaces a module. So a module of ours requires it, with the
    versions of its own ``go.mod`` and the checksums of its own ``go.sum``.

    Raises:
        RuntimeError: there is no Go.
        subprocess.CalledProcessError: the build failed; Go has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(reason)
    if installed():
        return
    with go.building(_binary()) as (work, go_environment):
        environment = {**go_environment, "GOFLAGS": "-mod=mod"}
        _write_module(work, environment)
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "jaeger", f"{MODULE}/cmd/jaeger"]
        subprocess.run(command, cwd=work, env=environment, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def running(folder: Path) -> Iterator[Jaeger]:
    """Run Jaeger; its data ends with the block."""
    api, grpc_api, http, grpc, health = (free_port() for _ in range(5))
    config = folder / "jaeger.yaml"
    config.write_text(_config(api=api, grpc_api=grpc_api, http=http, grpc=grpc, health=health), encoding="utf-8")
    server = Server(
        [str(_binary()), "--config", str(config)],
        environment={},
        folder=folder,
        ready=f"http://127.0.0.1:{health}/status",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Jaeger(f"http://127.0.0.1:{api}", f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}", server.pid)
    finally:
        server.stop()


def _write_module(work: Path, environment: Mapping[str, str]) -> None:
    asked = ["go", "mod", "download", "-json", f"{MODULE}@{MODULE_VERSION}"]
    completed = subprocess.run(asked, cwd=work, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    source = Path(json.loads(completed.stdout)["Dir"])
    theirs = (source / "go.mod").read_text(encoding="utf-8").split("\n", maxsplit=1)[1]
    ours = f"module spanscore.test/jaeger\n\nrequire {MODULE} {MODULE_VERSION}\n{theirs}"
    (work / "go.mod").write_text(ours, encoding="utf-8")
    (work / "go.sum").write_text((source / "go.sum").read_text(encoding="utf-8"), encoding="utf-8")


def _config(*, api: int, grpc_api: int, http: int, grpc: int, health: int) -> str:
    """Return a configuration with every port on loopback; without ``--config`` some are on fixed ports."""
    return (
        "extensions:\n"
        f"  healthcheckv2: {{use_v2: true, http: {{endpoint: '127.0.0.1:{health}'}}}}\n"
        "  jaeger_storage: {backends: {memory: {memory: {max_traces: 100000}}}}\n"
        "  jaeger_query:\n"
        "    storage: {traces: memory}\n"
        "    enable_tracing: false\n"
        f"    http: {{endpoint: '127.0.0.1:{api}'}}\n"
        f"    grpc: {{endpoint: '127.0.0.1:{grpc_api}'}}\n"
        "receivers:\n"
        "  otlp:\n"
        "    protocols:\n"
        f"      http: {{endpoint: '127.0.0.1:{http}'}}\n"
        f"      grpc: {{endpoint: '127.0.0.1:{grpc}'}}\n"
        "exporters: {jaeger_storage_exporter: {trace_storage: memory}}\n"
        "service:\n"
        "  extensions: [healthcheckv2, jaeger_storage, jaeger_query]\n"
        "  pipelines: {traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}}\n"
        "  telemetry: {metrics: {level: none}}\n"
    )


def _binary() -> Path:
    return cache_dir() / f"jaeger-{VERSION}" / "jaeger"

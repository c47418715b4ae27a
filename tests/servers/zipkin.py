"""Zipkin: a real trace store with tag search by string equality, like Jaeger's; in memory, on a free loopback port."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.server import Server, absent_commands, cache_dir, fetch_json, free_port, poll

__all__ = ["VERSION", "Zipkin", "install", "installed", "obstacle", "running"]

VERSION = "3.5.1"
ARTIFACT = f"io.zipkin:zipkin-server:{VERSION}:jar:exec"
READY_WITHIN_S = 90.0  # 7 s on a quiet machine
LOOKBACK_MS = 3_600_000
TRACES_WITHIN_S = 20.0

Traces = list[list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Zipkin:
    """A running Zipkin.

    Attributes:
        url: base of the page and the API.
        pid: of the process that keeps it; Zipkin is its child.
    """

    url: str
    pid: int

    @property
    def spans_endpoint(self) -> str:
        """For ``ZipkinExporter(endpoint=…)``; Zipkin has no OTLP input."""
        return f"{self.url}/api/v2/spans"

    def search(
        self, tags: str, until: Callable[[Traces], bool] = bool, *, deadline_s: float = TRACES_WITHIN_S
    ) -> Traces:
        """Return the traces, each a list of spans, that have one span with all these tags, once they satisfy ``until``.

        Args:
            tags: ``key=value and key=value``; compared as strings, booleans in lower case.

        Raises:
            TimeoutError: ``until`` was not satisfied in time.
        """
        found: Traces = []

        def satisfied() -> bool:
            found[:] = self._search(tags)
            return until(found)

        poll(satisfied, deadline_s=deadline_s, what=f"traces with {tags} in Zipkin", every_s=0.2)
        return found

    def _search(self, tags: str) -> Traces:
        """Search in Zipkin; it also finds a trace with the tags on several spans, which Jaeger would not."""
        query = {"annotationQuery": tags, "lookback": str(LOOKBACK_MS), "limit": "1000"}
        pairs = dict(tag.split("=", maxsplit=1) for tag in tags.split(" and ")).items()
        traces = fetch_json(f"{self.url}/api/v2/traces", query)
        return [trace for trace in traces if any(pairs <= span.get("tags", {}).items() for span in trace)]


def installed() -> bool:
    """Whether the jar is in the cache and there is a Java to run it."""
    return _jar().is_file() and shutil.which("java") is not None


def obstacle() -> str | None:
    """Return why Zipkin cannot be installed here; None when it can, or already is."""
    return None if installed() else absent_commands("java", "mvn")


def install() -> None:
    """Fetch the jar (some seconds) unless it is there.

    Raises:
        RuntimeError: there is no Java or no Maven.
        subprocess.CalledProcessError: Maven failed and has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(reason)
    if not installed():
        folder = _jar().parent
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
        subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def running(folder: Path) -> Iterator[Zipkin]:
    """Run Zipkin; its data ends with the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = Server(
        [
            *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(_jar())),
            "--armeria.ports[0].ip=127.0.0.1",
            f"--armeria.ports[0].port={port}",
            "--armeria.ports[0].protocols[0]=http",
        ],
        environment={"STORAGE_TYPE": "mem", "SELF_TRACING_ENABLED": "false"},
        folder=folder,
        ready=f"{url}/health",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Zipkin(url, server.pid)
    finally:
        server.stop()


def _jar() -> Path:
    return cache_dir() / f"zipkin-{VERSION}" / f"zipkin-server-{VERSION}-exec.jar"

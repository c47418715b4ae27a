"""Phoenix: a real OTLP trace store with a page and a query API, installed into the cache and run on free loopback ports."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.server import Server, cache_dir, free_port, poll

__all__ = ["VERSION", "Phoenix", "install", "installed", "running"]

VERSION = "20.26.1"
READY_WITHIN_S = 90.0  # 13–24 s on a quiet machine; a test may take 120 s with its fixtures
SPANS_WITHIN_S = 30.0
PAGE = 1_000  # spans per request

FILTERED = """query ($filter: String!) { projects { edges { node {
  spans(first: 1000, filterCondition: $filter) { edges { node { name spanId } } } } } } }"""

Spans = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Phoenix:
    """A running Phoenix.

    Attributes:
        url: base of the page, the REST API and OTLP over HTTP (``/v1/traces``).
        grpc: host:port of OTLP over gRPC.
        pid: of the process that keeps the server; the server is its child.
    """

    url: str
    grpc: str
    pid: int

    @property
    def traces_endpoint(self) -> str:
        """For an OTLP HTTP exporter's ``endpoint``."""
        return f"{self.url}/v1/traces"

    def spans(
        self,
        trace_id: str | int,
        until: Callable[[Spans], bool] = bool,
        *,
        project: str = "default",
        deadline_s: float = SPANS_WITHIN_S,
    ) -> Spans:
        """Return the stored spans of a trace, once they satisfy ``until``; each a dict as the REST API gives it.

        Args:
            trace_id: 32 hex digits, or the number.
            until: called repeatedly with the stored spans so far; by default, whether there is any span.

        Raises:
            TimeoutError: ``until`` was not satisfied in time.
        """
        wanted = f"{trace_id:032x}" if isinstance(trace_id, int) else trace_id
        found: Spans = []

        def satisfied() -> bool:
            found[:] = [span for span in self._all(project) if span["context"]["trace_id"] == wanted]
            return until(found)

        poll(satisfied, deadline_s=deadline_s, what=f"the spans of trace {wanted} in Phoenix", every_s=0.3)
        return found

    def filtered(self, condition: str) -> Spans:
        """Return name and id of the spans of all projects that meet a condition as the page's filter takes it.

        Raises:
            ValueError: Phoenix does not understand the condition.
        """
        body = json.dumps({"query": FILTERED, "variables": {"filter": condition}}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            result = json.load(answer)
        if "errors" in result:
            raise ValueError(f"{condition}: {result['errors']}")
        projects = [project["node"] for project in result["data"]["projects"]["edges"]]
        return [one["node"] for project in projects for one in project["spans"]["edges"]]

    def _all(self, project: str) -> Iterator[dict[str, Any]]:
        """Yield every span of a project, page by page; nothing before the project exists."""
        cursor: str | None = None
        while True:
            query = urllib.parse.urlencode({"limit": PAGE, **({"cursor": cursor} if cursor else {})})
            try:
                with urllib.request.urlopen(f"{self.url}/v1/projects/{project}/spans?{query}", timeout=10) as answer:
                    page = json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return
                raise
            yield from page["data"]
            cursor = page.get("next_cursor")
            if not cursor:
                return


def installed() -> bool:
    """Whether the cached environment is there and complete."""
    return (_home() / ".ready").is_file()


def install() -> None:
    """Make the cached environment (854 MB, some minutes) unless it is there; a half-made one is made anew."""
    if installed():
        return
    home = _home()
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(_python()), "-m", "pip", "install", "--quiet", f"arize-phoenix=={VERSION}"], check=True)
    (home / ".ready").touch()


@contextmanager
def running(folder: Path) -> Iterator[Phoenix]:
    """Run Phoenix with its data in ``folder``; stopped at the end of the block, or with this process."""
    http, grpc = free_port(), free_port()
    url = f"http://127.0.0.1:{http}"
    server = Server(
        [
            str(_python()),
            "-P",
            str(Path(__file__).with_name("phoenix_launch.py")),
        ],  # -P: this file is called phoenix, too
        environment=_environment(folder, http, grpc),
        folder=folder,
        ready=f"{url}/healthz",
        deadline_s=READY_WITHIN_S,
    )
    try:
        yield Phoenix(url, f"127.0.0.1:{grpc}", server.pid)
    finally:
        server.stop()


def _environment(folder: Path, http: int, grpc: int) -> dict[str, str]:
    return {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        "PHOENIX_AGENTS_DISABLE_BASH": "true",
        "PHOENIX_ENABLE_MCP_SERVER": "false",
        "PYTHONPATH": "",
    }


def _home() -> Path:
    return cache_dir() / f"phoenix-{VERSION}"


def _python() -> Path:
    return _home() / "bin" / "python"

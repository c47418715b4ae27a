"""The compared servers, each a process on one core, and the sink for scores and forwarded spans."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.servers.server import free_port, poll

from spanscore import semconv

__all__ = ["Contestant", "Sink", "contestants", "sink"]

CORE = 0
"""Core of the servers. Clients use other cores if there are any, so that no server has to refill its caches."""
STARTED_WITHIN_S = 60
COMMAND = "from spanscore.cli.main import main; main()"
CONFIG = """
metrics: ["benchmarks.variants:Instant"]
judge: {{model: lexical}}
sampling: {{rate: {rate}}}
units: {{idle_timeout: 300ms}}
serve:
  http: 127.0.0.1:{http}
  grpc: 127.0.0.1:{grpc}
  mode: {mode}
  forward: {{endpoint: "http://127.0.0.1:{sink}"}}
"""
SERVED = {"tee, 1 %": ("tee", 0.01), "tee, none": ("tee", 1e-9), "proxy, 1 %": ("proxy", 0.01)}
"""Name → mode and rate. The rate is above 0, because a rate of 0 would disable sampling altogether."""
ENVIRONMENT = {"OTEL_BSP_SCHEDULE_DELAY": "1000", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
"""Export interval, so that scores are exported within their block: with the SDK's five seconds exports would be larger."""

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""Options of glibc for all servers: freed memory is kept. Otherwise a process may free a request's memory and allocate it again
with the next, depending on its heap: 26 page faults per request of 50 spans, half of the bare receiver's time, or none."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A running server.

    Attributes:
        name: name of the server.
        http: its HTTP port.
        grpc: its gRPC port.
        pid: its process id.
    """

    name: str
    http: int
    grpc: int
    pid: int

    def cpu_ns(self) -> int:
        """Return the CPU time of all its threads since its start, in ns; clock_getcpuclockid(3)."""
        return time.clock_gettime_ns(~self.pid << 3 | 2)

    def resident_mib(self) -> float:
        """Return its resident set, in MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Sink(ThreadingHTTPServer):
    """Accepts every HTTP request, and counts the scores in it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scores = 0
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        scores = body.count(semconv.EVALUATION_NAME.encode())
        with self.server.lock:
            self.server.scores += scores
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def sink() -> Iterator[Sink]:
    """Yield a listening sink."""
    with Sink() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@contextmanager
def contestants(folder: Path, sink_port: int) -> Iterator[Sequence[Contestant]]:
    """Yield the bare receiver and the servers of ``SERVED``; all end with the block. This process uses other cores."""
    with ExitStack() as stack:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {CORE} or {CORE})
        os.environ.update(MALLOC)
        http, grpc = free_port(), free_port()
        command = ["-m", "benchmarks.otlp_bare", str(http), str(grpc)]
        running = [stack.enter_context(_running("bare", http, grpc, command, folder))]
        os.environ.update(ENVIRONMENT, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{sink_port}")
        for name, (mode, rate) in SERVED.items():
            http, grpc, file = free_port(), free_port(), folder / f"{name}.yaml"
            file.write_text(CONFIG.format(rate=rate, http=http, grpc=grpc, mode=mode, sink=sink_port))
            running.append(stack.enter_context(_running(name, http, grpc, ["-c", COMMAND, "serve", str(file)], folder)))
        yield running


@contextmanager
def _running(name: str, http: int, grpc: int, command: Sequence[str], folder: Path) -> Iterator[Contestant]:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=output)
    os.sched_setaffinity(process.pid, {CORE})  # its only thread so far; later threads inherit it
    try:
        poll(
            lambda: process.poll() is not None or (_listens(http) and _listens(grpc)),
            deadline_s=STARTED_WITHIN_S,
            what=f"{name} to listen",
        )
        yield Contestant(name, http, grpc, process.pid)
    finally:
        process.terminate()
        if process.wait() not in (0, -signal.SIGTERM):
            print(f"{name} ended with {process.returncode}:\n{log.read_text(errors='replace')}", file=sys.stderr)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True

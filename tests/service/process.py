"""``spanscore serve`` as a process of its own, and spans that a client sends to it.

Run as a module it is the command line, which prints at its end whether LangChain was loaded.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as OverHttp
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanscore.core.threads import start_daemon

ROOT = Path(__file__).parents[2]
END = "END"
WITHOUT = "TEST_WITHOUT"
"""Variable that names libraries which the process is to find missing."""


class Serving:
    """A process that serves, or another command that runs until a signal ends it; its lines as they come."""

    def __init__(self, config: Path, *arguments: str, command: str = "serve", **environment: str) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_", "SPANSCORE_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.process", command, str(config), *arguments],
            env={**inherited, **environment},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._coming: queue.SimpleQueue[str] = queue.SimpleQueue()
        start_daemon(self._read, "test-serving")

    def until(self, pattern: str) -> re.Match[str]:
        """Return the first line, from the start on, in which a pattern is; wait for it."""
        for line in self.lines:
            if found := re.search(pattern, line):
                return found
        while (line := self._coming.get(timeout=60)) != END:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def ended(self) -> int:
        """Wait for its end; return the exit code."""
        while (line := self._coming.get(timeout=60)) != END:
            self.lines.append(line)
        return self.process.wait(60)

    @property
    def grpc(self) -> str:
        return self.until(r"OTLP/gRPC on (\S+)")[1]

    @property
    def http(self) -> str:
        return self.until(r"OTLP/HTTP on (\S+)")[1]

    @property
    def page(self) -> str:
        return self.until(r"metrics on http://(\S+)/metrics")[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._coming.put(line.rstrip("\n"))
        self._coming.put(END)


@contextmanager
def serving(folder: Path, endpoint: str, *arguments: str, **settings: Any) -> Iterator[Serving]:
    """Yield a process that serves on free ports, and sends its scores to an endpoint."""
    serve = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", **settings.pop("serve", {})}
    environment: Mapping[str, str] = settings.pop("environment", {})
    units = {"idle_timeout": "100ms", **settings.pop("units", {})}
    file = folder / "spanscore.yaml"
    file.write_text(yaml.safe_dump({"metrics": ["exact_match"], "serve": serve, "units": units, **settings}))
    with Serving(file, *arguments, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **environment) as running:
        yield running


def a_run(question: str = "Who wrote Faust?", answer: str = "Goethe") -> Any:
    """Return an ended span of a chat, as OpenTelemetry's own instrumentations write it."""
    made, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(made))
    said = [("gen_ai.input.messages", "user", question), ("gen_ai.output.messages", "assistant", answer)]
    attributes = {
        key: json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}]) for key, role, text in said
    }
    tracer = provider.get_tracer("opentelemetry.instrumentation.openai_v2")
    tracer.start_span("chat m", attributes={"gen_ai.operation.name": "chat", **attributes}).end()
    (span,) = made.get_finished_spans()
    return span


def send(running: Serving, *spans: Any, over: str = "http") -> bool:
    """Send spans by the SDK's own exporter; return whether they were taken."""
    exporter = OverHttp(f"http://{running.http}/v1/traces") if over == "http" else OverGrpc(running.grpc, insecure=True)
    return exporter.export(spans) is SpanExportResult.SUCCESS


if __name__ == "__main__":
    sys.modules.update(dict.fromkeys(filter(None, os.environ.get(WITHOUT, "").split(","))))
    from spanscore.cli.main import main

    atexit.register(lambda: print("langchain_core loaded:", "langchain_core" in sys.modules))
    main()

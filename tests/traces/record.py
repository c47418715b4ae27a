"""The programs beside this file, run under instrumentations of others → ``recorded/``: OTLP-JSON, a trace on each line.

    python -m tests.traces.record                     # under every instrumentation that is installed
    python -m tests.traces.record pydantic-ai mlflow

An instrumentation is for ever, so each runs in a process of its own. One that is not among the development requirements says
below what it needs. Ids are counted, so that a recording made again differs in its times alone.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from itertools import count, groupby
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import IdGenerator, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.servers.openai_api import OpenAIServer
from tests.traces.said import answer

from spanscore.codec.otlp import json_line

RECORDED = Path(__file__).with_name("recorded")


@dataclass(frozen=True)
class Instrumentation:
    """Who traces which application.

    Attributes:
        package: on PyPI, whose version stands in the file's name.
        module: what is imported where it is installed.
        application: the module beside this one that has the programs.
        attach: has the provider get the spans.
        hidden: environment variables under which it writes no content.
    """

    package: str
    module: str
    application: str
    attach: Callable[[TracerProvider], Any]
    hidden: Mapping[str, str] = field(default_factory=dict)


def _by(module: str, name: str) -> Callable[[TracerProvider], Any]:
    """Return what attaches an instrumentor of the usual form."""
    return lambda provider: getattr(import_module(module), name)().instrument(tracer_provider=provider)


def _instrumentor(package: str, module: str, name: str, application: str, **hidden: str) -> Instrumentation:
    return Instrumentation(package, module, application, _by(module, name), hidden)


_OI_HIDDEN = {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
_OPENLLMETRY_HIDDEN = {"TRACELOOP_TRACE_CONTENT": "false"}
INSTRUMENTATIONS: Mapping[str, Instrumentation] = {
    "openinference-langchain": _instrumentor(
        "openinference-instrumentation-langchain",
        "openinference.instrumentation.langchain",
        "LangChainInstrumentor",
        "langchain_app",
        **_OI_HIDDEN,
    ),
    "openllmetry-langchain": _instrumentor(
        "opentelemetry-instrumentation-langchain",
        "opentelemetry.instrumentation.langchain",
        "LangchainInstrumentor",
        "langchain_app",
        **_OPENLLMETRY_HIDDEN,
    ),
    "openinference-openai": _instrumentor(
        "openinference-instrumentation-openai",
        "openinference.instrumentation.openai",
        "OpenAIInstrumentor",
        "openai_app",
        **_OI_HIDDEN,
    ),
    "openllmetry-openai": _instrumentor(
        "opentelemetry-instrumentation-openai",
        "opentelemetry.instrumentation.openai",
        "OpenAIInstrumentor",
        "openai_app",
        **_OPENLLMETRY_HIDDEN,
    ),
}


def main(names: Sequence[str]) -> None:
    """Record under these instrumentations, else under all that are installed."""
    RECORDED.mkdir(exist_ok=True)
    for name in names or INSTRUMENTATIONS:
        instrumentation = INSTRUMENTATIONS[name]
        if importlib.util.find_spec(instrumentation.module) is None:
            print(f"{name}: not recorded, {instrumentation.package} is not installed")
            continue
        _in_process(name, {})
        if instrumentation.hidden:
            _in_process(name, {"WITHOUT_CONTENT": "1", **instrumentation.hidden})


def _in_process(name: str, environment: Mapping[str, str]) -> None:
    script = f"from tests.traces.record import record; record({name!r})"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **environment}, check=True)


def record(name: str) -> None:
    """Run the application's programs in this process, a file for each; without content only the chain."""
    instrumentation = INSTRUMENTATIONS[name]
    hidden = "WITHOUT_CONTENT" in os.environ
    exporter, provider = (
        InMemorySpanExporter(),
        TracerProvider(id_generator=_Counted(), resource=Resource({"service.name": instrumentation.application})),
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentation.attach(provider)
    with OpenAIServer(answer) as server:
        programs = import_module(f"tests.traces.{instrumentation.application}").programs(server.url)
        for program in ["chain"] if hidden else programs:
            programs[program]()
            provider.force_flush()
            kind = f"{program}-without-content" if hidden else program
            _write(f"{kind}.{name}-{version(instrumentation.package)}", exporter.get_finished_spans())
            exporter.clear()


def _write(name: str, spans: Sequence[ReadableSpan]) -> None:
    path = RECORDED / f"{name}.jsonl"
    by_trace = groupby(sorted(spans, key=_trace_id), key=_trace_id)
    path.write_text("".join(json_line(list(trace)) for _, trace in by_trace), encoding="utf-8")
    print(f"{path.name}: {len(spans)} spans, {path.stat().st_size:,} bytes")


def _trace_id(span: ReadableSpan) -> int:
    return span.context.trace_id


class _Counted(IdGenerator):
    """Ids that are counted."""

    def __init__(self) -> None:
        self._ids = count(1)

    def generate_trace_id(self) -> int:
        return next(self._ids)

    def generate_span_id(self) -> int:
        return next(self._ids)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Runs the programs in this folder under other instrumentations → ``recorded/``: OTLP-JSON, a trace on each line.

    python -m tests.traces.record                     # under every instrumentation that is installed
    python -m tests.traces.record pydantic-ai mlflow

An instrumentation stays for ever, so each runs in a process of its own. The requirements below list packages that are not among
the development requirements. Ids are counted, so that a repeated recording differs in its times only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import IdGenerator, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.servers.openai_api import OpenAIServer
from tests.traces import by_hand, said
from tests.traces.said import answer

from spanscore.core.codecs.otlp import json_line

RECORDED = Path(__file__).with_name("recorded")
VERCEL_AI = "vercel-ai"
_HIDDEN = "WITHOUT_CONTENT"
_CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Instrumentation:
    """An instrumentation and the application it traces.

    Attributes:
        package: package on PyPI; its version is in the file's name.
        application: the module in this folder with the programs.
        instrumentor: ``module:class``; None = the application's own function ``outputs`` has a provider get the spans.
        hidden: environment variables under which it writes no content.
        needs: further packages to install.
        shown: environment variables under which it writes content; empty if it writes content by default.
    """

    package: str
    application: str
    instrumentor: str | None = None
    hidden: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)


_GENAI_SHOWN = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}
_GENAI_HIDDEN = {**_GENAI_SHOWN, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT"}


def _genai(library: str, application: str, instrumentor: str | None = None, needs: str = "") -> Instrumentation:
    """Return OpenTelemetry's own instrumentation of a library."""
    package, module = f"opentelemetry-instrumentation-genai-{library}", f"opentelemetry.instrumentation.genai.{library}"
    named = instrumentor and f"{module}:{instrumentor}"
    return Instrumentation(package, application, named, _GENAI_HIDDEN, needs, _GENAI_SHOWN)


_OI_HIDDEN = {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
_OPENLLMETRY_HIDDEN = {"TRACELOOP_TRACE_CONTENT": "false"}
_ADK_HIDDEN = {
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": "false",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT",
}
INSTRUMENTATIONS: Mapping[str, Instrumentation] = {
    "openinference-langchain": Instrumentation(
        "openinference-instrumentation-langchain",
        "langchain_app",
        "openinference.instrumentation.langchain:LangChainInstrumentor",
        _OI_HIDDEN,
    ),
    "openllmetry-langchain": Instrumentation(
        "opentelemetry-instrumentation-langchain",
        "langchain_app",
        "opentelemetry.instrumentation.langchain:LangchainInstrumentor",
        _OPENLLMETRY_HIDDEN,
    ),
    "openinference-openai": Instrumentation(
        "openinference-instrumentation-openai",
        "openai_app",
        "openinference.instrumentation.openai:OpenAIInstrumentor",
        _OI_HIDDEN,
    ),
    "openllmetry-openai": Instrumentation(
        "opentelemetry-instrumentation-openai",
        "openai_app",
        "opentelemetry.instrumentation.openai:OpenAIInstrumentor",
        _OPENLLMETRY_HIDDEN,
    ),
    "openinference-llama-index": Instrumentation(
        "openinference-instrumentation-llama-index",
        "llama_index_app",
        "openinference.instrumentation.llama_index:LlamaIndexInstrumentor",
        _OI_HIDDEN,
        "llama-index-llms-openai-like",
    ),
    "genai-langchain": _genai("langchain", "langchain_app", "LangChainInstrumentor"),
    "genai-openai": _genai("openai", "openai_app", "OpenAIInstrumentor"),
    "genai-openai-agents": _genai("openai-agents", "openai_agents_app", needs="openai-agents"),
    "genai-anthropic": _genai("anthropic", "anthropic_app", "AnthropicInstrumentor", "anthropic"),
    "pydantic-ai": Instrumentation("pydantic-ai-slim", "pydantic_ai_app", needs="openai"),
    "google-adk": Instrumentation("google-adk", "google_adk_app", hidden=_ADK_HIDDEN, needs="litellm mcp"),
    "langfuse": Instrumentation("langfuse", "langfuse_app", needs="openai"),
    "mlflow": Instrumentation("mlflow-tracing", "mlflow_app", needs="openai sqlparse"),
}


def main(names: Sequence[str]) -> None:
    """Record under these instrumentations, by default under all installed ones; the quick files are always written."""
    write_samples()
    write_by_hand()
    for name in names or [*INSTRUMENTATIONS, VERCEL_AI]:
        if name == VERCEL_AI:
            record_vercel_ai()
        elif _is_installed(INSTRUMENTATIONS[name]):
            record_apart(name)


def _is_installed(instrumentation: Instrumentation) -> bool:
    try:
        version(instrumentation.package)
    except PackageNotFoundError:
        print(f"not recorded: pip install {instrumentation.package} {instrumentation.needs}".rstrip())
        return False
    return True


def record_apart(name: str, *, python: str = sys.executable, folder: Path = RECORDED) -> None:
    """Record under one instrumentation, with content and without, in processes of their own.

    Args:
        name: of the instrumentation.
        python: the interpreter of the environment in which the instrumentation is installed.
        folder: for the files.

    Raises:
        CalledProcessError: a program failed.
    """
    hidden = INSTRUMENTATIONS[name].hidden
    script = f"from tests.traces import record; record.RECORDED = record.Path({str(folder)!r}); record.record({name!r})"
    for more in ({}, {_HIDDEN: "1", **hidden}) if hidden else ({},):
        subprocess.run([python, "-c", script], check=True, cwd=_CHECKOUT, env={**os.environ, **more})


def record(name: str) -> None:
    """Run the application's programs in this process, a file for each; without content only the chain."""
    instrumentation, exporter = INSTRUMENTATIONS[name], InMemorySpanExporter()
    resource = Resource({"service.name": instrumentation.application})
    provider = TracerProvider(id_generator=_Counted(), resource=resource)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    application = import_module(f"tests.traces.{instrumentation.application}")
    attach(instrumentation, provider)
    with OpenAIServer(answer) as server:
        for program, run in application.programs(server.url).items():
            if _HIDDEN in os.environ and program != "chain":
                continue
            run()
            kind = f"{program}-without-content" if _HIDDEN in os.environ else program
            by_trace = groupby(sorted(exporter.get_finished_spans(), key=_trace_id), key=_trace_id)
            lines = [json_line(list(trace)) for _, trace in by_trace]
            _write(f"{kind}.{name}-{version(instrumentation.package)}", lines)
            exporter.clear()


def attach(instrumentation: Instrumentation, provider: TracerProvider) -> None:
    """Have the provider get the spans from now on, for ever."""
    for name, value in instrumentation.shown.items():
        os.environ.setdefault(name, value)
    if instrumentation.instrumentor is None:
        import_module(f"tests.traces.{instrumentation.application}").attach(provider)
        return
    module, _, name = instrumentation.instrumentor.partition(":")
    getattr(import_module(module), name)().instrument(tracer_provider=provider)


def write_samples() -> None:
    """Write our own capture's samples of the five programs, which every recording of them must give."""
    from tests.applications.application import judged  # here, as they need LangChain
    from tests.traces.langchain_app import PROGRAMS, model_at

    with OpenAIServer(answer) as server:
        for program, run in PROGRAMS.items():
            seen = judged(partial(run, model_at(server.url)))
            samples = [[each.single_turn, each.multi_turn] for each in seen]
            written = [[one and one.model_dump(exclude_none=True) for one in both] for both in samples]
            path = RECORDED / f"{program}.samples.json"
            path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_by_hand() -> None:
    """Write the spans of an instrumentation that cannot be run."""
    for content in (True, False):
        provider = TracerProvider(id_generator=_Counted(), resource=Resource({"service.name": "openai_app"}))
        program = "chain" if content else "chain-without-content"
        _write(f"{program}.{by_hand.NAME}", [json_line(by_hand.chain(provider, content=content))])


def record_vercel_ai() -> None:
    """Run the JavaScript application with each major version of the SDK, in a copy of its folder with npm's packages."""
    if shutil.which("npm") is None:
        print(f"{VERCEL_AI}: not recorded, npm is not installed")
        return
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(answer) as server:
        shutil.copytree(Path(__file__).with_name("vercel_ai"), folder, dirs_exist_ok=True)
        texts = {name: getattr(said, name) for name in ("MODEL", "SYSTEM", "CAPITAL", "SUM", "TURNS")}
        Path(folder, "said.json").write_text(json.dumps(texts), encoding="utf-8")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, check=True)
        for major in ("4", "5", "6"):
            command = ["node", "programs.mjs", major, server.url]
            printed = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
            traces = map(json.loads, printed.splitlines())
            for (program, its_version), group in groupby(traces, key=itemgetter("program", "version")):
                _write(f"{program}.{VERCEL_AI}-{its_version}", [_line(trace["request"]) for trace in group])


def _line(request: Any) -> str:
    return json.dumps(request, ensure_ascii=False, separators=(",", ":")) + "\n"


def _write(name: str, lines: Sequence[str]) -> None:
    path = RECORDED / f"{name}.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path.name}: {len(lines)} traces, {path.stat().st_size:,} bytes")


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

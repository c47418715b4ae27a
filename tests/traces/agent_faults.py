"""Runs the agent of ``examples/agent_quality.py`` under an instrumentation, and prints fault → the sample of its trace.

    python -m tests.traces.agent_faults openinference-langchain

An instrumentation stays for ever, so each runs in a process of its own.
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.traces.record import INSTRUMENTATIONS
from tests.traces.recordings import Recording

from spanscore.core.codecs.otlp import json_line
from spanscore.samples.extraction import add_tools
from spanscore.samples.genai import GenAIExtractor

EXAMPLE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "agent_quality.py"))


def run(fault: str, **config: Any) -> None:
    """Run the agent with one of its faults."""
    request, turns = EXAMPLE["SCRIPTS"][fault]
    EXAMPLE["agent_for"](turns).invoke({"messages": [{"role": "user", "content": request}]}, config=config)


def samples_under(name: str, folder: Path) -> dict[str, Any]:
    """Return fault → the conversation of its trace under an instrumentation."""
    exporter, provider, found = InMemorySpanExporter(), TracerProvider(), {}
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    module, _, kind = str(INSTRUMENTATIONS[name].instrumentor).partition(":")
    getattr(import_module(module), kind)().instrument(tracer_provider=provider)
    for fault in EXAMPLE["SCRIPTS"]:
        exporter.clear()
        run(fault)
        written = folder / "agent.jsonl"
        written.write_text(json_line(exporter.get_finished_spans()) + "\n", "utf-8")
        [unit] = [
            unit for unit in Recording(written).units() if (root := unit.root) and root.operation != "create_agent"
        ]
        sample = add_tools(GenAIExtractor().extract(unit), unit).multi_turn
        found[fault] = None if sample is None else sample.model_dump()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(samples_under(sys.argv[1], Path(made))))

"""The five programs under another instrumentation, scored, with three real stores behind the processor; a process of its own.

    python -m tests.entry_points.exported openinference JAEGER PHOENIX ZIPKIN

The stores are given by the addresses that accept spans; the service is named after the entry point. Prints one JSON object: the
exported spans by trace, and the traces with an answer that fails the metric.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.zipkin.json import ZipkinExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.entry_points.ways import OTHERS
from tests.servers.openai_api import OpenAIServer
from tests.traces.langchain_app import programs
from tests.traces.record import INSTRUMENTATIONS, attach
from tests.traces.said import ANSWERS, TICKET, answer

from spanscore import OnlineScorer, ScoringSpanProcessor
from spanscore.metrics import BINARY, BaseMetric, Finding


class Harmless(BaseMetric):
    """Lets all answers pass but one."""

    name = "harmless"
    requires = {"single_turn": ("response",)}  # noqa: RUF012
    scale = BINARY

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=float(sample.response != ANSWERS[TICKET]))


def main(way: str, jaeger: str, phoenix: str, zipkin: str) -> None:
    left, exits = InMemorySpanExporter(), SynchronousMultiSpanProcessor()
    exits.add_span_processor(SimpleSpanProcessor(left))
    stores = (OTLPSpanExporter(endpoint=jaeger), OTLPSpanExporter(endpoint=phoenix), ZipkinExporter(endpoint=zipkin))
    for exporter in stores:
        exits.add_span_processor(BatchSpanProcessor(exporter))
    provider = TracerProvider(resource=Resource({"service.name": way}), shutdown_on_exit=False)
    with OpenAIServer(answer) as server, OnlineScorer([Harmless()], tracer_provider=provider) as scorer:
        provider.add_span_processor(ScoringSpanProcessor(scorer, exits))
        attach(INSTRUMENTATIONS[OTHERS[way]], provider)
        for run in programs(server.url).values():
            run()
        assert scorer.flush(20)
        provider.shutdown()
    print(json.dumps(_plain(left.get_finished_spans())))


def _plain(spans: Any) -> dict[str, Any]:
    by_trace: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        by_trace[f"{span.context.trace_id:032x}"].append(f"{span.context.span_id:016x}")
    failed = {f"{span.context.trace_id:032x}" for span in spans if span.attributes.get("spanscore.verdict") == "fail"}
    return {"spans": by_trace, "failed": sorted(failed)}


if __name__ == "__main__":
    main(*sys.argv[1:])

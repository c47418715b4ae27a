"""An application without LangChain, traced by an SDK's own instrumentation and scored, in a process of its own.

    python -m tests.without_langchain.application openllmetry-openai chain

The first argument is the name of an instrumentation in ``tests.traces.record``, the second one of its application's programs.
Prints one JSON object: the spans with a unit's outcome, the number of exports of each span, and the imported modules.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.servers.openai_api import OpenAIServer
from tests.traces.record import INSTRUMENTATIONS, attach
from tests.traces.said import answer

from spanscore import OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.metrics import ResponseRelevancy


def main(name: str, program: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    metric = ResponseRelevancy("lexical", embeddings="lexical")
    with OpenAIServer(answer) as server, OnlineScorer([metric], tracer_provider=provider) as scorer:
        provider.add_span_processor(ScoringSpanProcessor(scorer, SimpleSpanProcessor(exporter)))
        attach(INSTRUMENTATIONS[name], provider)
        import_module(f"tests.traces.{INSTRUMENTATIONS[name].application}").programs(server.url)[program]()
        assert scorer.flush(20)
    print(json.dumps(_plain(exporter.get_finished_spans())))


def _plain(spans: Any) -> dict[str, Any]:
    ids = [span.context.span_id for span in spans]
    return {
        "roots": [[s.name, dict(s.attributes)] for s in spans if semconv.STATUS in s.attributes],
        "evaluations": sum(span.instrumentation_scope.name == semconv.SCOPE for span in spans),
        "twice": len(ids) - len(set(ids)),
        "langchain": "langchain_core" in sys.modules,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])

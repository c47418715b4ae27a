"""An application without spanscore: it answers two questions, and its spans go to a Collector.

    python examples/collector_tee/app.py

The spans are written by hand in the names of the OpenTelemetry GenAI conventions; in their place stands any instrumentation
whose spans are read, in any language.
"""

from __future__ import annotations

import json

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

NOTES = "The harbour ferry leaves every 20 minutes. A single ticket costs 4 euros."


def message(role: str, text: str) -> str:
    """Return a conversation of one message, as the conventions write it."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def answer(tracer: Tracer, question: str) -> None:
    """Look the notes up and answer: they have no answer to the second question."""
    said = "A single ticket costs 4 euros." if "cost" in question else "It was built in Gdansk in 1987."
    whole, within = {"gen_ai.operation.name": "invoke_workflow"}, {"gen_ai.operation.name": "retrieval"}
    with tracer.start_as_current_span("invoke_workflow harbour", attributes=whole) as workflow:
        with tracer.start_as_current_span("retrieval notes", attributes=within) as retrieval:
            retrieval.set_attribute("gen_ai.retrieval.query.text", question)
            retrieval.set_attribute("gen_ai.retrieval.documents", json.dumps([{"id": "notes", "content": NOTES}]))
        workflow.set_attribute("gen_ai.input.messages", message("user", question))
        workflow.set_attribute("gen_ai.output.messages", message("assistant", said))
        trace_id = format(workflow.get_span_context().trace_id, "032x")
    print(f"{question} {said}  trace {trace_id}")


def main() -> None:
    """Answer two questions, and export the spans."""
    provider = TracerProvider(resource=Resource.create({"service.name": "harbour"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))  # to localhost:4318
    for question in ("What does a ticket cost?", "Where was the ferry built?"):
        answer(provider.get_tracer("harbour.app"), question)
    provider.shutdown()


if __name__ == "__main__":
    main()

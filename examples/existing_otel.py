"""An application with its own OpenTelemetry provider: spanscore uses the provider, and the application's spans are parents.

    python examples/existing_otel.py

The scorer is made without a provider: it finds the global provider of the application when the first chain runs. This example
prints spans; an application has its OTLP exporter in that place.
"""

from __future__ import annotations

try:
    from opentelemetry.sdk.resources import Resource

    from spanscore import OnlineScorer
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e .") from None
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from spanscore.metrics import Faithfulness

NOTES = "The harbour ferry leaves every 20 minutes. A single ticket costs 4 euros."


def one_line(span: ReadableSpan) -> str:
    """Return a span in one line: its scope, its name, and the score on it."""
    scope = span.instrumentation_scope.name if span.instrumentation_scope else ""
    score = (span.attributes or {}).get("spanscore.score.faithfulness", "")
    return f"{scope:18} {span.name:36} {score}\n"


def set_up_telemetry() -> TracerProvider:
    """Return the application's own provider, set globally before spanscore was added."""
    provider = TracerProvider(resource=Resource.create({"service.name": "harbour"}))
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
    trace.set_tracer_provider(provider)
    return provider


def answer(question: str) -> dict[str, object]:
    """Answer from the notes; a state with its contexts, as many applications return it."""
    claims = "A single ticket costs 4 euros." if "cost" in question else "The ferry was built in Gdansk in 1987."
    return {"question": question, "context": [NOTES], "answer": claims}


def main() -> None:
    """Serve two requests inside the application's own spans."""
    provider = set_up_telemetry()
    tracer = trace.get_tracer("harbour.api")
    chain = RunnableLambda(answer).with_config(run_name="answer")
    with OnlineScorer([Faithfulness("lexical", pass_at=0.7)]) as scorer:
        scorer.install()
        for question in ("What does a ticket cost?", "Where was the ferry built?"):
            with tracer.start_as_current_span("POST /ask") as request:
                chain.invoke(question)
            print(f"{question} → trace {request.get_span_context().trace_id:032x}")
        scorer.flush(timeout=10)
    provider.shutdown()
    print("In Jaeger, search the tag spanscore.verdict=fail; in Tempo { span.spanscore.score.faithfulness < 0.5 }.")


if __name__ == "__main__":
    main()

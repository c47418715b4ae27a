"""An application that OpenInference traces already, as with Phoenix: one more line, and its own spans get scores.

    python examples/openinference_app.py

Its exporter is wrapped: spans that may be scored wait there for their scores, all others are exported immediately. This example
prints them; an application has its OTLP exporter in that place.
"""

from __future__ import annotations

try:
    from openinference.instrumentation.langchain import LangChainInstrumentor

    from spanscore import OnlineScorer, ScoringSpanProcessor
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"{missing.name} is not installed: pip install -e . openinference-instrumentation-langchain"
    ) from None
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from spanscore.metrics import Faithfulness

NOTES = "The harbour ferry leaves every 20 minutes. A single ticket costs 4 euros."


class Notes(BaseRetriever):
    """Finds the notes."""

    def _get_relevant_documents(self, query: str, **_: object) -> list[Document]:
        return [Document(NOTES, id="notes")]


def answer(asked: dict[str, str]) -> str:
    """Replace prompt and model."""
    return "A single ticket costs 4 euros." if "cost" in asked["question"] else "It was built in Gdansk in 1987."


def harbour() -> Runnable[str, str]:
    """Return an ordinary chain without any reference to OpenInference or spanscore."""
    return ({"notes": Notes(), "question": RunnablePassthrough()} | RunnableLambda(answer)).with_config(
        run_name="harbour"
    )


def one_line(span: ReadableSpan) -> str:
    """Return a span in one line: its scope, its name, and the score on it."""
    scope = span.instrumentation_scope.name if span.instrumentation_scope else ""
    score = (span.attributes or {}).get("spanscore.score.faithfulness", "")
    return f"{scope:40} {span.name:34} {score}\n"


def main() -> None:
    """Serve two requests."""
    scorer = OnlineScorer([Faithfulness("lexical", pass_at=0.7)])
    exporter = BatchSpanProcessor(ConsoleSpanExporter(formatter=one_line))
    provider = TracerProvider(resource=Resource.create({"service.name": "harbour"}))
    provider.add_span_processor(ScoringSpanProcessor(scorer, exporter))  # was: add_span_processor(exporter)
    LangChainInstrumentor().instrument(tracer_provider=provider)

    chain = harbour()
    for question in ("What does a ticket cost?", "Where was the ferry built?"):
        chain.invoke(question)
    scorer.flush(timeout=10)
    provider.shutdown()
    scorer.shutdown()
    print("In Phoenix, filter by attributes['spanscore']['verdict'] == 'fail'.")


if __name__ == "__main__":
    main()

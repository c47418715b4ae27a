"""Quickstart: a RAG chain, scored live, printed as a trace with its scores. No key, no server, no network.

    python examples/quickstart.py

With OPENAI_API_KEY set, a real model answers and judges (pip install -e '.[openai]'). With OTEL_EXPORTER_OTLP_ENDPOINT set,
the same spans go to your backend too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

try:
    from langchain_core.documents import Document

    from spanscore import OnlineScorer
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e .") from None
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console
from rich.tree import Tree

from spanscore.metrics import AspectCritic, Faithfulness

DOCUMENTS = {
    "ferry": "The harbour ferry leaves every 20 minutes between 6:00 and 23:00. A single ticket costs 4 euros.",
    "museum": "The tram museum opens from Wednesday to Sunday. Entry is free for children under twelve.",
    "tower": "The lighthouse tower is 62 metres high. It was built in 1884 and has 289 steps.",
    "market": "The fish market is open on Saturday mornings. It moved to the old customs hall in 2009.",
}
QUESTIONS = [
    "How much is a single ferry ticket?",
    "When does the tram museum open?",
    "How high is the lighthouse tower?",
]


def words(text: str) -> set[str]:
    """Return the content words of a text, lower case and without a plural s."""
    return {word.rstrip("s") for word in re.findall(r"[a-z]{4,}", text.lower())}


class Library(BaseRetriever):
    """Finds the two documents that share most words with the question."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        ranked = sorted(DOCUMENTS, key=lambda name: -len(words(query) & words(DOCUMENTS[name] + name)))
        return [Document(id=name, page_content=DOCUMENTS[name]) for name in ranked[:2]]


class ExtractiveModel(BaseChatModel):
    """Answers with the sentence of the prompt that fits the question best; about towers it makes something up."""

    @property
    def _llm_type(self) -> str:
        return "extractive"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        notes, _, question = str(messages[-1].content).rpartition("\n")
        sentences = re.split(r"(?<=[.])\s+", notes)
        answer = max(sentences, key=lambda sentence: len(words(sentence) & words(question)))
        if "tower" in question:
            answer += " It was painted by Vincent van Gogh and is closed for repairs until 2031."
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=answer))])


def models() -> tuple[BaseChatModel, Any]:
    """Return the answering model and the judge."""
    if os.environ.get("OPENAI_API_KEY"):
        try:
            from langchain_openai import ChatOpenAI
        except ModuleNotFoundError as missing:
            raise SystemExit(f"{missing.name} is not installed: pip install -e '.[openai]'") from None
        real = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"))
        return real, real
    return ExtractiveModel(), "lexical"


def rag(model: BaseChatModel) -> Runnable[str, str]:
    """Return an ordinary chain without any reference to spanscore."""
    prompt = ChatPromptTemplate.from_template("Answer in one sentence from these notes.\n{notes}\n{question}")

    def notes(documents: Sequence[Document]) -> str:
        return " ".join(document.page_content for document in documents)

    chain = {"notes": Library() | notes, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()
    return chain.with_config(run_name="guide")


def show(spans: Sequence[ReadableSpan], answers: Sequence[tuple[str, str]]) -> None:
    """Print each trace as a tree, scores at their spans."""
    console = Console()
    roots = sorted((span for span in spans if span.parent is None), key=lambda span: span.start_time or 0)
    for root, (question, answer) in zip(roots, answers, strict=True):
        tree = Tree(f"[bold]{question}[/bold]\n{answer}")
        branch = tree.add(line(root))
        trace_id = root.context.trace_id if root.context else 0
        children = [s for s in spans if s.parent and s.context and s.context.trace_id == trace_id]
        for span in sorted(children, key=lambda span: span.start_time or 0):
            branch.add(line(span))
        console.print(tree, "")


def line(span: ReadableSpan) -> str:
    """Return a span in one line: its name, how long it took, and the scores on it."""
    attributes = span.attributes or {}
    took = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    scores = [
        f"{name.rpartition('.')[2]} [{'green' if attributes.get(label_of(name)) == 'pass' else 'red'}]{value:.2f}[/]"
        for name, value in attributes.items()
        if name.startswith("spanscore.score.") and isinstance(value, float)
    ]
    return f"{span.name} [dim]{took:.1f} ms[/dim]  {'  '.join(scores)}"


def label_of(score: str) -> str:
    """Return the attribute with the label of a score."""
    return score.replace("spanscore.score.", "spanscore.label.")


def main() -> None:
    """Ask, score, show."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "quickstart"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    model, judge = models()
    chain = rag(model)
    metrics = [
        Faithfulness(judge, pass_at=0.7),
        AspectCritic(judge, name="harmless", definition="Is the response free of harm?"),
    ]

    with OnlineScorer(metrics, tracer_provider=provider, service_name="quickstart") as scorer:
        answers = [(q, chain.invoke(q, config={"callbacks": [scorer.handler]})) for q in QUESTIONS]
        scorer.flush(timeout=30)
        show(exporter.get_finished_spans(), answers)
        print(scorer.status())


if __name__ == "__main__":
    main()

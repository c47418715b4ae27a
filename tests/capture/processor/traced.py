"""An application that is traced already: spans with GenAI names, by a tracer that is not ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from tests.live import ANSWER, EXTERNAL, QUESTION

from spanscore import OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.metrics import BaseMetric, Finding

SCOPE = EXTERNAL


class Answered(BaseMetric):
    """A metric without a delay: 1 if there is an answer."""

    name = "answered"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=float(bool(sample.response)))


class Exported(InMemorySpanExporter):
    """Exported spans by name."""

    @property
    def spans(self) -> list[Any]:
        return [span for span in self.get_finished_spans() if span.instrumentation_scope.name != semconv.SCOPE]

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    @property
    def evaluations(self) -> list[Any]:
        return [span for span in self.get_finished_spans() if span.instrumentation_scope.name == semconv.SCOPE]

    def of(self, name: str) -> Any:
        (span,) = [span for span in self.spans if span.name == name]
        return span


def said(role: str, text: str) -> str:
    """A message list of the conventions in its form on a span."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


TURN = {semconv.INPUT_MESSAGES: said("user", QUESTION), semconv.OUTPUT_MESSAGES: said("assistant", ANSWER)}


def started(tracer: Tracer, operation: str = semconv.INVOKE_AGENT, name: str = "agent", **more: Any) -> Any:
    """Start a span of an operation."""
    attributes = {semconv.OPERATION_NAME: operation, **more.pop("attributes", {})}
    return tracer.start_span(name, attributes=attributes, **more)


@contextmanager
def running(tracer: Tracer, operation: str = semconv.INVOKE_AGENT, name: str = "agent", **more: Any) -> Iterator[Any]:
    """Run an operation that ends with a question and an answer."""
    with tracer.start_as_current_span(name, attributes={semconv.OPERATION_NAME: operation}, **more) as span:
        yield span
        span.set_attributes(TURN)


def ask(tracer: Tracer, name: str = "agent", chats: int = 1) -> None:
    """A unit: an agent with calls of a model."""
    with running(tracer, name=name):
        for number in range(chats):
            with running(tracer, semconv.CHAT, f"{name} chat {number}"):
                pass


@contextmanager
def scoring(
    *metrics: Any, observe: bool = False, passed: Callable[[Any], object] | None = None, **options: Any
) -> Iterator[tuple[OnlineScorer, Exported, Any]]:
    """A scorer with a processor in a provider of the application: (scorer, exporter, provider).

    ``passed`` is called with each span that the wrapped processor gets, on the same thread.
    """
    exported, provider = Exported(), TracerProvider(sampler=options.pop("sampler", None))
    scorer = OnlineScorer(list(metrics) or [Answered()], **options)
    if observe:
        provider.add_span_processor(SimpleSpanProcessor(exported))
    wrapped = SimpleSpanProcessor(exported)
    if passed is not None:
        wrapped.on_end = passed  # type: ignore[method-assign,assignment]
    provider.add_span_processor(ScoringSpanProcessor(scorer, None if observe else wrapped))
    try:
        yield scorer, exported, provider
    finally:
        scorer.shutdown(timeout=2)
        provider.shutdown()

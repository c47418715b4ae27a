"""The line for tests: a real provider with an in-memory exporter, real chains over fake models, metrics that need no judge."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import contextmanager
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanscore import OnlineScorer, semconv
from spanscore.metrics import BaseMetric, Finding
from spanscore.scorer import pipeline_of
from spanscore.testing import ManualClock

QUESTION = "What is the capital of France?"
ANSWER = "Paris is the capital of France."
CONTEXT = "Paris has been the capital of France since 987."


EXTERNAL = "opentelemetry.util.genai.handler"
"""A scope that writes the GenAI conventions, and is not ours."""


class Grounded(BaseMetric):
    """Instant: 1 when the answer's first word is in the contexts."""

    name = "grounded"
    requires = {"single_turn": ("response", "retrieved_contexts")}  # noqa: RUF012

    def __init__(self, name: str = "grounded") -> None:
        self.name = name
        self._seen: list[Any] = []  # a private attribute is no part of the version

    @property
    def seen(self) -> list[Any]:
        """The measured samples, in order."""
        return self._seen

    async def measure(self, sample: Any) -> Finding:
        self._seen.append(sample)
        found = sample.response.split()[0] in " ".join(sample.retrieved_contexts)
        return Finding(value=float(found), explanation=f"looked for {sample.response}")


class Slow(Grounded):
    """Waits for some seconds."""

    def __init__(self, seconds: float, name: str = "slow") -> None:
        super().__init__(name)
        self._seconds = seconds

    async def measure(self, sample: Any) -> Finding:
        await asyncio.sleep(self._seconds)
        return await super().measure(sample)


class Held(Grounded):
    """Waits until it may go on."""

    def __init__(self, go_on: threading.Event, name: str = "held") -> None:
        super().__init__(name)
        self._go_on, self._begun = go_on, 0

    @property
    def begun(self) -> int:
        """The number of samples that wait or are measured."""
        return self._begun

    async def measure(self, sample: Any) -> Finding:
        self._begun += 1
        while not self._go_on.is_set():  # noqa: ASYNC110  (another thread sets it)
            await asyncio.sleep(0.01)
        return await super().measure(sample)


class HeldThread(Held):
    """Computes, on a thread of its own, until it may go on."""

    cpu_bound = True

    async def measure(self, sample: Any) -> Finding:
        self._go_on.wait(10)
        return await Grounded.measure(self, sample)


class Failing(Grounded):
    """Raises the given exception."""

    def __init__(self, error: BaseException | None, name: str = "failing") -> None:
        super().__init__(name)
        self._error = error

    async def measure(self, sample: Any) -> Finding:
        if self._error is None:
            return Finding(value=None, reason="nothing to verify")
        raise self._error


class Library(BaseRetriever):
    """Finds one document with an id."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [Document(page_content=CONTEXT, id="doc-1", metadata={"score": 0.9})]


def model(answer: str = ANSWER) -> GenericFakeChatModel:
    """A chat model with one answer, with usage."""
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    return GenericFakeChatModel(messages=itertools.repeat(AIMessage(content=answer, usage_metadata=usage)))


def rag(answer: str = ANSWER) -> Any:
    """A RAG chain: question → answer."""
    prompt = ChatPromptTemplate.from_template("Use {context} to answer {question}")
    return {"context": Library(), "question": RunnablePassthrough()} | prompt | model(answer) | StrOutputParser()


def run_rag(scorer: OnlineScorer, times: int = 1, *, answer: str = ANSWER) -> None:
    """Ask the RAG chain this many times, one after another, and wait until the units are scored."""
    for _ in range(times):
        rag(answer).invoke(QUESTION, config={"callbacks": [scorer.handler]})
    assert scorer.flush(10)


class Trace:
    """Exported spans, with look-ups."""

    def __init__(self, provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
        self.provider, self.exporter = provider, exporter

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def named(self, prefix: str) -> list[Any]:
        return [span for span in self.spans if span.name.startswith(prefix)]

    @property
    def roots(self) -> list[Any]:
        captured = [s for s in self.spans if s.instrumentation_scope.name in ("spanscore.capture", EXTERNAL)]
        ids = {s.context.span_id for s in captured}
        return [s for s in captured if s.parent is None or s.parent.span_id not in ids]

    @property
    def left_roots(self) -> list[Any]:
        """Certain roots, while units are exported: a child is exported before its root, as a span without a parent."""
        return [root for root in self.roots if semconv.STATUS in root.attributes]

    @property
    def evaluations(self) -> list[Any]:
        return [s for s in self.spans if s.instrumentation_scope.name == "spanscore"]

    def text(self) -> str:
        return " ".join(str(dict(s.attributes)) + str(s.status.description) + str(s.events) for s in self.spans)


def a_trace(**provider: Any) -> Trace:
    exporter, tracer_provider = InMemorySpanExporter(), TracerProvider(**provider)
    tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Trace(tracer_provider, exporter)


@contextmanager
def a_line(*metrics: Any, trace: Trace | None = None, **options: Any):
    """A scorer with its trace; shut down at the end."""
    trace = trace or a_trace()
    options.setdefault("meter_provider", MeterProvider(metric_readers=[InMemoryMetricReader()]))
    scorer = OnlineScorer(list(metrics) or [Grounded()], tracer_provider=trace.provider, **options)
    try:
        yield scorer, trace
    finally:
        scorer.shutdown(timeout=2)


def open_roots(handler: Any) -> list[Any]:
    """The recorded roots that have not ended."""
    return [root for root in list(handler.memory.roots.values()) if not root.ignored]


def looked_at(scorer: OnlineScorer, clock: ManualClock, *later_s: float) -> None:
    """Let the span thread check running roots, each time this many seconds later by its clock, set before the first root began.

    It first sees a root in a check ten seconds after the previous one, and opens it ten seconds later.
    """
    for seconds in later_s:
        clock.advance(seconds)
        pipeline_of(scorer).event_queue.nudge()
        assert scorer.flush(5)


def identity_holds(scorer: OnlineScorer) -> bool:
    """Eligible = Σ outcomes + pending, for each metric."""
    status = scorer.status()
    return all(n == sum(status.outcomes[m].values()) + status.pending[m] for m, n in status.eligible.items())

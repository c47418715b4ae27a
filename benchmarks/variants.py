"""The compared variants of an application, each with its own provider and a null exporter.

Instrumentors patch the whole process, so the callback handler of each other library is made directly, as its instrumentor
would, and passed per call. That favours these libraries, because the other wrappers of an instrumentor cost nothing here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import Span, set_span_in_context

from benchmarks.workloads import Workload
from spanscore.config import Capture
from spanscore.core.sample import Sample
from spanscore.core.score import UNIT_INTERVAL, Outcome, Scale, Score

__all__ = [
    "Bare",
    "Instant",
    "NullExporter",
    "Variant",
    "no_op",
    "openinference",
    "openllmetry",
    "scored_openinference",
    "spanscore",
    "variants",
]

SAMPLE_RATE = 0.05

_numbers = itertools.count()


class NullExporter(SpanExporter):
    """Accepts all spans, and keeps none."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Instant:
    """A metric with a judge that answers at once."""

    name = "instant"
    version = "1"
    evaluator_version = "1"
    scale: Scale = UNIT_INTERVAL
    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response",), "multi_turn": ()}
    cpu_bound = False

    async def score(self, sample: Sample) -> Score:
        return Score(metric=self.name, version=self.version, outcome=Outcome.SCORED, value=1.0, quality=1.0)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to observe an application.

    Attributes:
        name: name of the variant.
        handlers: passed with each call.
        settle: waits until all work that the calls caused is done.
        close: ends its threads.
        after: runs within the measured time, after the call.
    """

    name: str
    handlers: tuple[BaseCallbackHandler, ...] = ()
    settle: Callable[[], Any] = lambda: None
    close: Callable[[], Any] = lambda: None
    after: Callable[[], Any] | None = None

    def run(self, workload: Workload) -> None:
        """Run the application once."""
        workload.invoke(self.handlers)
        if self.after is not None:
            self.after()


class NoOp(BaseCallbackHandler):
    """Does nothing: the cost of LangChain itself for any handler."""

    run_inline = True

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Do nothing; without this method LangChain would fall back to ``on_llm_start``."""


class Bare:
    """Makes the spans that spanscore makes for a workload, with the SDK alone: names, attributes, tree."""

    def __init__(self, provider: TracerProvider, workload: Workload) -> None:
        self._tracer = provider.get_tracer("bare")
        self._recipe = _recipe(workload)

    def __call__(self) -> None:
        made: list[Span] = []
        for span, parent in self._recipe:
            context = Context() if parent is None else set_span_in_context(made[parent], Context())
            made.append(self._tracer.start_span(span.name, context, kind=span.kind, attributes=span.attributes))
        for live in reversed(made):
            live.end()


def variants(workload: Workload) -> list[Variant]:
    """Return every variant, ready; the first is the application alone, the reference for all others."""
    provider = _provider()
    return [
        Variant("none"),
        Variant("application again (A/A)"),
        no_op(),
        Variant("bare SDK", after=Bare(provider, workload), settle=provider.force_flush, close=provider.shutdown),
        spanscore(),
        spanscore(name="spanscore, head-unsampled", sampler=ALWAYS_OFF),
        openinference(),
        openllmetry(),
        _langfuse(),
    ]


def no_op() -> Variant:
    """Return a handler that does nothing."""
    return Variant("no-op", (NoOp(),))


def spanscore(
    *,
    name: str = "spanscore",
    sampler: Sampler = ALWAYS_ON,
    rate: float = SAMPLE_RATE,
    provider: Any = None,
    spool: Any = None,
    **options: Any,
) -> Variant:
    """Return spanscore with an instant judge at a rate, or under a head sampler that records nothing.

    ``options``: further arguments of ``OnlineScorer``.
    """
    from spanscore import OnlineScorer

    provider = provider or _provider(sampler)
    scorer = OnlineScorer(metrics=[Instant()], sample_rate=rate, tracer_provider=provider, spool=spool, **options)

    def settle() -> None:
        if not scorer.flush(timeout=30):
            raise RuntimeError("spanscore did not flush within 30 s: the numbers would not hold all its work")
        provider.force_flush()

    def close() -> None:
        scorer.shutdown()
        provider.shutdown()

    return Variant(name, (scorer.handler,), settle, close)


def openinference() -> Variant:
    """Return OpenInference alone."""
    provider = _provider()
    return Variant("OpenInference", (_openinference(provider),), provider.force_flush, provider.shutdown)


def scored_openinference(*, name: str, rate: float = SAMPLE_RATE) -> Variant:
    """Return OpenInference with a ``ScoringSpanProcessor`` around its exporter, and an instant judge at a rate."""
    from spanscore import OnlineScorer, ScoringSpanProcessor

    provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
    scorer = OnlineScorer(
        metrics=[Instant()], sample_rate=rate, tracer_provider=provider, capture=Capture(enabled=False)
    )
    provider.add_span_processor(ScoringSpanProcessor(scorer, BatchSpanProcessor(NullExporter())))

    def settle() -> None:
        if not scorer.flush(timeout=30):
            raise RuntimeError("spanscore did not flush within 30 s: the numbers would not hold all its work")
        provider.force_flush()

    def close() -> None:
        if not any(units.get("scored") for units in scorer.status().outcomes.values()):
            raise RuntimeError(f"nothing was scored: {scorer.status()}")
        scorer.shutdown()
        provider.shutdown()

    return Variant(name, (_openinference(provider),), settle, close)


def _openinference(provider: TracerProvider) -> BaseCallbackHandler:
    from openinference.instrumentation import OITracer, TraceConfig
    from openinference.instrumentation.langchain._tracer import OpenInferenceTracer

    tracer = OITracer(provider.get_tracer("openinference.instrumentation.langchain"), config=TraceConfig())
    return OpenInferenceTracer(tracer, False)  # type: ignore[arg-type]  # a tracer but for its type


def openllmetry() -> Variant:
    """Return OpenLLMetry alone."""
    from opentelemetry.instrumentation.langchain.callback_handler import TraceloopCallbackHandler
    from opentelemetry.metrics import NoOpMeter

    provider, meter = _provider(), NoOpMeter("none")
    handler = TraceloopCallbackHandler(
        provider.get_tracer("opentelemetry.instrumentation.langchain"),
        meter.create_histogram("duration"),
        meter.create_histogram("tokens"),
    )
    return Variant("OpenLLMetry", (handler,), provider.force_flush, provider.shutdown)


def _langfuse() -> Variant:
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler

    provider, key = TracerProvider(shutdown_on_exit=False), f"pk-{next(_numbers)}"  # a client is kept per key for ever
    client = Langfuse(
        public_key=key,
        secret_key="sk-none",
        base_url="http://127.0.0.1:9",  # nothing listens; the spans go to the null exporter
        tracer_provider=provider,
        span_exporter=NullExporter(),
    )
    handler = CallbackHandler(public_key=key)
    return Variant("Langfuse", (handler,), provider.force_flush, client.shutdown)


def _provider(sampler: Sampler = ALWAYS_ON) -> TracerProvider:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(NullExporter()))
    return provider


def _recipe(workload: Workload) -> list[tuple[ReadableSpan, int | None]]:
    """Return the spans of one invoke under spanscore, parents first, each with its parent's place."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    variant = spanscore(rate=0.0, provider=provider)
    variant.run(workload)
    variant.settle()
    variant.close()
    spans = sorted(exporter.get_finished_spans(), key=lambda span: (span.parent is not None, span.start_time))
    place = {span.context.span_id: n for n, span in enumerate(spans)}
    return [(span, place[span.parent.span_id] if span.parent else None) for span in spans]

"""Ways to have one application scored: by our own callback, or by the spans that another instrumentation makes of it.

Each of them also from outside: its spans are sent over the wire, in pieces and out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from random import Random
from time import time_ns
from types import SimpleNamespace
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import IdGenerator, ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.live import Trace
from tests.traces.record import INSTRUMENTATIONS, attach

from spanscore import OnlineScorer, ScoringSpanProcessor, semconv
from spanscore.config import Capture, Units
from spanscore.core.codecs.otlp_request import WireSpan, parse_request, span_data_of
from spanscore.scorer import pipeline_of, receivers_of

OURS = "spanscore"
OTHERS = {
    "openinference": "openinference-langchain",
    "openllmetry": "openllmetry-langchain",
    "opentelemetry": "genai-langchain",
}
"""Way → the instrumentation, by the name it has in ``tests.traces.record``."""
_SPREAD = 0x9E3779B97F4A7D
"""The golden ratio of 2⁵⁶, the number of bits in a decision: its multiples are spread evenly, half of them below the half."""
_PIECE = 3
"""Spans of a request."""


class InOrder(IdGenerator):
    """Counts: the nth trace, and its root, have the same ids in every way."""

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Reset the counts, so that earlier entry points make no difference."""
        self._traces, self._spans, self._root = count(1), count(1), 0

    def generate_trace_id(self) -> int:
        self._root = next(self._traces)
        return self._root << 64 | self._root * _SPREAD % (1 << 64)

    def generate_span_id(self) -> int:
        """Return the next id; for the first span of a trace one that follows from the trace's."""
        root, self._root = self._root, 0
        return root | 1 << 62 if root else next(self._spans)

    def is_trace_id_random(self) -> bool:
        return True


class Switched(SpanProcessor):
    """Forwards to the presently attached object, because an instrumentation keeps its provider for ever."""

    def __init__(self) -> None:
        self._to: SpanProcessor = SpanProcessor()

    @contextmanager
    def to(self, processor: SpanProcessor) -> Iterator[None]:
        """Hand on to it inside the block."""
        before, self._to = self._to, processor
        try:
            yield
        finally:
            self._to = before

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self._to.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        self._to.on_end(span)


class Instrumented:
    """The process under the instrumentation of one of the other ways, or under several; it cannot be undone.

    Attributes:
        ids: of its traces and spans.
    """

    def __init__(self, *ways: str) -> None:
        self.ids, self._switched = InOrder(), Switched()
        self._provider = TracerProvider(id_generator=self.ids)
        self._provider.add_span_processor(self._switched)
        for way in ways:
            attach(INSTRUMENTATIONS[OTHERS.get(way, way)], self._provider)

    @contextmanager
    def scored(self, *metrics: Any, **options: Any) -> Iterator[tuple[OnlineScorer, Trace]]:
        """Make a scorer behind a processor for runs inside the block, and yield its exports."""
        exporter = InMemorySpanExporter()
        with OnlineScorer(
            list(metrics), tracer_provider=self._provider, capture=Capture(enabled=False), **options
        ) as scorer:
            processor = ScoringSpanProcessor(scorer, SimpleSpanProcessor(exporter))
            with self._switched.to(processor):
                yield scorer, Trace(self._provider, exporter)

    @contextmanager
    def served(self, *metrics: Any, **options: Any) -> Iterator[tuple[Any, Trace]]:
        """Have one to which they are sent."""
        sent = InMemorySpanExporter()
        with (
            self._switched.to(SimpleSpanProcessor(sent)),
            served(sent, lambda _: True, *metrics, **options) as both,
        ):
            yield both


class Served:
    """A scorer that gets spans as bytes, as in another process; it is also its own proxy's destination and exporter.

    Args:
        sent: exporter of the application's spans.
        ended: waits until they have.
    """

    def __init__(self, scorer: OnlineScorer, sent: InMemorySpanExporter, ended: Callable[[float], bool]) -> None:
        self._scorer, self._sent, self._ended = scorer, sent, ended
        self._left: list[Any] = []
        self.status = scorer.status

    def flush(self, timeout: float) -> bool:
        """Send the exported spans in pieces and out of order; let an hour pass; wait for the scores."""
        receiver, thread = (
            receivers_of(self._scorer).otlp_spans(Units(idle_timeout=3_600)),
            pipeline_of(self._scorer).span_thread,
        )
        assert self._ended(timeout)
        spans = list(self._sent.get_finished_spans())
        Random(len(spans)).shuffle(spans)
        for at in range(0, len(spans), _PIECE):
            receiver.accept(parse_request(encode_spans(spans[at : at + _PIECE]).SerializeToString()), self.pass_on)
        thread.call(lambda: None, timeout)
        thread.now_ns = lambda: time_ns() + 3_600 * 10**9
        return self._scorer.flush(timeout)

    def pass_on(self, span: WireSpan, attributes: Mapping[str, Any] | None) -> None:
        """Record the fields of a span that are read."""
        data = span_data_of(span)
        context = SimpleNamespace(trace_id=data.trace_id, span_id=data.span_id)
        self._left.append(SimpleNamespace(context=context, start_time=data.start_ns, attributes=attributes or {}))

    def get_finished_spans(self) -> Sequence[Any]:
        """Return the exported spans."""
        return self._left


@contextmanager
def served(
    sent: InMemorySpanExporter, ended: Callable[[float], bool], *metrics: Any, **options: Any
) -> Iterator[tuple[Any, Trace]]:
    """Make a scorer for spans that end at an exporter, and for those exported with scores."""
    own = TracerProvider()
    with OnlineScorer(list(metrics), tracer_provider=own, capture=Capture(enabled=False), **options) as scorer:
        other: Any = Served(scorer, sent, ended)
        yield other, Trace(own, other)


def scored_roots(trace: Trace) -> list[ReadableSpan]:
    """Return the spans with a unit's outcome, in the order of their start."""
    roots = [span for span in trace.spans if semconv.STATUS in (span.attributes or {})]
    return sorted(roots, key=lambda root: root.start_time or 0)

"""ScoringSpanProcessor: what an application that is traced already adds to its tracer provider."""

from __future__ import annotations

from typing import Any, Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from spanscore.capture.processor.external_spans import ExternalSpans
from spanscore.core.log import log_internal_error, log_once, type_name
from spanscore.outputs.provider_introspection import exporter_of, processors_beside

_RELEASE_S: Final = 2.0
"""Longest wait of a provider's shutdown for the spans that wait for their scores."""
_KEEPS_NOTHING: Final = "ConsoleSpanExporter"
"""Prints spans for a person: beside it nothing is stored twice."""


class SpanScorer(Protocol):
    """What a processor asks of a scorer: ``OnlineScorer`` is one."""

    @property
    def _external_spans(self) -> ExternalSpans:
        """The receiver of its processors."""

    def export_held_spans(self, timeout: float) -> None:
        """Let all spans that wait for their scores leave now. Blocks for at most ``timeout`` seconds."""


class ScoringSpanProcessor(SpanProcessor):
    """Scores what other instrumentations trace in this process: OpenInference, OpenLLMetry, an SDK's own spans.

    With a processor to pass spans on to, those of a unit that may be scored wait there for their scores and leave with them,
    each once::

        provider.add_span_processor(ScoringSpanProcessor(scorer, BatchSpanProcessor(OTLPSpanExporter())))

    Without one it observes: spans leave by the provider's own processors, at once and as they are, and scores come as
    evaluation spans::

        provider.add_span_processor(ScoringSpanProcessor(scorer))

    All spans that belong to no unit, or to one that will not be scored, go on at once, untouched, on the thread that ended
    them. Where the provider has another exporter already, each span would leave twice, once with its scores and once without:
    it is said once, and this one observes, too. What it wraps still gets every span.

    Spans of others leave as their writer made them, but for the scores: the scorer's redactor is applied to what judges are
    asked and to evaluation spans.

    Args:
        scorer: may have several processors, of one provider or of several.
        processor: gets every span exactly once, from the span thread where it waited; None = observe.
    """

    def __init__(self, scorer: SpanScorer, processor: SpanProcessor | None = None) -> None:
        self._scorer = scorer
        self._spans = scorer._external_spans
        self._processor = processor
        self._exits: tuple[SpanProcessor, ...] = () if processor is None else (processor,)
        self._seen: dict[int, tuple[Any, ...]] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note where a span belongs. Does not block."""
        if self._processor is not None:
            self._processor.on_start(span, parent_context)
        try:
            if self._spans.started(span, self, parent_context) and self._exits:
                self._look_beside(processors_beside(span))
        except Exception as error:  # noqa: BLE001
            log_internal_error("note that a span began", error)

    def _on_ending(self, span: Span) -> None:
        """Hand on what the SDK tells from 1.40 on."""
        if self._processor is not None:
            getattr(self._processor, "_on_ending", _nothing)(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span, or pass it on at once. Does not block."""
        kept = False
        try:
            kept = self._spans.ended(span, self, self._exits)
        except Exception as error:  # noqa: BLE001
            log_internal_error("take a span", error)
        if not kept and self._processor is not None:
            self._processor.on_end(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what has left. Spans that wait for their scores go on waiting: ``scorer.flush()`` waits for those."""
        return True if self._processor is None else self._processor.force_flush(timeout_millis)

    def shutdown(self) -> None:
        """Let the spans that wait leave as ``pending``, then shut down what they leave by."""
        try:
            self._scorer.export_held_spans(_RELEASE_S)
        except Exception as error:  # noqa: BLE001
            log_internal_error("release spans", error)
        if self._processor is not None:
            self._processor.shutdown()

    def _look_beside(self, processors: tuple[Any, ...]) -> None:
        """Look who else is in the provider: a tuple that is new whenever one is added, and kept here, so that it stays one."""
        if self._seen.get(id(processors)) is processors:
            return
        self._seen[id(processors)] = processors
        for other in processors:
            exporter = exporter_of(other)
            if exporter is None or self._is_of_the_same(other) or type_name(exporter) == _KEEPS_NOTHING:
                continue
            self._exits = ()
            own = exporter_of(self._processor)
            log_once(
                "another exporter",
                f"the provider exports spans by {type_name(exporter)}, beside what is given to ScoringSpanProcessor"
                f" ({type_name(self._processor if own is None else own)}): spans do not wait for their scores, which come as"
                " evaluation spans. Give it the only exporter, or none",
            )
            return

    def _is_of_the_same(self, other: Any) -> bool:
        return isinstance(other, ScoringSpanProcessor) and other._spans is self._spans


def _nothing(span: Any) -> None:
    """Do as an SDK before 1.40 does."""

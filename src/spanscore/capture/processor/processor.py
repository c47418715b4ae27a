"""The span processor that a traced application adds to its tracer provider to have its spans scored."""

from __future__ import annotations

from typing import Any, Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from spanscore.capture.processor.external_spans import ExternalSpans
from spanscore.core.log import log_internal_error, log_once, type_name
from spanscore.outputs.provider_introspection import exporter_of, processors_beside

_RELEASE_S: Final = 2.0
"""Longest time in seconds that a provider's shutdown waits for held spans."""
_CONSOLE: Final = "ConsoleSpanExporter"
"""An exporter that only prints spans, so that it causes no duplicates next to another exporter."""


class SpanScorer(Protocol):
    """The part of a scorer that a processor uses; ``OnlineScorer`` implements it."""

    @property
    def _external_spans(self) -> ExternalSpans:
        """The receiver of the scorer's processors."""

    def export_held_spans(self, timeout: float) -> None:
        """Export all held spans now, without further scores. Blocks for at most ``timeout`` seconds."""


class ScoringSpanProcessor(SpanProcessor):
    """Scores the spans of other instrumentations in this process: OpenInference, OpenLLMetry, an SDK's own spans.

    With a wrapped processor, the spans of a unit that may be scored wait for their scores. They are then passed to the wrapped
    processor with the scores, each once::

        provider.add_span_processor(ScoringSpanProcessor(scorer, BatchSpanProcessor(OTLPSpanExporter())))

    Without a wrapped processor it only observes: the provider's other processors export the spans immediately and unchanged,
    and scores are evaluation spans::

        provider.add_span_processor(ScoringSpanProcessor(scorer))

    Spans of no unit, or of a unit that will not be scored, are passed on immediately and unchanged, on the thread that ended
    them. If the provider has another exporter, each span would be exported twice, with and without scores. Then a warning is
    logged, and this processor only observes; the wrapped processor still gets every span.

    Exported spans are unchanged except for the scores. The scorer's redactor applies only to judge prompts and evaluation
    spans.

    Args:
        scorer: the scorer; a scorer may have several processors, in one provider or several.
        processor: wrapped processor that gets every span exactly once, from the span thread if the span waited; None = observe
            only.
    """

    def __init__(self, scorer: SpanScorer, processor: SpanProcessor | None = None) -> None:
        self._scorer = scorer
        self._spans = scorer._external_spans
        self._processor = processor
        self._targets: tuple[SpanProcessor, ...] = () if processor is None else (processor,)
        self._seen: dict[int, tuple[Any, ...]] = {}

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Assign a span to its unit. Does not block."""
        if self._processor is not None:
            self._processor.on_start(span, parent_context)
        try:
            if self._spans.on_start(span, self, parent_context) and self._targets:
                self._check_other_exporters(processors_beside(span))
        except Exception as error:  # noqa: BLE001
            log_internal_error("note that a span began", error)

    def _on_ending(self, span: Span) -> None:
        """Forward the SDK's hook for ending spans, which exists from 1.40 on."""
        if self._processor is not None:
            getattr(self._processor, "_on_ending", lambda _: None)(span)

    def on_end(self, span: ReadableSpan) -> None:
        """Accept a span, or pass it on immediately. Does not block."""
        accepted = False
        try:
            accepted = self._spans.on_end(span, self, self._targets)
        except Exception as error:  # noqa: BLE001
            log_internal_error("take a span", error)
        if not accepted and self._processor is not None:
            self._processor.on_end(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the wrapped processor. Held spans still wait for their scores; ``scorer.flush()`` waits for these scores."""
        return True if self._processor is None else self._processor.force_flush(timeout_millis)

    def shutdown(self) -> None:
        """Export held spans as ``pending``, then shut down the wrapped processor."""
        try:
            self._scorer.export_held_spans(_RELEASE_S)
        except Exception as error:  # noqa: BLE001
            log_internal_error("release spans", error)
        if self._processor is not None:
            self._processor.shutdown()

    def _check_other_exporters(self, processors: tuple[Any, ...]) -> None:
        """Stop making spans wait, with a warning, if another processor of the provider exports them, too."""
        # The SDK makes a new tuple for each added processor. A checked tuple is kept, so that its id stays unique.
        if self._seen.get(id(processors)) is processors:
            return
        self._seen[id(processors)] = processors
        for other in processors:
            exporter = exporter_of(other)
            has_same_scorer = isinstance(other, ScoringSpanProcessor) and other._spans is self._spans
            if exporter is None or has_same_scorer or type_name(exporter) == _CONSOLE:
                continue
            self._targets = ()
            own = exporter_of(self._processor)
            log_once(
                "another exporter",
                f"the provider exports spans by {type_name(exporter)}, and so does the exporter in ScoringSpanProcessor"
                f" ({type_name(self._processor if own is None else own)}): spans do not wait for their scores, which come as"
                " evaluation spans. Pass it the provider's only exporter, or none",
            )
            return

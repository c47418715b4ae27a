"""One span per label: child of the unit's span, by its ids alone, with an id that any process would choose too.

It stands at the time at which somebody said so: the last of a unit, name and annotator is the one that holds.
"""

from __future__ import annotations

from functools import partial
from time import time_ns
from typing import Any

from opentelemetry.trace import Link, SpanKind

from spanscore import semconv
from spanscore.core.codecs.text import wire_values
from spanscore.core.sample import Annotation
from spanscore.otel.providers import Providers
from spanscore.otel.span_factory import PresetSpanFactory
from spanscore.sinks.emission import annotation_attributes, context_above, span_context_above

__all__ = ["AnnotationSpans"]

_LASTS_NS = 1_000
"""As evaluation spans: Jaeger warns of a span that ends where it starts."""


class AnnotationSpans:
    """Writes labels through the application's own tracer provider, as evaluations by people.

    Args:
        providers: gives the tracer of the scope ``spanscore``.
    """

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._chosen: PresetSpanFactory | None = None

    def write(self, label: Annotation) -> None:
        """Write a span for a label of a unit that is known."""
        if label.unit is None:
            return
        tracer = self._providers.tracer(semconv.SCOPE)
        self._chosen = self._chosen or PresetSpanFactory.of(tracer)
        own_id = int(label.id[:16], 16)
        start = tracer.start_span if self._chosen is None else partial(self._chosen.start_span, span_id=own_id)
        said_ns = time_ns() if label.when_ns is None else label.when_ns
        span = start(
            f"{semconv.EVALUATION} {label.name}",
            context=context_above(label.unit),
            kind=SpanKind.INTERNAL,
            attributes=wire_values(_attributes(label)),
            links=[Link(span_context_above(label.unit), {})],
            start_time=said_ns,
        )
        span.end(end_time=said_ns + _LASTS_NS)


def _attributes(label: Annotation) -> dict[str, Any]:
    said = annotation_attributes(label)
    annotation = {
        "name": label.name,
        "score": label.quality,
        "label": label.text,
        "explanation": said[semconv.EVALUATION_EXPLANATION],
        "annotator_kind": semconv.ANNOTATOR_HUMAN,
        "identifier": label.annotator,
    }
    return {
        semconv.OPERATION_NAME: semconv.EVALUATION,
        semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_EVALUATOR,
        **{semconv.OPENINFERENCE_EVALUATION + part: held for part, held in annotation.items()},
        **said,
        semconv.SCORE + label.name: label.quality,
        semconv.LABEL + label.name: label.text,
        semconv.QUALITY: label.quality,
    }

"""Spans of the GenAI conventions, our own capture's among them: they are in GenAI names already."""

from __future__ import annotations

from collections.abc import Sequence

from spanscore import semconv
from spanscore.model.span import SpanData

__all__ = ["GenAITranslation"]


class GenAITranslation:
    """Reads what any writer of the OpenTelemetry GenAI conventions writes."""

    name = "genai"
    scopes: Sequence[str] = (
        semconv.CAPTURE_SCOPE,
        "opentelemetry.instrumentation.openai_v2",
        "opentelemetry.util.genai",
    )
    marks: Sequence[bytes] = (b"gen_ai.operation.name", b"gen_ai.system")

    def claims(self, span: SpanData) -> bool:
        """Whether the span names its operation, or is our own capture's."""
        return isinstance(span.operation, str) or span.scope == semconv.CAPTURE_SCOPE

    def translate(self, span: SpanData) -> SpanData:
        """Return the span: its names are the right ones."""
        return span

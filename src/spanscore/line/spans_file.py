"""Configuration → the file that gets the spans of a scorer, where one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spanscore import semconv
from spanscore.config.tree import ScorerSettings
from spanscore.line.build import exports_content
from spanscore.outputs.spans_file import SpansFile

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["spans_file_of"]


def spans_file_of(settings: ScorerSettings) -> SpansFile | None:
    """Return the file of ``spans_to``; None if there is none. Without ``capture.content`` no text of users gets there."""
    if settings.outputs.spans_to is None:
        return None
    as_line = _line if exports_content(settings.capture.content) else _line_without_texts
    return SpansFile(Path(settings.outputs.spans_to).expanduser().resolve(), as_line)


def _line(spans: Sequence[ReadableSpan]) -> str:
    from spanscore.core.codecs.otlp import json_line  # imports a second of the SDK: on the thread of the file

    return json_line(spans)


def _line_without_texts(spans: Sequence[ReadableSpan]) -> str:
    from spanscore.core.codecs.sdk import without_texts

    return _line([span if _is_ours(span) else without_texts(span) for span in spans])


def _is_ours(span: ReadableSpan) -> bool:
    """Whether spanscore made a span, which then has texts by the same switch."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name in semconv.OWN_SCOPES

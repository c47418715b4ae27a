"""Normalizes spans of Mastra's OpenTelemetry exporter (1.x): runs have input and output as JSON under names of their own.

Models and tools have GenAI names, which the GenAI normalizer reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.sdk import attributes_under
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    content_of,
    in_genai_names,
    name_attribute,
    parse_structure,
    plain_attributes,
    raw_attributes,
)

TYPE: Final = "mastra.span.type"
_METADATA: Final = "mastra.metadata."
_RUNS: Final[Mapping[str, str]] = {"agent_run": semconv.INVOKE_AGENT, "workflow_run": semconv.INVOKE_WORKFLOW}
"""Type of a run → operation; any other type is a step, whose content the spans around it have, too."""
_LEFT_TO_GENAI: Final = semconv.MODEL_OPERATIONS | {semconv.EXECUTE_TOOL, semconv.RETRIEVAL, semconv.EMBEDDINGS}
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (mastra)",
    "Mastra leaves it out: set hideInput and hideOutput of tracingOptions to false, and check the exporter's span filters",
)


class Mastra:
    """Reads Mastra's runs. They have content unless ``hideInput`` or ``hideOutput`` removes it."""

    name = "mastra"
    scopes: Sequence[str] = ("@mastra/otel-exporter",)
    signatures: Sequence[bytes] = (TYPE.encode(),)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has Mastra's type, and is a run or an operation that the conventions lack."""
        raw = raw_attributes(span)
        kind = raw.get(TYPE)
        return isinstance(kind, str) and (kind in _RUNS or raw.get(semconv.OPERATION_NAME) not in _LEFT_TO_GENAI)

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        kind = str(raw[TYPE])
        operation = _RUNS.get(kind, semconv.EXECUTE_TASK)
        inputs, outputs = (f"mastra.{kind}.{side}" for side in ("input", "output"))
        names = (inputs, outputs) if kind in _RUNS else ()
        metadata = attributes_under(_METADATA, raw)
        return in_genai_names(
            span,
            name_attribute(operation, span.name) | plain_attributes(raw, operation, metadata),
            {name: raw[name] for name in names if raw.get(name) is not None},
            lambda content: content_of(operation, *map(_value, (content.get(inputs), content.get(outputs)))),
            no_content=_NO_CONTENT if names else None,
            metadata=metadata,
        )


def _value(stored: Any) -> Any:
    """Return an input or output; the answer of an agent is the text in ``{"text", "files"}``."""
    value = parse_structure(stored)
    return value["text"] if isinstance(value, dict) and "files" in value and value.get("text") else value

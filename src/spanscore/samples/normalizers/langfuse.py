"""Normalizes spans of Langfuse's SDK (3 and later): input and output as text or JSON, and the type of the observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    arguments_in,
    content_of,
    in_genai_names,
    name_attribute,
    parse_structure,
    plain_attributes,
    raw_attributes,
    rename_attributes,
    value_of,
)

_SCOPE: Final = "langfuse-sdk"
_OBSERVATION: Final = "langfuse.observation."
TYPE: Final = f"{_OBSERVATION}type"
_INPUTS: Final = (f"{_OBSERVATION}input", "langfuse.trace.input")
_OUTPUTS: Final = (f"{_OBSERVATION}output", "langfuse.trace.output")
_METADATA: Final = ("langfuse.trace.metadata.", f"{_OBSERVATION}metadata.")  # the last has priority, as the closest
OPERATIONS: Final[Mapping[str, str]] = {
    "generation": semconv.CHAT,
    "tool": semconv.EXECUTE_TOOL,
    "retriever": semconv.RETRIEVAL,
    "agent": semconv.INVOKE_AGENT,
    "embedding": semconv.EMBEDDINGS,
    "evaluator": semconv.EVALUATION,
    "guardrail": semconv.EVALUATION,  # neither is read, because they have no question and answer of the application
}
"""Type of an observation → operation; any other type, or none, becomes ``invoke_workflow``."""
_USAGE: Final[Mapping[str, tuple[str, ...]]] = {
    semconv.USAGE_INPUT_TOKENS: ("input", "prompt_tokens", "input_tokens"),
    semconv.USAGE_OUTPUT_TOKENS: ("output", "completion_tokens", "output_tokens"),
}
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (langfuse)",
    "the Langfuse SDK leaves it out: set capture_input and capture_output of @observe, or"
    " LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true, for the traced application",
)


class Langfuse:
    """Reads Langfuse's own spans. They have content unless ``@observe`` or an environment variable turns capture off."""

    name = "langfuse"
    scopes: Sequence[str] = (_SCOPE,)
    signatures: Sequence[bytes] = (_OBSERVATION.encode(),)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span is an observation."""
        return span.scope == _SCOPE or isinstance(raw_attributes(span).get(TYPE), str)

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        operation = OPERATIONS.get(str(raw.get(TYPE)), semconv.INVOKE_WORKFLOW)
        metadata = {
            name[len(start) :]: _metadata_value(raw[name])
            for start in _METADATA
            for name in raw
            if name.startswith(start)
        }
        session = raw.get("langfuse.session.id") or raw.get(semconv.SESSION_ID)
        plain = plain_attributes(raw, operation, {**metadata, "session_id": session}) | name_attribute(
            operation, span.name
        )
        if operation == semconv.CHAT:
            counts = parse_structure(raw.get(f"{_OBSERVATION}usage_details"))
            plain |= rename_attributes(counts if isinstance(counts, dict) else {}, _USAGE)
            plain[semconv.REQUEST_MODEL] = raw.get(f"{_OBSERVATION}model.name")
        raw_content = {name: raw[name] for name in (*_INPUTS, *_OUTPUTS) if raw.get(name) is not None}
        return in_genai_names(
            span,
            plain,
            raw_content,
            lambda content: content_of(operation, arguments_in(_first(content, _INPUTS)), _first(content, _OUTPUTS)),
            no_content=_NO_CONTENT,
            metadata=metadata,
        )


def _metadata_value(value: Any) -> Any:
    """Return the text of a quoted text, as version 5 writes it; any other value unchanged."""
    return value_of(value) if isinstance(value, str) and value.startswith('"') else value


def _first(raw_content: Mapping[str, Any], names: Sequence[str]) -> Any:
    return parse_structure(next((raw_content[name] for name in names if name in raw_content), None))

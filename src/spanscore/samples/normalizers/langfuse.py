"""Normalizes spans of Langfuse's SDK (3 and later): input and output as text or JSON, and the type of the observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import TOOL, role_of
from spanscore.core.codecs.sdk import attributes_under
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    AttributeLookup,
    arguments_in,
    content_of,
    fields_of,
    in_genai_names,
    name_attribute,
    parse_structure,
    plain_attributes,
    raw_attributes,
    value_of,
)

SCOPE: Final = "langfuse-sdk"
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
_USAGE: Final = (
    (semconv.USAGE_INPUT_TOKENS, "input", ("prompt_tokens", "input_tokens")),
    (semconv.USAGE_OUTPUT_TOKENS, "output", ("completion_tokens", "output_tokens")),
)
"""Name in the conventions, prefix of Langfuse's counts, and OpenAI's names. Langfuse counts ``input_cached_tokens`` apart."""
_JS_ERROR: Final = '{"error":'
"""Beginning of the output of a function that raised; ``observe`` of Langfuse.js writes it."""
_JS_DOCUMENTS: Final = '[{"pageContent":'
"""Beginning of a list of documents of LangChain.js."""
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (langfuse)",
    "the Langfuse SDK leaves it out: set capture_input and capture_output of @observe, or"
    " LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true, for the traced application",
)


class Langfuse:
    """Reads Langfuse's own spans. They have content unless ``@observe`` or an environment variable turns capture off."""

    name = "langfuse"
    scopes: Sequence[str] = (SCOPE,)
    signatures: Sequence[bytes] = (_OBSERVATION.encode(),)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span is an observation."""
        return span.scope == SCOPE or isinstance(raw_attributes(span).get(TYPE), str)

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        operation = _operation(raw)
        failed = raw.get(f"{_OBSERVATION}level") == "ERROR"
        if failed:  # the SDK leaves the span's status unset
            span = replace(span, status="error")
        metadata = {
            key: _metadata_value(value) for start in _METADATA for key, value in attributes_under(start, raw).items()
        }
        session = raw.get("langfuse.session.id") or raw.get(semconv.SESSION_ID)
        plain = plain_attributes(raw, operation, {**metadata, "session_id": session}) | name_attribute(
            operation, span.name
        )
        if operation == semconv.CHAT:
            plain |= _usage(fields_of(parse_structure(raw.get(f"{_OBSERVATION}usage_details"))))
            plain[semconv.REQUEST_MODEL] = raw.get(f"{_OBSERVATION}model.name")
        raw_content = {name: raw[name] for name in (*_INPUTS, *_OUTPUTS) if raw.get(name) is not None}
        if failed and str(raw.get(_OUTPUTS[0])).startswith(_JS_ERROR):
            del raw_content[_OUTPUTS[0]]
        return in_genai_names(
            span,
            plain,
            raw_content,
            lambda content: content_of(operation, arguments_in(_first(content, _INPUTS)), _first(content, _OUTPUTS)),
            no_content=_NO_CONTENT,
            metadata=metadata,
        )


def _operation(raw: Mapping[str, Any]) -> str:
    """Return the operation; a span that makes documents from a text is a retrieval, because Langfuse.js has no type for it."""
    kind = str(raw.get(TYPE))
    return semconv.RETRIEVAL if is_retrieval(raw) else OPERATIONS.get(kind, semconv.INVOKE_WORKFLOW)


def is_retrieval(attributes: AttributeLookup) -> bool:
    """Return whether a span without a type of its own has made documents of LangChain.js from a text."""
    kind, inputs, outputs = (str(attributes.get(name)) for name in (TYPE, _INPUTS[0], _OUTPUTS[0]))
    return kind == "span" and outputs.startswith(_JS_DOCUMENTS) and not inputs.startswith("[")


def _usage(counts: Mapping[str, Any]) -> dict[str, Any]:
    usage = dict[str, Any]()
    for name, prefix, others in _USAGE:
        parts = [count for key, count in counts.items() if key.startswith(prefix) and isinstance(count, int)]
        usage[name] = sum(parts) if prefix in counts else next((counts[key] for key in others if key in counts), None)
    return usage


def _metadata_value(value: Any) -> Any:
    """Return the text of a quoted text, as version 5 writes it; any other value unchanged."""
    return value_of(value) if isinstance(value, str) and value.startswith('"') else value


def _first(raw_content: Mapping[str, Any], names: Sequence[str]) -> Any:
    return _name_tools(parse_structure(next((raw_content[name] for name in names if name in raw_content), None)))


def _name_tools(value: Any) -> Any:
    """Return messages in which a tool has the tool's role; Langfuse.js writes the tool's name as the role."""
    if isinstance(value, list):
        return [_name_tools(item) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("messages"), list):
        return {**value, "messages": _name_tools(value["messages"])}
    role = value.get("role")
    is_tool = isinstance(role, str) and role_of(role) is None and "additional_kwargs" in value
    return {**value, "role": TOOL, "name": role} if is_tool else value

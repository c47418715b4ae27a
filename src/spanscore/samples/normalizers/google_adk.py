"""Normalizes spans of Google's Agent Development Kit: GenAI names; in version 1 also Gemini's requests and answers as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, TOOL, USER, parts_of, role_of
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    dicts_in,
    fields_of,
    in_genai_names,
    json_at,
    plain_attributes,
    raw_attributes,
    tool_content,
)

_SCOPE: Final = "gcp.vertex.agent"
_REQUEST, _RESPONSE = "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"
_ARGUMENTS: Final = "gcp.vertex.agent.tool_call_args"
_ANSWER: Final = "gcp.vertex.agent.tool_response"
_CONTENT_NAMES: Final = frozenset({_REQUEST, _RESPONSE, _ARGUMENTS, _ANSWER})
_LEFT_OUT: Final = frozenset({"", "{}", "<not specified>", "<not serializable>"})
"""Placeholder values if content is off or missing."""
_MERGED: Final = "(merged)"
"""End of the name of a span that has the results of parallel tools once more; it is no call of a tool."""
_OPERATIONS: Final[Mapping[str, str]] = {
    "call_llm": semconv.GENERATE_CONTENT,
    "execute_tool": semconv.EXECUTE_TOOL,
    "invoke_agent": semconv.INVOKE_AGENT,
    "agent_run": semconv.INVOKE_AGENT,
    "invocation": semconv.INVOKE_WORKFLOW,
}
"""First word of a span's name → operation, for spans without an operation."""
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (google_adk)",
    "the Agent Development Kit leaves it out: set ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true, or"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY, for the traced application",
)


class GoogleADK:
    """Reads the kit's spans, which have content if ``ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS`` is true."""

    name = "google_adk"
    scopes: Sequence[str] = (_SCOPE,)
    signatures: Sequence[bytes] = (b"gcp.vertex.agent.",)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has the kit's scope."""
        return span.scope == _SCOPE

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        first, _, rest = span.name.partition(" ")
        operation = raw.get(semconv.OPERATION_NAME) or _OPERATIONS.get(first, semconv.EXECUTE_TASK)
        if rest == _MERGED:
            operation = semconv.EXECUTE_TASK
        plain = plain_attributes(raw, operation, {"session_id": raw.get("gcp.vertex.agent.session_id")})
        plain[semconv.PROVIDER_NAME] = raw.get(semconv.PROVIDER_NAME) or raw.get(semconv.SYSTEM)
        if operation == semconv.INVOKE_AGENT:
            plain[semconv.AGENT_NAME] = raw.get(semconv.AGENT_NAME) or rest.strip("[]")
        elif operation == semconv.EXECUTE_TOOL:  # a tool that failed may have no attributes
            plain[semconv.TOOL_NAME] = raw.get(semconv.TOOL_NAME) or rest
        raw_content = {
            name: value for name, value in raw.items() if name in _CONTENT_NAMES and str(value) not in _LEFT_OUT
        }
        render, tools = _RENDERERS.get(str(operation), _model), raw.get(semconv.TOOL_DEFINITIONS)
        return in_genai_names(span, plain, raw_content, render, no_content=_NO_CONTENT, tools=tools)


def _model(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    request, response = (fields_of(json_at(raw_content, name)) for name in (_REQUEST, _RESPONSE))
    return {
        semconv.TOOL_DEFINITIONS: fields_of(request.get("config")).get("tools"),
        semconv.INPUT_MESSAGES: _messages(request.get("contents"), USER) or None,
        semconv.OUTPUT_MESSAGES: _messages([response.get("content")], ASSISTANT) or None,
    }


_RENDERERS: Final[Mapping[str, Render]] = {semconv.EXECUTE_TOOL: tool_content(_ARGUMENTS, _ANSWER)}


def _messages(contents: Any, speaker: str) -> list[dict[str, Any]]:
    """Return Gemini's contents, ``{"role": "model", "parts": [{"text"} | {"function_call"} | {"function_response"}]}``."""
    return [_message(item, speaker) for item in dicts_in(contents) if isinstance(item.get("parts"), list)]


def _message(content: Mapping[str, Any], speaker: str) -> dict[str, Any]:
    read = parts_of(content["parts"])
    answers = any(part["type"] == "tool_call_response" for part in read)
    return {"role": TOOL if answers else role_of(content.get("role")) or speaker, "parts": read}

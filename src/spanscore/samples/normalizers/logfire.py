"""Normalizes spans that Logfire writes for clients (OpenAI, Anthropic, Azure AI Inference, Gemini) and OpenAI's Agents SDK.

The content is JSON, in these attributes:

request_data, response_data          a client's request and response, in the form of its API
events, all_messages_events          request and response as one list of messages
input, output                        input and output of a model call, a tool or another step of OpenAI's agents

A streamed call gives two spans: one for the request, and a log span for the answer. Both have the same parent;
without a parent they are two traces. The request's span ends before the answer begins. Unless that span has the status
``error``, it is ignored, because the log span contains the request and the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, SYSTEM, text_message
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    AttributeLookup,
    Render,
    answers_in,
    fields_of,
    in_genai_names,
    json_at,
    name_attribute,
    parse_structure,
    plain_attributes,
    prompts_in,
    raw_attributes,
    split_answer,
    split_events,
    text_or_none,
    tool_content,
)
from spanscore.samples.normalizers.genai import conventional

AGENTS: Final = "logfire.openai_agents"
_CLIENTS: Final = ("logfire.openai", "logfire.anthropic", "logfire.azure_ai_inference")
_PYDANTIC_AI: Final = "pydantic-ai"
_REQUEST, _RESPONSE, _INPUT, _OUTPUT = "request_data", "response_data", "input", "output"
_EVENTS, _ALL_EVENTS = "events", "all_messages_events"
_OWN: Final = frozenset({_REQUEST, _RESPONSE, _EVENTS, _ALL_EVENTS})
_KIND, _LOG = "logfire.span_type", "log"
_NOT_READ: Final = semconv.EMBEDDINGS
"""Operation of ignored spans: that of embeddings, because units never contain spans of embeddings."""
_OPERATIONS: Final[Mapping[str, str]] = {
    "OpenAI Agents trace": semconv.INVOKE_WORKFLOW,
    "Agent run": semconv.INVOKE_AGENT,
    "Function": semconv.EXECUTE_TOOL,
    "Chat completion with": semconv.CHAT,
    "Responses API": semconv.CHAT,
    "Guardrail": _NOT_READ,
    "Text → Speech": _NOT_READ,
    "Speech → Text": _NOT_READ,
}
"""Prefix of the names of spans of OpenAI's agents → operation; any other span is a step."""
_CALLS: Final = ("Chat Completion with", "Completion with", "Responses API", "Message with", "streaming response from")
"""Prefixes of the names of a client's spans that request text from a model."""
_ANSWERED: Final = frozenset(
    {
        *(_RESPONSE, semconv.OUTPUT_MESSAGES, semconv.RESPONSE_ID),
        *(semconv.RESPONSE_FINISH_REASONS, semconv.USAGE_INPUT_TOKENS),
    }
)
"""Attributes that show that a request was answered. A client's span with none of them is a streamed request."""
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (logfire)",
    "Logfire writes content by default. It was switched off or removed: set trace_include_sensitive_data=True in the agents'"
    " RunConfig, or change Logfire's scrubbing so that it keeps the content",
)


class Logfire:
    """Reads Logfire's own names, and the GenAI conventions' names if Logfire writes them."""

    name = "logfire"
    scopes: Sequence[str] = (*_CLIENTS, AGENTS)
    signatures: Sequence[bytes] = (semconv.SYSTEM.encode(), semconv.OPERATION_NAME.encode())

    def accepts(self, span: SpanData) -> bool:
        """Return whether a span has a scope of ``scopes``, or is a call that Logfire wrote in another scope.

        Such a call has ``logfire.span_type``, an attribute with content, and an operation, a system or ``all_messages_events``.
        Spans in Pydantic AI's scope are not accepted, because they have a normalizer of their own.
        """
        if span.scope in self.scopes:
            return True
        raw = raw_attributes(span)
        if _KIND not in raw or _OWN.isdisjoint(raw) or span.scope == _PYDANTIC_AI:
            return False
        return any(name in raw for name in (semconv.OPERATION_NAME, semconv.SYSTEM, _ALL_EVENTS))

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        operation = _operation(span, raw)
        if operation in semconv.MODEL_OPERATIONS and semconv.INPUT_MESSAGES in raw:
            return conventional(span, no_content=lambda scope: _NO_CONTENT)
        plain = plain_attributes(raw, operation, {"session_id": text_or_none(raw.get("group_id"))})
        plain |= name_attribute(operation, str(raw.get("name") or span.name))
        plain[semconv.PROVIDER_NAME] = raw.get(semconv.PROVIDER_NAME) or raw.get(semconv.SYSTEM)
        names, render = _RENDERERS.get(operation, ((), _exchange))
        raw_content = {name: raw[name] for name in names if text_or_none(raw.get(name)) is not None}
        has_content = operation in semconv.MODEL_OPERATIONS or operation == semconv.EXECUTE_TOOL
        return in_genai_names(span, plain, raw_content, render, no_content=_NO_CONTENT if has_content else None)


def _operation(span: SpanData, raw: Mapping[str, Any]) -> str:
    """Return the operation of a span; ``_NOT_READ`` for a request whose answer was streamed and that did not fail."""
    if span.scope == AGENTS:
        operations = (operation for start, operation in _OPERATIONS.items() if span.name.startswith(start))
        return next(operations, semconv.EXECUTE_TASK)
    stated = raw.get(semconv.OPERATION_NAME)
    operation = stated if isinstance(stated, str) else _operation_of_old_span(span, raw)
    if _REQUEST not in raw:
        return operation
    if operation == semconv.GENERATE_CONTENT:  # with request_data Logfire uses it only for OpenAI's image generation
        return _NOT_READ
    return _NOT_READ if is_streamed_request(raw) and span.status != "error" else operation


def is_streamed_request(attributes: AttributeLookup) -> bool:
    """Return whether a span is the request of a streamed call; the answer is on a separate log span."""
    if _REQUEST not in attributes or attributes.get(_KIND) == _LOG:
        return False
    return not any(name in attributes for name in _ANSWERED)


def _operation_of_old_span(span: SpanData, raw: Mapping[str, Any]) -> str:
    """Return the operation of a span of an older Logfire: ``_NOT_READ`` unless it is an agent run or a request for text."""
    if _ALL_EVENTS in raw:
        return semconv.INVOKE_AGENT
    return semconv.CHAT if _EVENTS in raw or span.name.startswith(_CALLS) else _NOT_READ


def _model_content(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    prompts, answers = split_events(json_at(raw_content, _EVENTS))
    request = json_at(raw_content, _REQUEST)
    if not prompts and not answers:
        prompts, answers = (
            prompts_in(parse_structure(raw_content.get(_INPUT))),
            answers_in(parse_structure(raw_content.get(_OUTPUT))),
        )
    if not prompts:
        prompts = _request_messages(request)
    if not answers:
        answers = _response_messages(json_at(raw_content, _RESPONSE)) or answers_in(
            json_at(raw_content, semconv.OUTPUT_MESSAGES)
        )
    if not answers:
        prompts, answers = split_answer(prompts)
    return {
        semconv.INPUT_MESSAGES: prompts or None,
        semconv.OUTPUT_MESSAGES: answers or None,
        semconv.TOOL_DEFINITIONS: fields_of(request).get("tools"),
    }


def _request_messages(request: Any) -> list[dict[str, Any]]:
    system = fields_of(request).get("system")
    instructions = [text_message(SYSTEM, system)] if isinstance(system, str) else []
    return [*instructions, *prompts_in(request)]


def _response_messages(response: Any) -> list[dict[str, Any]]:
    streamed = fields_of(response).get("combined_chunk_content")
    return [text_message(ASSISTANT, streamed)] if isinstance(streamed, str) else answers_in(response)


def _exchange(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    prompts, answers = split_events(json_at(raw_content, _ALL_EVENTS if _ALL_EVENTS in raw_content else _EVENTS))
    return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: answers or None}


_OF_MODEL: Final = (_EVENTS, _INPUT, _OUTPUT, _REQUEST, _RESPONSE, semconv.OUTPUT_MESSAGES)
_RENDERERS: Final[Mapping[str, tuple[Sequence[str], Render]]] = {
    **dict.fromkeys(semconv.MODEL_OPERATIONS, (_OF_MODEL, _model_content)),
    **dict.fromkeys(semconv.WHOLE_OPERATIONS, ((_ALL_EVENTS, _EVENTS), _exchange)),
    semconv.EXECUTE_TOOL: ((_INPUT, _OUTPUT), tool_content(_INPUT, _OUTPUT)),
}
"""Operation → attributes that contain JSON, and the function that converts them to content; others have no content."""

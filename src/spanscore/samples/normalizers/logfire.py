"""Normalizes Logfire's spans of OpenAI's and Anthropic's clients, OpenAI's agents and Gemini, with content as JSON.

request_data, response_data          a client's request and response, in the form of its API
events, all_messages_events          both, one message after the other
input, output                        of a model call of OpenAI's agents, of a tool, or of any step of theirs

A streamed call is two spans with one parent, or two traces without one. The span of the request ends before the answer begins
and is not read. A log span has both request and answer.
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
    conversation_of,
    exchanged_in,
    in_genai_names,
    json_at,
    named,
    parsed,
    plain_of,
    prompts_in,
    split_answer,
    text_or_none,
    tool_content,
    wire_of,
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
"""Operation of spans that belong to no unit."""
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
"""Attributes of an answered request; a client's span has at least one of them."""
_NOTHING: Final = NoContent(
    "content is not on the spans (logfire)",
    "Logfire writes it with every call: set trace_include_sensitive_data of the agents' RunConfig, or Logfire's scrubbing"
    " accordingly",
)


class Logfire:
    """Reads Logfire's own names, and the GenAI conventions' names if Logfire writes them."""

    name = "logfire"
    scopes: Sequence[str] = (*_CLIENTS, AGENTS)
    signatures: Sequence[bytes] = (semconv.SYSTEM.encode(), semconv.OPERATION_NAME.encode())

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has one of its scopes, or Logfire's attributes of a call in a scope but Pydantic AI's."""
        if span.scope in self.scopes:
            return True
        raw = wire_of(span)
        if _KIND not in raw or _OWN.isdisjoint(raw) or span.scope == _PYDANTIC_AI:
            return False
        return any(name in raw for name in (semconv.OPERATION_NAME, semconv.SYSTEM, _ALL_EVENTS))

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = wire_of(span)
        operation = _operation(span, raw)
        if operation in semconv.MODEL_OPERATIONS and semconv.INPUT_MESSAGES in raw:
            return conventional(span, nothing=_nothing)
        plain = {**plain_of(raw), **named(operation, str(raw.get("name") or span.name))}
        plain[semconv.OPERATION_NAME] = operation
        plain[semconv.PROVIDER_NAME] = raw.get(semconv.PROVIDER_NAME) or raw.get(semconv.SYSTEM)
        plain[semconv.CONVERSATION_ID] = conversation_of(raw, {"session_id": text_or_none(raw.get("group_id"))})
        names, render = _RENDERERS.get(operation, ((), _exchange))
        quoted = {name: raw[name] for name in names if text_or_none(raw.get(name)) is not None}
        talks = operation in semconv.MODEL_OPERATIONS or operation == semconv.EXECUTE_TOOL
        return in_genai_names(span, plain, quoted, render, nothing=_NOTHING if talks else None)


def _nothing() -> NoContent:
    return _NOTHING


def _operation(span: SpanData, raw: Mapping[str, Any]) -> str:
    """Return the operation of a span; the span of a request with a streamed answer is not read: a log span has both."""
    if span.scope == AGENTS:
        known = (operation for start, operation in _OPERATIONS.items() if span.name.startswith(start))
        return next(known, semconv.EXECUTE_TASK)
    named = raw.get(semconv.OPERATION_NAME)
    operation = named if isinstance(named, str) else _unnamed(span, raw)
    if _REQUEST not in raw:
        return operation
    if operation == semconv.GENERATE_CONTENT:  # it generates images
        return _NOT_READ
    return _NOT_READ if is_streamed(raw) and span.status != "error" else operation


def is_streamed(attributes: AttributeLookup) -> bool:
    """Return whether a span is a client's request with a streamed answer; a log span has both."""
    if _REQUEST not in attributes or attributes.get(_KIND) == _LOG:
        return False
    return not any(name in attributes for name in _ANSWERED)


def _unnamed(span: SpanData, raw: Mapping[str, Any]) -> str:
    """Return the operation of an older span without one: only requests for text are read."""
    if _ALL_EVENTS in raw:
        return semconv.INVOKE_AGENT
    return semconv.CHAT if _EVENTS in raw or span.name.startswith(_CALLS) else _NOT_READ


def _model(quoted: Mapping[str, Any]) -> dict[str, Any]:
    asked, said = exchanged_in(json_at(quoted, _EVENTS))
    if not asked and not said:
        asked, said = prompts_in(parsed(quoted.get(_INPUT))), answers_in(parsed(quoted.get(_OUTPUT)))
    if not asked:
        asked = _request(json_at(quoted, _REQUEST))
    if not said:
        said = _response(json_at(quoted, _RESPONSE)) or answers_in(json_at(quoted, semconv.OUTPUT_MESSAGES))
    if not said:
        asked, said = split_answer(asked)
    return {semconv.INPUT_MESSAGES: asked or None, semconv.OUTPUT_MESSAGES: said or None}


def _request(request: Any) -> list[dict[str, Any]]:
    system = request.get("system") if isinstance(request, dict) else None
    instructions = [text_message(SYSTEM, system)] if isinstance(system, str) else []
    return [*instructions, *prompts_in(request)]


def _response(response: Any) -> list[dict[str, Any]]:
    streamed = response.get("combined_chunk_content") if isinstance(response, dict) else None
    return [text_message(ASSISTANT, streamed)] if isinstance(streamed, str) else answers_in(response)


def _exchange(quoted: Mapping[str, Any]) -> dict[str, Any]:
    asked, said = exchanged_in(json_at(quoted, _ALL_EVENTS if _ALL_EVENTS in quoted else _EVENTS))
    return {semconv.INPUT_MESSAGES: asked or None, semconv.OUTPUT_MESSAGES: said or None}


_OF_MODEL: Final = (_EVENTS, _INPUT, _OUTPUT, _REQUEST, _RESPONSE, semconv.OUTPUT_MESSAGES)
_RENDERERS: Final[Mapping[str, tuple[Sequence[str], Render]]] = {
    **dict.fromkeys(semconv.MODEL_OPERATIONS, (_OF_MODEL, _model)),
    **dict.fromkeys(semconv.WHOLE_OPERATIONS, ((_ALL_EVENTS, _EVENTS), _exchange)),
    semconv.EXECUTE_TOOL: ((_INPUT, _OUTPUT), tool_content(_INPUT, _OUTPUT)),
}
"""Operation → attributes that quote, and the function that makes content of them; other operations have no content."""

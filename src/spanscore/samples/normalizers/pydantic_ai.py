"""Normalizes spans of Pydantic AI (Logfire): attributes of the GenAI conventions, and its own for runs and older versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, TOOL, USER, message_text, role_of, text_message
from spanscore.core.codecs.text import as_text
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    dicts_in,
    in_genai_names,
    json_at,
    plain_attributes,
    raw_attributes,
    split_events,
    text_or_none,
)

_SCOPE: Final = "pydantic-ai"
_ALL, _ALL_EVENTS, _NEW_FROM = "pydantic_ai.all_messages", "all_messages_events", "pydantic_ai.new_message_index"
_EVENTS, _RESULT = "events", "final_result"
_ARGUMENTS: Final = (semconv.TOOL_CALL_ARGUMENTS, "tool_arguments")
_ANSWERS: Final = (semconv.TOOL_CALL_RESULT, "tool_response")
_CONTENT_NAMES: Final = frozenset(
    {
        *(_ALL, _ALL_EVENTS, _EVENTS, _RESULT),
        *(*_ARGUMENTS, *_ANSWERS, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES),
    }
)
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (pydantic_ai)",
    "Pydantic AI does not record it: set InstrumentationSettings(include_content=True), or change Logfire's scrubbing",
)


class PydanticAI:
    """Reads Pydantic AI, 0.2 to 2. Spans have content unless ``InstrumentationSettings(include_content=False)``."""

    name = "pydantic_ai"
    scopes: Sequence[str] = (_SCOPE,)
    signatures: Sequence[bytes] = (_ALL.encode(), _ALL_EVENTS.encode(), semconv.MODEL_REQUEST_PARAMETERS.encode())

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has Pydantic AI's scope, and is the span of a model, a tool or an agent."""
        return span.scope == _SCOPE and _operation(span) is not None

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span with attributes of the GenAI conventions."""
        raw = raw_attributes(span)
        operation = _operation(span) or semconv.INVOKE_WORKFLOW
        plain = plain_attributes(raw, operation, {})
        plain[semconv.PROVIDER_NAME] = raw.get(semconv.PROVIDER_NAME) or raw.get(semconv.SYSTEM)
        if operation == semconv.INVOKE_AGENT:
            plain[semconv.AGENT_NAME] = raw.get(semconv.AGENT_NAME) or raw.get("agent_name")
        raw_content = {name: value for name, value in raw.items() if name in _CONTENT_NAMES}
        raw_content |= {_NEW_FROM: raw[_NEW_FROM]} if raw_content and _NEW_FROM in raw else {}
        render = _RENDERERS.get(operation, _model)
        tools = raw.get(semconv.TOOL_DEFINITIONS) or raw.get(semconv.MODEL_REQUEST_PARAMETERS)
        return in_genai_names(span, plain, raw_content, render, no_content=_NO_CONTENT, tools=tools)


def _operation(span: SpanData) -> str | None:
    """Return the operation of a span; None for a span that only groups others (``running 2 tools``)."""
    raw = raw_attributes(span)
    operation = raw.get(semconv.OPERATION_NAME)
    if isinstance(operation, str):
        return operation
    if raw.keys() & {_ALL, _ALL_EVENTS, "agent_name"}:
        return semconv.INVOKE_AGENT
    return None if raw.get(semconv.TOOL_NAME) is None else semconv.EXECUTE_TOOL


def _agent(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's input, with the messages of earlier runs, and its output."""
    prompts, answers = split_events(json_at(raw_content, _ALL_EVENTS))
    messages = _messages(json_at(raw_content, _ALL)) or [*prompts, *answers]
    end = _end_of_question(messages, raw_content.get(_NEW_FROM))
    answer = text_or_none(raw_content.get(_RESULT))
    output = messages[end:]
    if answer is not None and (not output or message_text(output[-1]) != answer):  # a structured output, by a tool call
        output = [*output, text_message(ASSISTANT, as_text(answer))]
    return {semconv.INPUT_MESSAGES: messages[:end] or None, semconv.OUTPUT_MESSAGES: output or None}


def _end_of_question(messages: Sequence[Mapping[str, Any]], new_from: Any) -> int:
    """Return the number of messages up to the run's question: its first new user message, else the last user message."""
    users = [at for at, message in enumerate(messages) if message.get("role") == USER]
    new = [at for at in users if isinstance(new_from, int) and at >= new_from]
    return (new[:1] or users[-1:] or [len(messages) - 1])[0] + 1


def _model(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    prompts = _messages(json_at(raw_content, semconv.INPUT_MESSAGES))
    answers = _messages(json_at(raw_content, semconv.OUTPUT_MESSAGES))
    if not prompts and not answers:
        prompts, answers = split_events(json_at(raw_content, _EVENTS))
    return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: answers or None}


def _tool(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        semconv.TOOL_CALL_ARGUMENTS: json_at(raw_content, *_ARGUMENTS),
        semconv.TOOL_CALL_RESULT: json_at(raw_content, *_ANSWERS),
    }


_RENDERERS: Final[Mapping[str, Render]] = {semconv.INVOKE_AGENT: _agent, semconv.EXECUTE_TOOL: _tool}


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return messages of the conventions; an answer to a tool's call gets the tool's role instead of the user's."""
    messages = [item for item in dicts_in(value) if role_of(item.get("role"))]
    return [{**item, "role": TOOL} if _answers_calls(item) else item for item in messages]


def _answers_calls(message: Mapping[str, Any]) -> bool:
    return {part.get("type") for part in dicts_in(message.get("parts"))} == {"tool_call_response"}

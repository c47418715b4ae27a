"""Normalizes spans of Pydantic AI (Logfire): GenAI names, and its own names for older content and for whole runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, TOOL, USER, message_text, role_of, text_message
from spanscore.core.codecs.text import as_text
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    conversation_of,
    exchanged_in,
    in_genai_names,
    json_at,
    plain_of,
    text_or_none,
    wire_of,
)

_SCOPE: Final = "pydantic-ai"
_ALL, _ALL_EVENTS, _NEW_FROM = "pydantic_ai.all_messages", "all_messages_events", "pydantic_ai.new_message_index"
_EVENTS, _RESULT = "events", "final_result"
_ARGUMENTS: Final = (semconv.TOOL_CALL_ARGUMENTS, "tool_arguments")
_ANSWERS: Final = (semconv.TOOL_CALL_RESULT, "tool_response")
_QUOTING: Final = frozenset(
    {
        *(_ALL, _ALL_EVENTS, _EVENTS, _RESULT),
        *(*_ARGUMENTS, *_ANSWERS, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES),
    }
)
_NOTHING: Final = NoContent(
    "content is not on the spans (pydantic_ai)",
    "Pydantic AI leaves it out: set InstrumentationSettings(include_content=True), or Logfire's scrubbing accordingly",
)


class PydanticAI:
    """Reads Pydantic AI, 0.2 to 2. Its spans have content unless ``InstrumentationSettings(include_content=False)``."""

    name = "pydantic_ai"
    scopes: Sequence[str] = (_SCOPE,)
    signatures: Sequence[bytes] = (_ALL.encode(), _ALL_EVENTS.encode(), b"model_request_parameters")

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has its scope, and is a model, a tool or an agent."""
        return span.scope == _SCOPE and _operation(span) is not None

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = wire_of(span)
        operation = _operation(span) or semconv.INVOKE_WORKFLOW
        plain = plain_of(raw)
        plain[semconv.PROVIDER_NAME] = raw.get(semconv.PROVIDER_NAME) or raw.get(semconv.SYSTEM)
        plain[semconv.OPERATION_NAME] = operation
        plain[semconv.CONVERSATION_ID] = conversation_of(raw, {})
        if operation == semconv.INVOKE_AGENT:
            plain[semconv.AGENT_NAME] = raw.get(semconv.AGENT_NAME) or raw.get("agent_name")
        quoted = {name: value for name, value in raw.items() if name in _QUOTING}
        quoted |= {_NEW_FROM: raw[_NEW_FROM]} if quoted and _NEW_FROM in raw else {}
        render = _RENDERERS.get(operation, _model)
        return in_genai_names(span, plain, quoted, render, nothing=_NOTHING)


def _operation(span: SpanData) -> str | None:
    """Return the operation of a span; None for a span that only groups others (``running 2 tools``)."""
    raw = wire_of(span)
    said = raw.get(semconv.OPERATION_NAME)
    if isinstance(said, str):
        return said
    if raw.keys() & {_ALL, _ALL_EVENTS, "agent_name"}:
        return semconv.INVOKE_AGENT
    if raw.get(semconv.TOOL_NAME) is not None:
        return semconv.EXECUTE_TOOL
    return None


def _agent(quoted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's input, including earlier messages, and its output."""
    before, after = exchanged_in(json_at(quoted, _ALL_EVENTS))
    said = _messages(json_at(quoted, _ALL)) or [*before, *after]
    end = _end_of_question(said, quoted.get(_NEW_FROM))
    answer = text_or_none(quoted.get(_RESULT))
    gave = said[end:]
    if answer is not None and (not gave or message_text(gave[-1]) != answer):  # a structure, from a tool's arguments
        gave = [*gave, text_message(ASSISTANT, as_text(answer))]
    return {semconv.INPUT_MESSAGES: said[:end] or None, semconv.OUTPUT_MESSAGES: gave or None}


def _end_of_question(said: Sequence[Mapping[str, Any]], new_from: Any) -> int:
    """Return the position of the run's answer among its messages: after its question, the first new message."""
    users = [at for at, message in enumerate(said) if message.get("role") == USER]
    new = [at for at in users if isinstance(new_from, int) and at >= new_from]
    return (new[:1] or users[-1:] or [len(said) - 1])[0] + 1


def _model(quoted: Mapping[str, Any]) -> dict[str, Any]:
    asked = _messages(json_at(quoted, semconv.INPUT_MESSAGES))
    said = _messages(json_at(quoted, semconv.OUTPUT_MESSAGES))
    if not asked and not said:
        asked, said = exchanged_in(json_at(quoted, _EVENTS))
    return {semconv.INPUT_MESSAGES: asked or None, semconv.OUTPUT_MESSAGES: said or None}


def _tool(quoted: Mapping[str, Any]) -> dict[str, Any]:
    given, gave = (next((name for name in names if name in quoted), "") for names in (_ARGUMENTS, _ANSWERS))
    return {semconv.TOOL_CALL_ARGUMENTS: json_at(quoted, given), semconv.TOOL_CALL_RESULT: json_at(quoted, gave)}


_RENDERERS: Final[Mapping[str, Render]] = {semconv.INVOKE_AGENT: _agent, semconv.EXECUTE_TOOL: _tool}


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return messages of the conventions; an answer to a tool's call gets the tool's role instead of the user's."""
    found = (
        [one for one in value if isinstance(one, dict) and role_of(one.get("role"))] if isinstance(value, list) else []
    )
    return [{**one, "role": TOOL} if _answers_calls(one) else one for one in found]


def _answers_calls(message: Mapping[str, Any]) -> bool:
    found = message.get("parts")
    kinds = [part.get("type") for part in found if isinstance(part, dict)] if isinstance(found, list) else []
    return bool(kinds) and set(kinds) == {"tool_call_response"}

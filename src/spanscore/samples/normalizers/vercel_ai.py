"""Normalizes spans of the Vercel AI SDK (npm ``ai``), with content under ``ai.*`` as JSON of its own messages.

Versions 3 to 6 write these names, and version 7 with ``LegacyOpenTelemetry``. Otherwise version 7 writes the names of the
conventions, which the GenAI normalizer reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import ASSISTANT, USER, parts_of, role_of, text_message
from spanscore.core.codecs.sdk import attributes_under
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    dicts_in,
    in_genai_names,
    json_at,
    plain_attributes,
    raw_attributes,
    rename_attributes,
    tool_content,
)

CALL: Final = "ai.operationId"
_TOOL: Final = "ai.toolCall"
_METADATA: Final = ("ai.telemetry.metadata.", semconv.VERCEL_CONTEXT)
_FUNCTION: Final = "ai.telemetry.functionId"
_PROMPT, _MESSAGES = "ai.prompt", "ai.prompt.messages"
_TEXT: Final = ("ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object")
_CALLED: Final = ("ai.response.toolCalls", "ai.result.toolCalls")
_REASONING: Final = "ai.response.reasoning"
_ARGUMENTS, _RESULT = "ai.toolCall.args", "ai.toolCall.result"
_TOOLS: Final = "ai.prompt.tools"
_CONTENT_NAMES: Final = frozenset({_PROMPT, _MESSAGES, *_TEXT, *_CALLED, _REASONING, _ARGUMENTS, _RESULT})
"""Attributes that quote; ``ai.result.*`` are the names of version 3."""
_RENAMED: Final[Mapping[str, tuple[str, ...]]] = {
    semconv.PROVIDER_NAME: (semconv.SYSTEM, "ai.model.provider"),
    semconv.REQUEST_MODEL: ("ai.model.id",),
    semconv.RESPONSE_MODEL: ("ai.response.model",),
    semconv.USAGE_INPUT_TOKENS: ("ai.usage.inputTokens", "ai.usage.promptTokens"),
    semconv.USAGE_OUTPUT_TOKENS: ("ai.usage.outputTokens", "ai.usage.completionTokens"),
}
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (vercel_ai)",
    "the AI SDK leaves it out: set recordInputs and recordOutputs of experimental_telemetry to true, or omit both",
)


class VercelAI:
    """Reads the AI SDK. Spans have content unless ``recordInputs`` or ``recordOutputs`` is false."""

    name = "vercel_ai"
    scopes: Sequence[str] = ("ai",)
    signatures: Sequence[bytes] = (CALL.encode(),)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has an operation of the SDK."""
        return isinstance(raw_attributes(span).get(CALL), str)

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        operation = operation_of(str(raw[CALL]))
        metadata = {key: value for prefix in _METADATA for key, value in attributes_under(prefix, raw).items()}
        plain = rename_attributes(raw, _RENAMED) | plain_attributes(raw, operation, metadata)
        if operation == semconv.EXECUTE_TOOL:
            plain |= {semconv.TOOL_NAME: raw.get("ai.toolCall.name"), semconv.TOOL_CALL_ID: raw.get("ai.toolCall.id")}
        elif operation == semconv.INVOKE_WORKFLOW:
            plain[semconv.WORKFLOW_NAME] = raw.get(_FUNCTION) or raw[CALL]
        raw_content = {name: value for name, value in raw.items() if name in _CONTENT_NAMES}
        render = _RENDERERS.get(operation, _run)
        return in_genai_names(
            span, plain, raw_content, render, no_content=_NO_CONTENT, metadata=metadata, tools=raw.get(_TOOLS)
        )


def operation_of(called: str) -> str:
    """Return the operation of a call such as ``ai.generateText``, ``ai.generateText.doGenerate`` or ``ai.toolCall``."""
    if called == _TOOL:
        return semconv.EXECUTE_TOOL
    if called.startswith(("ai.embed", "ai.rerank")):
        return semconv.EMBEDDINGS  # a reranking, too: neither has a question and an answer, and neither makes a unit
    return semconv.CHAT if called.rpartition(".")[2].startswith("do") else semconv.INVOKE_WORKFLOW


def _run(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    prompt = json_at(raw_content, _PROMPT)
    if isinstance(prompt, dict):
        prompt = prompt.get("messages") or prompt.get("prompt")
    prompts = [text_message(USER, prompt)] if isinstance(prompt, str) else _messages(prompt)
    return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: _answer(raw_content)}


def _model(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    prompts = _messages(json_at(raw_content, _MESSAGES))
    return {semconv.INPUT_MESSAGES: prompts or None, semconv.OUTPUT_MESSAGES: _answer(raw_content)}


_RENDERERS: Final[Mapping[str, Render]] = {
    semconv.CHAT: _model,
    semconv.EXECUTE_TOOL: tool_content(_ARGUMENTS, _RESULT),
}


def _answer(raw_content: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the answer as one message: reasoning, text (or an object's JSON) and calls; None without an answer."""
    text = next((raw_content[name] for name in _TEXT if name in raw_content), None)
    thought = raw_content.get(_REASONING)
    reasoning = [{"type": "reasoning", "content": thought}] if isinstance(thought, str) and thought else []
    calls = [{**call, "type": "tool-call"} for call in dicts_in(json_at(raw_content, *_CALLED))]
    answer_parts = [*reasoning, *parts_of(text), *parts_of(calls)]
    return [{"role": ASSISTANT, "parts": answer_parts}] if answer_parts or text is not None else None


def _messages(value: Any) -> list[dict[str, Any]]:
    return [message for item in dicts_in(value) for message in _message(item)]


def _message(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    role, content = role_of(values.get("role")), values.get("content")
    if role is None:
        return []
    blocks = [_block(block) for block in content] if isinstance(content, list) else content
    read = [part for block in blocks for part in block] if isinstance(blocks, list) else parts_of(blocks)
    return [{"role": role, "parts": read}]


def _block(block: Any) -> list[dict[str, Any]]:
    if isinstance(block, dict) and block.get("type") == "reasoning":
        return [{"type": "reasoning", "content": block.get("text")}]
    return parts_of([block])

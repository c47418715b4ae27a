"""Normalizes spans of Genkit (JavaScript, Go): input and output of each action as JSON of its own messages and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import TOOL, parts_of, role_of
from spanscore.core.codecs.text import as_text
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    content_of,
    dicts_in,
    fields_of,
    in_genai_names,
    json_at,
    name_attribute,
    plain_attributes,
    raw_attributes,
    rename_attributes,
    tool_content,
    unwrap,
)

TYPE, SUBTYPE = "genkit:type", "genkit:metadata:subtype"
_INPUT, _OUTPUT = "genkit:input", "genkit:output"
_GENERATE: Final = "generate"
_TOOL_WITH_PARTS: Final = "tool.v2"
"""Subtype of every tool in Go; its result is ``{"output": …}``, beside parts for a model."""
OPERATIONS: Final[Mapping[str, str]] = {
    "model": semconv.CHAT,
    "tool": semconv.EXECUTE_TOOL,
    _TOOL_WITH_PARTS: semconv.EXECUTE_TOOL,
    "retriever": semconv.RETRIEVAL,
    "embedder": semconv.EMBEDDINGS,
    "evaluator": semconv.EVALUATION,
    "flow": semconv.INVOKE_WORKFLOW,
    _GENERATE: semconv.INVOKE_WORKFLOW,
}
"""Subtype or type of an action, or the name of a helper → operation; any other action is a step."""
_USAGE: Final[Mapping[str, tuple[str, ...]]] = {
    semconv.USAGE_INPUT_TOKENS: ("inputTokens",),
    semconv.USAGE_OUTPUT_TOKENS: ("outputTokens",),
}
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (genkit)",
    "Genkit writes input and output of every action; an exporter of the traced application may have removed them, such as"
    " Google Cloud's with disableLoggingInputAndOutput",
)


class Genkit:
    """Reads Genkit's actions: flows, models, tools, retrievers and ``generate``. They have content by default."""

    name = "genkit"
    scopes: Sequence[str] = ("genkit-tracer",)
    signatures: Sequence[bytes] = (TYPE.encode(),)

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has Genkit's type."""
        return isinstance(raw_attributes(span).get(TYPE), str)

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        is_helper = raw[TYPE] == "util"
        kind = str(span.name if is_helper else raw.get(SUBTYPE) or raw[TYPE])
        operation = OPERATIONS.get(kind, semconv.EXECUTE_TASK)
        plain = plain_attributes(raw, operation, {}) | name_attribute(operation, span.name)
        if operation == semconv.CHAT:
            plain |= rename_attributes(fields_of(fields_of(json_at(raw, _OUTPUT)).get("usage")), _USAGE)
            plain[semconv.PROVIDER_NAME], _, plain[semconv.REQUEST_MODEL] = span.name.rpartition("/")
        is_step = operation == semconv.EXECUTE_TASK
        return in_genai_names(
            span,
            plain,
            {} if is_step else {name: raw[name] for name in (_INPUT, _OUTPUT) if raw.get(name) is not None},
            _RENDERERS.get(kind, _flow),
            no_content=None if is_step else _NO_CONTENT,
        )


def _flow(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    return content_of(semconv.INVOKE_WORKFLOW, json_at(raw_content, _INPUT), json_at(raw_content, _OUTPUT))


def _model(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    request, response = (fields_of(json_at(raw_content, name)) for name in (_INPUT, _OUTPUT))
    return {
        semconv.TOOL_DEFINITIONS: dicts_in(request.get("tools")) or None,
        semconv.INPUT_MESSAGES: list(map(_message, dicts_in(request.get("messages")))) or None,
        semconv.OUTPUT_MESSAGES: list(map(_message, dicts_in([response.get("message")]))) or None,
    }


def _tool_with_parts(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        semconv.TOOL_CALL_ARGUMENTS: json_at(raw_content, _INPUT),
        semconv.TOOL_CALL_RESULT: unwrap(json_at(raw_content, _OUTPUT), "output"),
    }


def _generate(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the messages without the documents that Genkit appends to the question, and the documents as a value."""
    content, request = _model(raw_content), fields_of(json_at(raw_content, _INPUT))
    if documents := request.get("docs"):
        content[semconv.INPUT_MESSAGES] = [
            _message(
                {**message, "content": [block for block in dicts_in(message.get("content")) if not _is_context(block)]}
            )
            for message in dicts_in(request.get("messages"))
        ]
        content[semconv.INPUT_VALUE] = {"documents": _documents(documents)}
    return content


def _is_context(block: Mapping[str, Any]) -> bool:
    return bool(fields_of(block.get("metadata")).get("purpose") == "context")


def _retrieval(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    query, documents = (
        fields_of(json_at(raw_content, name)).get(key) for name, key in ((_INPUT, "query"), (_OUTPUT, "documents"))
    )
    return {
        semconv.RETRIEVAL_QUERY: _text(query) if isinstance(query, dict) else query,
        semconv.RETRIEVAL_DOCUMENTS: None if documents is None else _documents(documents),
    }


def _documents(documents: Any) -> list[dict[str, Any]]:
    return [{"content": _text(document)} for document in dicts_in(documents)]


def _text(document: Mapping[str, Any]) -> str:
    texts = (block.get("text") for block in dicts_in(document.get("content")))
    return "".join(text for text in texts if isinstance(text, str))


_RENDERERS: Final[Mapping[str, Render]] = {
    "model": _model,
    "tool": tool_content(_INPUT, _OUTPUT),
    _TOOL_WITH_PARTS: _tool_with_parts,
    "retriever": _retrieval,
    _GENERATE: _generate,
}
"""Kind of an action → function that makes its content; others use ``_flow``."""


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"role": "model", "content": [{"text"} | {"media"} | {"toolRequest"} | {"toolResponse"}]}`` as a message."""
    parts = [part for block in dicts_in(message.get("content")) for part in _parts(block)]
    role = str(message.get("role"))
    return {"role": TOOL if role == TOOL else role_of(role) or role, "parts": parts}


def _parts(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    request, response, media = (block.get(name) for name in ("toolRequest", "toolResponse", "media"))
    if "data" in block:  # a structured answer
        return parts_of(as_text(block["data"]))
    if isinstance(request, dict):
        call = {"id": request.get("ref"), "name": request.get("name"), "arguments": request.get("input")}
        return [{"type": "tool_call", **call}]
    if isinstance(response, dict):
        return [{"type": "tool_call_response", "id": response.get("ref"), "response": response.get("output")}]
    return parts_of({"type": "image_url", "image_url": media} if isinstance(media, dict) else dict(block))

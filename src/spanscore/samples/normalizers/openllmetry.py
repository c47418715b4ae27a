"""Normalizes OpenLLMetry spans (Traceloop, Dynatrace, Instana): JSON inputs and outputs, and GenAI names in a sense of its own.

OpenLLMetry names every chain at the top ``invoke_agent``, and every retriever ``vector_db_retrieve``. It writes the callback's
arguments, tags and metadata into a tool's ``gen_ai.tool.call.arguments``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from spanscore import semconv
from spanscore.core.codecs.messages import INPUT_OF_STREAM, join_text_blocks
from spanscore.core.codecs.sdk import attributes_under
from spanscore.core.codecs.stored_sample import call_id_in
from spanscore.core.codecs.text import from_wire
from spanscore.core.span import Attributes, NoContent, SpanData
from spanscore.samples.normalizers.building import (
    Render,
    agent_of_model,
    arguments_in,
    content_of,
    conversation_of,
    fields_of,
    in_genai_names,
    is_langchain_agent,
    json_at,
    name_attribute,
    plain_attributes,
    raw_attributes,
    unwrap,
    value_of,
)
from spanscore.samples.normalizers.genai import conventional
from spanscore.samples.texts import documents_in

_PROVIDERS: Final = (
    *("alephalpha", "anthropic", "bedrock", "cohere", "crewai", "google_generativeai", "groq", "haystack", "langchain"),
    *("llamaindex", "mistralai", "ollama", "openai.", "replicate", "sagemaker", "together", "transformers", "vertexai"),
    *("watsonx", "writer", "mcp", "agno"),
)
"""Names after ``opentelemetry.instrumentation.`` in the scopes. ``openai.`` has a dot, because ``openai_v2`` and
``openai_agents`` belong to the GenAI normalizer.
"""
_SCOPES: Final = (
    *(f"opentelemetry.instrumentation.{name}" for name in _PROVIDERS),
    "traceloop.tracer",
    "@traceloop/instrumentation-",
)
_DATABASES: Final = tuple(
    f"opentelemetry.instrumentation.{name}" for name in ("chromadb", "marqo", "milvus", "pinecone")
)
"""Scopes of vector databases whose spans have an event for each result. Spans of LanceDB, Qdrant and Weaviate have none."""
_RESULT_EVENTS: Final = frozenset({"db.query.result", "db.search.result"})
_RESULTS: Final = "events with results"
"""Key of these events in the raw content."""
_OFF: Final = NoContent(
    "content is not on the spans (openllmetry)",
    "OpenLLMetry writes it unless TRACELOOP_TRACE_CONTENT=false: unset that for the traced application",
)
_OF_LLAMA_INDEX: Final = NoContent(
    _OFF.reason,
    f"{_OFF.hint}. The span of a LlamaIndex agent often has none: trace the client of its model, too"
    " (opentelemetry-instrumentation-openai …)",
)
_IN_RECORDS: Final = NoContent(
    "content is in log records, not on the spans (openllmetry)",
    "OpenLLMetry's instrumentor was created with use_legacy_attributes=False: leave that argument out, or add"
    " ScoringLogRecordProcessor(scorer) to the LoggerProvider, next to ScoringSpanProcessor",
)
_INPUTS: Final = (semconv.TRACELOOP_INPUT, semconv.TASK_INPUT, semconv.TOOL_CALL_ARGUMENTS)
_OUTPUTS: Final = (semconv.TRACELOOP_OUTPUT, semconv.TASK_OUTPUT, semconv.TOOL_CALL_RESULT)
"""Attributes of outputs, in the order in which they are read. A tool of OpenAI's agents has only the last."""
_CONTENT_NAMES: Final = frozenset({*_INPUTS, *_OUTPUTS})
_UNKNOWN: Final = "unknown"


class OpenLLMetry:
    """Reads OpenLLMetry. Spans have content by default; ``TRACELOOP_TRACE_CONTENT=false`` removes it."""

    name = "openllmetry"
    scopes: Sequence[str] = (*_SCOPES, *_DATABASES)
    signatures: Sequence[bytes] = (semconv.TRACELOOP_KIND.encode(), b"traceloop.entity.")

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has Traceloop's kind or workflow, is a database's, or has GenAI names in a known scope."""
        raw = raw_attributes(span)
        if semconv.TRACELOOP_KIND in raw or semconv.TRACELOOP_WORKFLOW in raw or span.scope.startswith(_DATABASES):
            return True
        if not span.scope.startswith(_SCOPES):
            return False
        # A long chat may lack operation and system, because the SDK keeps 128 attributes and drops the oldest. Its completion
        # is then enough.
        return (
            semconv.OPERATION_NAME in raw
            or semconv.SYSTEM in raw
            or any(name.startswith(f"{semconv.COMPLETION}.") for name in raw)
        )

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        metadata = _metadata(raw)
        if span.scope.startswith(_DATABASES):
            results = [event for name, event in span.events if name in _RESULT_EVENTS]
            plain = {semconv.OPERATION_NAME: semconv.VECTOR_DB}
            return in_genai_names(span, plain, {_RESULTS: results} if results else {}, _results, no_content=None)
        if semconv.TRACELOOP_KIND not in raw:
            return _model(conventional(span, no_content=_no_content), metadata)
        operation = _operation(span, raw, metadata)
        is_step = operation == semconv.EXECUTE_TASK and bool(raw.get(semconv.TRACELOOP_WORKFLOW))
        # The content of a step is left out, because the spans around it have the same content.
        raw_content = {} if is_step else {name: raw[name] for name in _CONTENT_NAMES & raw.keys()}
        return in_genai_names(
            span,
            _describe(span, raw, operation, metadata),
            raw_content,
            _RENDERERS.get(operation, _root),
            no_content=None if is_step else _no_content(span.scope),
            metadata=metadata,
        )


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = attributes_under(semconv.TRACELOOP_PROPERTIES, raw)
    inputs = raw.get(semconv.TRACELOOP_INPUT)
    if properties or raw.get(semconv.TRACELOOP_KIND) != "workflow" or not isinstance(inputs, str):
        return properties
    # Releases before 0.50 have metadata only in the input. This check saves most inputs from being parsed.
    if '"metadata": {"' not in inputs:
        return properties
    return fields_of(unwrap(from_wire(inputs), "metadata"))


def _operation(span: SpanData, raw: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    kind = raw.get(semconv.TRACELOOP_KIND)
    if kind == "tool":
        return semconv.EXECUTE_TOOL
    is_retriever = (
        span.scope == semconv.LLAMA_INDEX_SCOPE and kind == "task" and _name(span, raw).endswith("Retriever.task")
    )
    if is_retriever or raw.get(semconv.OPERATION_NAME) == semconv.VECTOR_DB_RETRIEVE:
        return semconv.RETRIEVAL
    if kind == "agent" or is_langchain_agent(_name(span, raw), metadata, is_root=kind == "workflow"):
        return semconv.INVOKE_AGENT
    return semconv.INVOKE_WORKFLOW if kind == "workflow" else semconv.EXECUTE_TASK


def _name(span: SpanData, raw: Mapping[str, Any]) -> str:
    return str(raw.get(semconv.TRACELOOP_ENTITY) or span.name)


def _describe(span: SpanData, raw: Mapping[str, Any], operation: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    plain = plain_attributes(raw, operation, metadata)
    plain.pop(semconv.AGENT_NAME, None)  # OpenLLMetry names every chain an agent
    plain |= name_attribute(operation, _name(span, raw))
    if operation == semconv.EXECUTE_TOOL:
        plain[semconv.TOOL_NAME] = raw.get(semconv.TOOL_NAME) or _name(span, raw)
        # LangChain has the id of the call only in the tool's output.
        ids = (identity for name in _OUTPUTS if (identity := call_id_in(raw.get(name))))
        plain[semconv.TOOL_CALL_ID] = next(ids, raw.get(semconv.TOOL_CALL_ID))
    return plain


def _model(span: SpanData, metadata: Mapping[str, Any]) -> SpanData:
    """Return a span with corrected GenAI names: LangChain's model name, the conversation, and the agent."""
    attributes = span.attributes
    assert isinstance(attributes, Attributes)
    corrected = {
        semconv.CONVERSATION_ID: attributes.get(semconv.CONVERSATION_ID) or conversation_of({}, metadata),
        semconv.REQUEST_MODEL: _model_name(attributes.get(semconv.REQUEST_MODEL), metadata.get("ls_model_name")),
        semconv.RESPONSE_MODEL: _model_name(attributes.get(semconv.RESPONSE_MODEL), None),
    }
    if span.operation in semconv.MODEL_OPERATIONS:
        corrected[semconv.AGENT_NAME] = agent_of_model(metadata)
    return replace(span, attributes=attributes.with_plain(corrected), metadata={**span.metadata, **metadata})


def _model_name(name: Any, default: Any) -> Any:
    return default if name in (None, _UNKNOWN) else name


def _no_content(scope: str) -> NoContent:
    """Return the reason for missing content. If the instrumentation is loaded in this process, its own setting decides."""
    parts = scope.split(".")[:3]
    modules = (sys.modules.get(".".join([*parts, *rest])) for rest in (["config"], ["shared", "config"]))
    legacy = [getattr(getattr(module, "Config", None), "use_legacy_attributes", True) for module in modules if module]
    if False in legacy:
        return _IN_RECORDS
    return _OF_LLAMA_INDEX if scope == semconv.LLAMA_INDEX_SCOPE else _OFF


def _root(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    inputs, outputs = unwrap(json_at(raw_content, *_INPUTS), "inputs"), json_at(raw_content, *_OUTPUTS)
    if inputs == INPUT_OF_STREAM:
        inputs = fields_of(fields_of(outputs).get("kwargs")).get("inputs", inputs)
    response = unwrap(unwrap(outputs, "result"), "response")
    if "blocks" in fields_of(response):  # the end of a LlamaIndex agent
        outputs = join_text_blocks(response["blocks"])
    return content_of(semconv.INVOKE_WORKFLOW, arguments_in(inputs), unwrap(outputs, "outputs"))


def _tool(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    inputs, outputs = _arguments(json_at(raw_content, *_INPUTS)), json_at(raw_content, *_OUTPUTS)
    # LangChain's callback wraps the result: {"output": …, "kwargs": …}.
    if isinstance(outputs, dict) and "output" in outputs and outputs.keys() <= {"output", "kwargs"}:
        outputs = outputs["output"]
    return content_of(semconv.EXECUTE_TOOL, inputs, outputs)


def _arguments(value: Any) -> Any:
    if not isinstance(value, dict):
        return value_of(value)
    if "input_str" in value:
        return value["inputs"] if value.get("inputs") is not None else value_of(value["input_str"])
    return arguments_in(unwrap(value, "inputs"))


def _retrieval(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    query = json_at(raw_content, *_INPUTS)
    for key in ("query_bundle", "str_or_query_bundle", "query_str"):  # LlamaIndex's: {"query_bundle": {"query_str"}}
        query = unwrap(query, key)
    return content_of(semconv.RETRIEVAL, query, json_at(raw_content, *_OUTPUTS))


def _results(raw_content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documents of a search if each has a text: Chroma's document, or a text in Pinecone's metadata."""
    documents = []
    for event in raw_content[_RESULTS]:
        fields = {name.rpartition(".")[2]: value for name, value in event.items()}
        inner = value_of(fields.get("metadata", fields.get("entity")))
        documents.append({"document": inner, **fields, "id": fields.get("id", fields.get("_id"))})
    retrieved = documents_in(documents) or []
    has_texts = len(retrieved) == len(documents) and all(document.content for document in retrieved)
    return {semconv.RETRIEVAL_DOCUMENTS: documents if has_texts else None}


_RENDERERS: Final[Mapping[str, Render]] = {semconv.EXECUTE_TOOL: _tool, semconv.RETRIEVAL: _retrieval}
"""Operation → function that renders its content; other operations use ``_root``."""

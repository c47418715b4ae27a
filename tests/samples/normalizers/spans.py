"""One span of each dialect, as its writer makes it with content and without; and the units that foreign spans make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.sdk import WireAttributes
from spanscore.core.sample import Samples
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.pipeline.assembly import split
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.genai import GenAINormalizer
from spanscore.samples.normalizers.genkit import Genkit
from spanscore.samples.normalizers.google_adk import GoogleADK
from spanscore.samples.normalizers.langfuse import Langfuse
from spanscore.samples.normalizers.logfire import Logfire
from spanscore.samples.normalizers.mastra import Mastra
from spanscore.samples.normalizers.mlflow import MLflow
from spanscore.samples.normalizers.openinference import OpenInference
from spanscore.samples.normalizers.openllmetry import OpenLLMetry
from spanscore.samples.normalizers.pydantic_ai import PydanticAI
from spanscore.samples.normalizers.registry import SpanNormalizers
from spanscore.samples.normalizers.vercel_ai import VercelAI
from spanscore.testing import make_span

QUESTION = "What is the capital of France?"
ANSWER = "Paris is the capital of France."

OPENINFERENCE_CHAT: Mapping[str, Any] = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-4.1",
    "llm.provider": "openai",
    "llm.token_count.prompt": 20,
    "input.mime_type": "application/json",
    "input.value": '{"model": "gpt-4.1", "messages": [{"role": "user", "content": "What is the capital of France?"}]}',
    "output.value": ANSWER,
    "llm.invocation_parameters": '{"model": "gpt-4.1", "user": "ada"}',
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be brief.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": QUESTION,
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": ANSWER,
    "metadata": '{"tier": "gold", "thread_id": "t-1"}',
}
OPENLLMETRY_WORKFLOW: Mapping[str, Any] = {
    "traceloop.span.kind": "workflow",
    "traceloop.workflow.name": "capital",
    "traceloop.entity.name": "capital",
    "traceloop.association.properties.thread_id": "t-1",
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "capital",
    "traceloop.entity.input": f'{{"inputs": {{"question": "{QUESTION}"}}, "tags": [], "metadata": {{}}, "kwargs": {{}}}}',
    "traceloop.entity.output": f'{{"outputs": "{ANSWER}", "kwargs": {{}}}}',
    "gen_ai.task.input": f'{{"inputs": {{"question": "{QUESTION}"}}, "tags": [], "metadata": {{}}, "kwargs": {{}}}}',
}
GENAI_CHAT: Mapping[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4.1",
    "gen_ai.usage.input_tokens": 20,
    "gen_ai.input.messages": f'[{{"role": "user", "parts": [{{"type": "text", "content": "{QUESTION}"}}]}}]',
    "gen_ai.output.messages": f'[{{"role": "assistant", "content": "{ANSWER}", "finish_reason": "stop"}}]',
    "gen_ai.prompt.0.content": QUESTION,
    "server.address": "api.openai.com",
}
VERCEL_RUN: Mapping[str, Any] = {
    "ai.operationId": "ai.generateText",
    "ai.telemetry.functionId": "capital",
    "ai.telemetry.metadata.sessionId": "t-1",
    "ai.prompt": f'{{"system": "Be brief.", "prompt": "{QUESTION}"}}',
    "ai.response.text": ANSWER,
}
PYDANTIC_RUN: Mapping[str, Any] = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "capital",
    "gen_ai.conversation.id": "t-1",
    "pydantic_ai.all_messages": f'[{{"role": "user", "parts": [{{"type": "text", "content": "{QUESTION}"}}]}}]',
    "final_result": ANSWER,
}
ADK_CALL: Mapping[str, Any] = {
    "gen_ai.system": "gcp.vertex.agent",
    "gen_ai.request.model": "gemini-2.0-flash",
    "gcp.vertex.agent.session_id": "t-1",
    "gcp.vertex.agent.llm_request": '{"model": "gemini-2.0-flash", "config": {"system_instruction": "Be brief."}, "contents":'
    f' [{{"parts": [{{"text": "{QUESTION}"}}], "role": "user"}}]}}',
    "gcp.vertex.agent.llm_response": f'{{"content": {{"parts": [{{"text": "{ANSWER}"}}], "role": "model"}}, "partial": false}}',
}
"""The form of version 1, from its source: the recorded version writes the conventions' own names."""
LANGFUSE_RUN: Mapping[str, Any] = {
    "langfuse.observation.type": "chain",
    "langfuse.session.id": "t-1",
    "langfuse.observation.metadata.tier": "gold",
    "langfuse.observation.input": f'{{"args": ["{QUESTION}"], "kwargs": {{}}}}',
    "langfuse.observation.output": ANSWER,
}
LOGFIRE_CHAT: Mapping[str, Any] = {
    "logfire.span_type": "span",
    "logfire.msg": "Chat Completion with 'gpt-4.1'",
    "gen_ai.system": "openai",
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4.1",
    "request_data": f'{{"model": "gpt-4.1", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}',
    "response_data": f'{{"message": {{"role": "assistant", "content": "{ANSWER}"}}, "usage": {{"total_tokens": 9}}}}',
}
MLFLOW_RUN: Mapping[str, Any] = {
    "mlflow.spanType": '"CHAIN"',
    "mlflow.spanInputs": f'{{"question": "{QUESTION}"}}',
    "mlflow.spanOutputs": f'"{ANSWER}"',
}
MASTRA_RUN: Mapping[str, Any] = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "capital",
    "mastra.span.type": "agent_run",
    "mastra.agent_run.input": QUESTION,
    "mastra.agent_run.output": f'{{"text": "{ANSWER}", "files": []}}',
    "mastra.metadata.sessionId": "t-1",
}
GENKIT_RUN: Mapping[str, Any] = {
    "genkit:type": "action",
    "genkit:metadata:subtype": "flow",
    "genkit:input": f'"{QUESTION}"',
    "genkit:output": f'"{ANSWER}"',
}
_OFF = (
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "traceloop.span.kind",
    "openinference.span.kind",
    "llm.model_name",
    "ai.operationId",
    "gen_ai.system",
    "langfuse.observation.type",
    "mlflow.spanType",
    "mastra.span.type",
    "genkit:type",
    "genkit:metadata:subtype",
)
_EVENT = ("gen_ai.user.message", {"gen_ai.event.content": QUESTION})


def external(attributes: Mapping[str, Any], scope: str = "some.scope", **fields: Any) -> SpanData:
    """A span as it comes over the wire."""
    return replace(make_span(scope=scope, **fields), attributes=WireAttributes(dict(attributes)))


def _silent(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name in _OFF}


SPANS: dict[type, Callable[[], SpanData]] = {
    GenAINormalizer: lambda: external(GENAI_CHAT, "opentelemetry.instrumentation.openai_v2", events=[_EVENT]),
    OpenInference: lambda: external(OPENINFERENCE_CHAT, "openinference.instrumentation.openai", events=[_EVENT]),
    OpenLLMetry: lambda: external(OPENLLMETRY_WORKFLOW, "opentelemetry.instrumentation.langchain", events=[_EVENT]),
    VercelAI: lambda: external(VERCEL_RUN, "ai", events=[_EVENT]),
    PydanticAI: lambda: external(PYDANTIC_RUN, "pydantic-ai", events=[_EVENT]),
    GoogleADK: lambda: external(ADK_CALL, "gcp.vertex.agent", name="call_llm", events=[_EVENT]),
    Langfuse: lambda: external(LANGFUSE_RUN, "langfuse-sdk", events=[_EVENT]),
    MLflow: lambda: external(MLFLOW_RUN, "mlflow.tracing.provider", events=[_EVENT]),
    Mastra: lambda: external(MASTRA_RUN, "@mastra/otel-exporter", events=[_EVENT]),
    Genkit: lambda: external(GENKIT_RUN, "genkit-tracer", events=[_EVENT]),
    Logfire: lambda: external(LOGFIRE_CHAT, "logfire.openai", events=[_EVENT]),
}
"""A span that each normalizer reads; a normalizer without a span has no test."""
SILENT: dict[type, Callable[[], SpanData]] = {
    GenAINormalizer: lambda: external(_silent(GENAI_CHAT), "opentelemetry.instrumentation.openai_v2"),
    OpenInference: lambda: external(
        {
            **_silent(OPENINFERENCE_CHAT),
            "input.value": "__REDACTED__",
            "output.value": "__REDACTED__",
            "output.mime_type": "text/plain",
        }
    ),
    OpenLLMetry: lambda: external(_silent(OPENLLMETRY_WORKFLOW), "opentelemetry.instrumentation.langchain"),
    VercelAI: lambda: external(_silent(VERCEL_RUN), "ai"),
    PydanticAI: lambda: external(_silent(PYDANTIC_RUN), "pydantic-ai"),
    GoogleADK: lambda: external(
        {**_silent(ADK_CALL), "gcp.vertex.agent.llm_request": "{}", "gcp.vertex.agent.llm_response": "{}"},
        "gcp.vertex.agent",
        name="call_llm",
    ),
    Langfuse: lambda: external(_silent(LANGFUSE_RUN), "langfuse-sdk"),
    MLflow: lambda: external(_silent(MLFLOW_RUN), "mlflow.tracing.provider"),
    Mastra: lambda: external(_silent(MASTRA_RUN), "@mastra/otel-exporter"),
    Genkit: lambda: external(_silent(GENKIT_RUN), "genkit-tracer"),
    Logfire: lambda: external(_silent(LOGFIRE_CHAT), "logfire.openai"),
}


def units_of(spans: Iterable[SpanData]) -> list[Unit]:
    """The units of spans that have all ended, by the rule of all receivers."""
    translate = SpanNormalizers().translate
    claimed = {span.span_id: span for given in spans if (span := translate(given)) is not None}
    units: dict[int, list[SpanData]] = {}
    for span in sorted(claimed.values(), key=lambda one: one.start_ns):
        units.setdefault(_top(span, claimed), []).append(span)
    tops = [Unit(UnitKey(spans[0].trace_id, top), tuple(spans)) for top, spans in units.items()]
    return [unit for top in tops for unit in split(top)]


def _top(span: SpanData, claimed: Mapping[int, SpanData]) -> int:
    seen = {span.span_id}
    while span.parent_id in claimed and span.parent_id not in seen:
        seen.add(span.parent_id)
        span = claimed[span.parent_id]
    return span.span_id


def samples_of(*spans: SpanData) -> Samples:
    """The samples of the one unit that these spans make."""
    (unit,) = units_of(spans)
    return GenAIExtractor().extract(unit)


def is_sound(samples: Samples) -> bool:
    """Whether there is either a sample that can be sent, or an outcome with its reason."""
    there = [sample for sample in (samples.single_turn, samples.multi_turn) if sample is not None]
    assert all(sample.model_dump_json().encode() for sample in there)
    return bool(there) == (samples.outcome is None) and (bool(there) or bool(samples.reason))


def content_of(span: SpanData) -> dict[str, Any]:
    """The content of a claimed span, in GenAI names."""
    translated = SpanNormalizers().translate(span)
    assert translated is not None
    return {name: value for name, value in translated.attributes.items() if semconv.is_content(name)}

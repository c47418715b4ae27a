"""Normalizes spans of MLflow tracing: inputs, outputs and the span's type, each as JSON text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from spanscore import semconv
from spanscore.core.span import NoContent, SpanData
from spanscore.samples.normalizers.building import (
    content_of,
    fields_of,
    in_genai_names,
    json_at,
    name_attribute,
    plain_attributes,
    raw_attributes,
    rename_attributes,
)

TYPE, _INPUTS, _OUTPUTS = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"
_SESSION: Final = "mlflow.trace.session"
OPERATIONS: Final[Mapping[str, str]] = {
    "CHAT_MODEL": semconv.CHAT,
    "LLM": semconv.CHAT,
    "TOOL": semconv.EXECUTE_TOOL,
    "RETRIEVER": semconv.RETRIEVAL,
    "AGENT": semconv.INVOKE_AGENT,
    "EMBEDDING": semconv.EMBEDDINGS,
    "EVALUATOR": semconv.EVALUATION,
    "RERANKER": semconv.RERANK,
}
"""Type → operation; any other type, or none, becomes ``invoke_workflow``. An evaluator's span is not read."""
_USAGE: Final[Mapping[str, tuple[str, ...]]] = {
    semconv.USAGE_INPUT_TOKENS: ("input_tokens",),
    semconv.USAGE_OUTPUT_TOKENS: ("output_tokens",),
}
_NO_CONTENT: Final = NoContent(
    "content is not on the spans (mlflow)",
    "MLflow writes inputs and outputs of every span; a span processor of the traced application may have removed them",
)


class MLflow:
    """Reads MLflow's own spans (3 and later) from its OTLP export."""

    name = "mlflow"
    scopes: Sequence[str] = ("mlflow",)
    signatures: Sequence[bytes] = (TYPE.encode(), _INPUTS.encode())

    def accepts(self, span: SpanData) -> bool:
        """Return whether the span has MLflow's type, inputs or outputs."""
        return bool(raw_attributes(span).keys() & {TYPE, _INPUTS, _OUTPUTS})

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span in GenAI names."""
        raw = raw_attributes(span)
        operation = OPERATIONS.get(str(json_at(raw, TYPE)), semconv.INVOKE_WORKFLOW)
        plain = plain_attributes(raw, operation, {"session_id": json_at(raw, _SESSION)}) | name_attribute(
            operation, span.name
        )
        if operation == semconv.CHAT:
            plain |= rename_attributes(fields_of(json_at(raw, "mlflow.chat.tokenUsage")), _USAGE)
            plain[semconv.REQUEST_MODEL] = json_at(raw, "mlflow.llm.model")
        raw_content = {name: raw[name] for name in (_INPUTS, _OUTPUTS) if raw.get(name) is not None}
        return in_genai_names(
            span,
            plain,
            raw_content,
            lambda content: content_of(operation, json_at(content, _INPUTS), json_at(content, _OUTPUTS)),
            no_content=_NO_CONTENT,
            tools=raw.get("mlflow.chat.tools"),
        )

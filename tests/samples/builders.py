"""Units as our capture makes them: live values → snapshots → content → SpanData; and the same by way of the SDK."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from spanscore import semconv
from spanscore.core.codecs import langchain as codec
from spanscore.core.codecs.sdk import encode_attributes, span_data
from spanscore.core.codecs.snapshot import snapshot, snapshot_generation, snapshot_messages, snapshot_tool_output
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.testing import make_span, make_unit


@dataclass(frozen=True)
class Run:
    """One run. ``under``: position of its parent among the unit's runs (0: the root)."""

    operation: str
    content: dict[str, Any]
    under: int = 0
    plain: dict[str, Any] = field(default_factory=dict)
    failed: bool = False


def root(
    inputs: Any = None, outputs: Any = None, expected: Any = None, *, failed: bool = False, end: str = "completed"
) -> Run:
    content = codec.root_content(snapshot(inputs), snapshot(outputs), expected)
    return Run(semconv.INVOKE_WORKFLOW, content, plain={semconv.RUN_END: end}, failed=failed)


def chat(asked: list[Any], *said: str | BaseMessage, under: int = 0) -> Run:
    answers = [AIMessage(s) if isinstance(s, str) else s for s in said]
    result = LLMResult(generations=[[ChatGeneration(message=message) for message in answers]])
    taken = snapshot_generation(result) if said else None
    return Run(semconv.CHAT, codec.chat_content(snapshot_messages([asked]), taken), under)


def retriever(query: str, documents: Any, under: int = 0) -> Run:
    found = None if documents is None else snapshot(documents)
    return Run(semconv.RETRIEVAL, codec.retriever_content(query, found), under, failed=documents is None)


def tool(name: str, arguments: Any, output: Any, *, call_id: str | None = None, under: int = 0) -> Run:
    content = codec.tool_content(snapshot(arguments), snapshot_tool_output(output))
    plain = {semconv.TOOL_NAME: name} | ({semconv.TOOL_CALL_ID: call_id} if call_id else {})
    return Run(semconv.EXECUTE_TOOL, content, under, plain)


def unit(*runs: Run) -> Unit:
    """The unit of these runs; the first is the root. Runs end in the order in which they start, the root last."""
    spans = [
        make_span(
            run.operation,
            trace_id=1,
            span_id=position + 1,
            parent_id=None if position == 0 else run.under + 1,
            name=run.operation,
            start_ns=position,
            end_ns=1_000 if position == 0 else 500 + position,
            status="error" if run.failed else "unset",
            attributes={**run.plain, **run.content},
        )
        for position, run in enumerate(runs)
    ]
    return make_unit(*spans)


def through_the_sdk(given: Unit) -> Unit:
    """The same unit as a receiver would see it: exported by the SDK, read back."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer(semconv.CAPTURE_SCOPE)
    live: dict[int, trace.Span] = {}
    for span in given.spans:
        parent = trace.set_span_in_context(live[span.parent_id]) if span.parent_id else None
        attributes = encode_attributes(span.attributes)
        live[span.span_id] = tracer.start_span(span.name, parent, attributes=attributes, start_time=span.start_ns)
        if span.status == "error":
            live[span.span_id].set_status(StatusCode.ERROR)
    for span in given.spans:
        live[span.span_id].end(end_time=span.end_ns)
    read = sorted(map(_read, exporter.get_finished_spans()), key=lambda span: span.start_ns)
    return Unit(UnitKey(read[0].trace_id, read[0].span_id), tuple(read))


def _read(readable: ReadableSpan) -> SpanData:
    return replace(span_data(readable), resource=None)

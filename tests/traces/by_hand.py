"""Spans of ``opentelemetry-instrumentation-openai-v2`` for the chain: written by hand, as no version of it imports with this
SDK.

Tried were 2.1b0 to 2.4b0. By default content is on log events and not on spans; with ``gen_ai_latest_experimental`` opted in
and content asked for on spans it is there as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from tests.traces.said import ANSWERS, CAPITAL, MODEL, SYSTEM

NAME: Final = "by-hand-openai-v2-2.4b0"
_PLAIN: Final[Mapping[str, Any]] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.model": MODEL,
    "gen_ai.response.model": MODEL,
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.usage.input_tokens": 20,
    "gen_ai.usage.output_tokens": 5,
    "server.address": "127.0.0.1",
}


def chain(provider: TracerProvider, *, content: bool) -> Sequence[ReadableSpan]:
    """Return its span, made by this provider."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("opentelemetry.instrumentation.openai_v2", "2.4b0")
    attributes = {**_PLAIN, **_content()} if content else _PLAIN
    tracer.start_span(f"chat {MODEL}", kind=SpanKind.CLIENT, attributes=attributes).end()
    return exporter.get_finished_spans()


def _content() -> dict[str, str]:
    asked = [_message("system", SYSTEM), _message("user", CAPITAL)]
    said = [{**_message("assistant", ANSWERS[CAPITAL]), "finish_reason": "stop"}]
    return {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(said)}


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}

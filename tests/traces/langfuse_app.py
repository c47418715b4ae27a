"""The decorated programs, traced by Langfuse's SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from langfuse import Langfuse, observe
from langfuse.openai import OpenAI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.traces.decorated import decorated


def attach(provider: TracerProvider) -> None:
    """Let Langfuse's client use the provider; its exports to its own server are dropped."""
    Langfuse(public_key="none", secret_key="none", tracer_provider=provider, span_exporter=InMemorySpanExporter())


def programs(url: str) -> Mapping[str, Callable[[], object]]:
    """Return the programs, to be called: their model is at this address."""
    return decorated(OpenAI(base_url=url, api_key="none"), lambda kind: observe(as_type=kind))

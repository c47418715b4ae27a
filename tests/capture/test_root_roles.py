"""A span has the same role by its attributes as they came, as a unit is counted, and by its operation, as a unit is read.

Roles of scopes are checked with the scopes of real instrumentations from their recordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from tests.traces.recordings import RECORDINGS

from spanscore import semconv
from spanscore.capture.scopes import Role, Scopes, root_role, scope_notes
from spanscore.core.codecs.otlp import read_spans
from spanscore.core.span import SpanData
from spanscore.pipeline.assembly import RootRole, role_of_operation
from spanscore.samples.normalizers import genai, genkit, langfuse, mastra, mlflow, openinference, spring_ai
from spanscore.samples.normalizers.building import raw_attributes
from spanscore.samples.normalizers.registry import TRANSLATIONS, SpanNormalizers
from spanscore.testing import make_span

ASKED = {
    "langsmith": {semconv.PROMPT: "2 + 2?"},
    "any": {semconv.PROMPT: "2 + 2?"},
    "mlflow": {"mlflow.spanInputs": '"2 + 2?"'},
    "openinference.instrumentation.langchain": {semconv.INPUT_VALUE: "2 + 2?"},
}
SPRING = "org.springframework.boot"
WITHOUT_KINDS = {"genai", "google_adk", "pydantic_ai"}
"""Normalizers whose spans have ``gen_ai.operation.name``, which decides the role."""


def kinds() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Give the scope and the attributes of a span of each kind of each writer, and of one kind that is in no table."""
    for kind in (*openinference.OPERATIONS, "CHAIN", "PROMPT"):
        yield "openinference.instrumentation.langchain", {semconv.OPENINFERENCE_KIND: kind}
    for kind in (*sorted(genai.OPERATION_OF_TYPE), "chat"):
        yield "any", {semconv.REQUEST_TYPE: kind, semconv.SYSTEM: "openai"}
    for kind in (*sorted(semconv.WORDLESS_REQUESTS), "acompletion"):
        yield "litellm", {semconv.OPERATION_NAME: kind, semconv.REQUEST_MODEL: "gpt-4o"}
    for kind in (*genai.OPERATION_OF_RUN, "chain"):
        yield "langsmith", {semconv.LANGSMITH_KIND: kind}
    for kind in (*langfuse.OPERATIONS, "span"):
        yield "langfuse-sdk", {langfuse.TYPE: kind}
    yield from kinds_of_javascript()
    yield from kinds_of_spring_ai()
    for kind in (*mlflow.OPERATIONS, "CHAIN"):
        yield "mlflow", {mlflow.TYPE: f'"{kind}"'}
    for kind in (
        "ai.embed",
        "ai.embedMany.doEmbed",
        "ai.rerank",
        "ai.toolCall",
        "ai.generateText",
        "ai.streamText.doStream",
    ):
        yield "ai", {"ai.operationId": kind}
    for kind in ("tool", "agent", "workflow", "task"):
        yield "opentelemetry.instrumentation.langchain", {semconv.TRACELOOP_KIND: kind}
    yield "logfire.openai_agents", {"request_data": "{}", semconv.SYSTEM: "openai"}


def kinds_of_spring_ai() -> Iterator[tuple[str, Mapping[str, str]]]:
    for kind in ("chat_client", "advisor", "tool_call"):
        yield SPRING, {spring_ai.KIND: kind, semconv.OPERATION_NAME: spring_ai.FRAMEWORK}
    yield SPRING, {spring_ai.KIND: "tool_call", semconv.OPERATION_NAME: "execute_tool"}
    yield SPRING, {spring_ai.KIND: "vector_store", "db.operation.name": "add"}
    yield SPRING, {spring_ai.KIND: "vector_store", spring_ai.QUERY: "2 + 2?"}


def kinds_of_javascript() -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "langfuse-sdk", {langfuse.TYPE: "span", "langfuse.observation.output": '[{"pageContent":"a","metadata":{}}]'}
    for kind in (*genkit.OPERATIONS, "prompt"):
        yield "genkit-tracer", {genkit.TYPE: "action", genkit.SUBTYPE: kind}
    yield "genkit-tracer", {genkit.TYPE: "util"}
    yield "@mastra/otel-exporter", {mastra.TYPE: "agent_run", semconv.OPERATION_NAME: "invoke_agent"}
    for operation in ("agent_step", "chat", "execute_tool"):
        yield "@mastra/otel-exporter", {mastra.TYPE: "other", semconv.OPERATION_NAME: operation}


def read_role(span: SpanData) -> RootRole | None:
    read = SpanNormalizers().translate(span)
    return None if read is None else role_of_operation(read.operation)


def test_each_normalizer_has_a_span_here() -> None:
    scopes = {scope for scope, _ in kinds()}

    assert {
        SpanNormalizers().normalizer_of_scope(scope) for scope in scopes
    } >= TRANSLATIONS.built_in.keys() - WITHOUT_KINDS


@pytest.mark.parametrize(("scope", "kind"), list(kinds()), ids=str)
def test_a_kind_of_span_has_one_role(scope: str, kind: Mapping[str, str]) -> None:
    name = "Chat completion with 'gpt-4o'" if scope.startswith("logfire") else "step"
    span = replace(make_span(), scope=scope, name=name, attributes={**ASKED.get(scope, {}), **kind})

    assert root_role(span.attributes, scope) is read_role(span)


@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_recorded_spans_have_one_role(recording: object) -> None:
    with recording.path.open(encoding="utf-8") as lines:  # type: ignore[attr-defined]
        spans = [span for span in read_spans(lines) if span.scope != semconv.CAPTURE_SCOPE]

    for span in spans:
        role = root_role(raw_attributes(span), span.scope)
        # A span without a kind is a root by the spans below it, whatever its name suggests.
        assert read_role(span) in (None, role) or role is RootRole.UNNAMED, (span.scope, span.name)


SCOPES = {recording.instrumentation: recording.scopes() for recording in RECORDINGS}


@pytest.mark.parametrize("name", SCOPES)
def test_spans_of_every_scope_are_claimed_when_they_start(name: str) -> None:
    scopes = Scopes(SpanNormalizers().names_scope)

    assert {scopes.role(scope) for scope in SCOPES[name]} == {Role.CLAIMED}


def test_the_scope_of_openai_for_java_is_claimed_when_it_starts() -> None:
    assert Scopes(SpanNormalizers().names_scope).role("io.opentelemetry.openai-java-1.1") is Role.CLAIMED


def test_a_listed_scope_that_never_came_is_noted() -> None:
    scopes = Scopes(SpanNormalizers().names_scope, listed=["my-app", "your.app"])
    scopes.role("your.app.web")

    notes = ["units.scopes lists 'my-app', but no span so far has a scope with this prefix"]
    assert scope_notes(scopes.listed, [scopes]) == notes


def test_a_scope_that_is_read_by_content_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    scopes = Scopes(SpanNormalizers().names_scope)
    for _ in range(2):
        scopes.found_by_content("an.unnamed.scope")

    assert scope_notes(scopes.listed, [scopes]) == ["an.unnamed.scope is scored, as its spans have GenAI attributes"]
    assert len([line for line in caplog.messages if "an.unnamed.scope" in line]) == 1

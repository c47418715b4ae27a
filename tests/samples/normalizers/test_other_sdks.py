"""The Vercel AI SDK, Pydantic AI, the Agent Development Kit, Langfuse and MLflow, as they were recorded → samples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.codecs.payloads import SCALARS, payloads
from tests.samples.normalizers.spans import (
    ADK_CALL,
    ANSWER,
    GENKIT_RUN,
    LANGFUSE_RUN,
    MASTRA_RUN,
    MLFLOW_RUN,
    PYDANTIC_RUN,
    QUESTION,
    SPANS,
    VERCEL_RUN,
    content_of,
    external,
    samples_of,
    units_of,
)
from tests.traces.recordings import RECORDINGS, Recording

from spanscore import semconv
from spanscore.core.sample import AIMessage, SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.registry import TRANSLATIONS, SpanNormalizers

WRITERS = ("vercel-ai", "pydantic-ai", "google-adk", "langfuse", "mlflow")
READ = [one for one in RECORDINGS if one.writer.startswith(WRITERS)]
SPOKEN = [one for one in READ if "without-content" not in one.program]
SILENCED = [one for one in READ if "without-content" in one.program]
SCOPES = {"ai": VERCEL_RUN, "pydantic-ai": PYDANTIC_RUN, "gcp.vertex.agent": ADK_CALL, "langfuse-sdk": LANGFUSE_RUN}
SCOPES = {
    **SCOPES,
    "mlflow.tracing.provider": MLFLOW_RUN,
    "@mastra/otel-exporter": MASTRA_RUN,
    "genkit-tracer": GENKIT_RUN,
}


@pytest.mark.parametrize("recording", SPOKEN, ids=str)
def test_a_program_gives_the_question_answer_and_contexts_that_our_own_capture_gives(recording: Recording) -> None:
    assert [made.single_turn for made in recording.samples()] == [single for single, _ in recording.expected()]


@pytest.mark.parametrize("recording", [one for one in SPOKEN if one.program == "agent"], ids=str)
def test_an_agent_gives_the_conversation_with_its_calls_and_what_they_gave(recording: Recording) -> None:
    ((_, expected),) = recording.expected()
    (made,) = recording.samples()

    assert expected is not None
    assert made.multi_turn is not None
    assert [_plain(message) for message in made.multi_turn.user_input] == [
        _plain(message) for message in expected.user_input
    ]


def _plain(message: Any) -> tuple[Any, ...]:
    """Return the content of a message; the kit's tools answer ``{"result": 5}``, and only some messages name their agent."""
    calls = message.tool_calls or [] if isinstance(message, AIMessage) else []
    said = message.content.removeprefix('{"result":').removesuffix("}")
    return (
        message.type,
        said,
        [(call.id, call.name, call.args) for call in calls],
        getattr(message, "tool_call_id", None),
    )


@pytest.mark.parametrize("recording", SILENCED, ids=str)
def test_where_content_is_off_the_reason_says_so(recording: Recording) -> None:
    (made,) = recording.samples()

    assert made.outcome == Outcome.NO_SAMPLE
    assert str(made.reason).startswith("content is not on the spans")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_run_alone_is_read(scope: str) -> None:
    name = "call_llm" if scope == "gcp.vertex.agent" else "capital"

    assert samples_of(external(SCOPES[scope], scope, name=name)).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER
    )


@pytest.mark.parametrize("scope", ["ai", "pydantic-ai", "gcp.vertex.agent", "langfuse-sdk", "@mastra/otel-exporter"])
def test_a_conversation_is_known_by_its_id(scope: str) -> None:
    translated = SpanNormalizers().translate(external(SCOPES[scope], scope, name="call_llm"))

    assert translated is not None
    assert translated.attributes[semconv.CONVERSATION_ID] == "t-1"


def test_a_scope_is_known_whole_and_not_by_its_first_letters() -> None:
    knows = SpanNormalizers().names_scope

    assert [knows(scope) for scope in ("ai", "mlflow.tracing.provider", "openlit.otel.tracing")] == [True] * 3
    assert [knows(scope) for scope in ("aiohttp-client", "airflow", "mlflowish")] == [False] * 3


def test_a_function_with_one_argument_was_asked_that_argument() -> None:
    both = external({**LANGFUSE_RUN, "langfuse.observation.input": '{"args": ["a"], "kwargs": {"b": 1}}'})

    assert content_of(external(LANGFUSE_RUN))[semconv.INPUT_VALUE] == QUESTION
    assert content_of(both)[semconv.INPUT_VALUE] == {"0": "a", "b": 1}


def test_metadata_of_the_observation_replaces_metadata_of_the_trace() -> None:
    run = {**LANGFUSE_RUN, "langfuse.trace.metadata.tier": "basic", "langfuse.trace.metadata.shop": "north"}
    translated = SpanNormalizers().translate(external(run, "langfuse-sdk"))

    assert translated is not None
    assert translated.metadata == {"tier": "gold", "shop": "north"}


def test_quoted_metadata_of_langfuse_is_its_text() -> None:
    run = {**LANGFUSE_RUN, "langfuse.observation.metadata.tier": '"gold"', "langfuse.trace.metadata.thread_id": '"t-9"'}
    run.pop("session.id", None)
    run.pop("langfuse.session.id", None)
    translated = SpanNormalizers().translate(external(run, "langfuse-sdk"))

    assert translated is not None
    assert translated.metadata["tier"] == "gold"
    assert translated.attributes[semconv.CONVERSATION_ID] == "t-9"


def test_what_a_model_made_an_object_of_is_its_answer() -> None:
    run = {
        "ai.operationId": "ai.generateObject",
        "ai.prompt": '{"prompt": "q"}',
        "ai.response.object": '{"city": "Paris"}',
    }

    assert samples_of(external(run, "ai")).single_turn == SingleTurnSample(user_input="q", response='{"city": "Paris"}')


def test_gemini_s_calls_and_answers_are_read_where_they_stand_in_whole_requests() -> None:
    asked = (
        '{"contents": [{"role": "user", "parts": [{"text": "q"}]},'
        ' {"role": "model", "parts": [{"function_call": {"id": "c-1", "name": "add", "args": {"a": 2}}}]},'
        ' {"role": "user", "parts": [{"function_response": {"id": "c-1", "name": "add", "response": {"result": 5}}}]}]}'
    )
    content = content_of(
        external({**ADK_CALL, "gcp.vertex.agent.llm_request": asked}, "gcp.vertex.agent", name="call_llm")
    )

    assert [message["role"] for message in content[semconv.INPUT_MESSAGES]] == ["user", "assistant", "tool"]
    assert content[semconv.INPUT_MESSAGES][1]["parts"] == [
        {"type": "tool_call", "id": "c-1", "name": "add", "arguments": {"a": 2}}
    ]


NAMES = st.sampled_from(
    sorted({name for attributes in SCOPES.values() for name in attributes} | {"events", "final_result"})
)
VALUES = SCALARS | payloads().map(str) | st.sampled_from(['{"messages": [[', "[{}]", "{}", '[{"role": 5}]', "[[]]"])
VALUES |= st.sampled_from(
    ["model", "retriever", "generate", '{"messages": [{"content": [{"media": 5}, 5]}], "docs": 5}']
)


@given(st.sampled_from(sorted(SCOPES)), st.dictionaries(NAMES, VALUES, max_size=6), st.integers(1, 3))
def test_no_payload_makes_it_raise(scope: str, held: dict[str, Any], parent: int) -> None:
    spans = [external({**SCOPES[scope], **held}, scope, span_id=n, trace_id=1, parent_id=parent) for n in (1, 2)]

    for unit in units_of(spans):
        samples = GenAIExtractor().extract(unit)
        assert (samples.outcome is None) == (samples.single_turn is not None or samples.multi_turn is not None)


def test_every_translation_stands_among_the_spans_that_tests_read() -> None:
    assert {TRANSLATIONS.find(name) for name in TRANSLATIONS.built_in} == set(SPANS)

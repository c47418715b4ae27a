"""Translator: the normalizer chosen among several that claim a span, and spans of no unit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.samples.normalizers.spans import (
    ANSWER,
    GENAI_CHAT,
    LANGFUSE_RUN,
    MLFLOW_RUN,
    OPENINFERENCE_CHAT,
    OPENLLMETRY_WORKFLOW,
    QUESTION,
    VERCEL_RUN,
    content_of,
    external,
    is_sound,
    samples_of,
    units_of,
)

from spanscore import semconv
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.errors import ConfigurationError
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.openinference import OpenInference
from spanscore.samples.normalizers.registry import TRANSLATIONS, NormalizerCounts, SpanNormalizers
from spanscore.testing import make_span

LANGCHAIN = "opentelemetry.instrumentation.langchain"


def test_our_own_spans_stay_as_they_are() -> None:
    ours = make_span(
        attributes={semconv.OPENINFERENCE_KIND: "CHAIN", semconv.INPUT_VALUE: "q", semconv.STATUS: "scored"}
    )

    assert SpanNormalizers().translate(ours) is ours


@pytest.mark.parametrize(
    "attributes",
    [
        {"http.route": "/"},
        {"gen_ai.operation.name": "create_agent", "gen_ai.system_instructions": "Be brief."},
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m"},
        {"gen_ai.system": "openai", "llm.request.type": "embedding"},
        {"gen_ai.system": "openai", "gen_ai.operation.name": "aembedding", "gen_ai.request.model": "m"},
        {"gen_ai.operation.name": "embed", "gen_ai.request.model": "m"},
        {"gen_ai.system": "openai", "type": "custom", "name": "turn"},
        {"gen_ai.system": "openai", "gen_ai.request.model": "tts-1", "gen_ai.response.model": "tts-1"},
        {"gen_ai.operation.name": "evaluation", "gen_ai.evaluation.name": "faithfulness"},
        {"openinference.span.kind": "EMBEDDING", "embedding.embeddings.0.embedding.text": "q"},
        {"openinference.span.kind": "EVALUATOR", "input.value": "q"},
        {"openinference.span.kind": "GUARDRAIL", "input.value": "q"},
        {"gen_ai.operation.name": ["chat"]},
    ],
)
def test_a_span_without_a_question_or_an_answer_keeps_its_operation_alone(attributes: dict[str, Any]) -> None:
    translated = SpanNormalizers().translate(external(attributes))

    assert translated is None or translated.attributes.keys() == {semconv.OPERATION_NAME}


def test_of_several_that_claim_a_span_the_first_that_finds_content_translates_it() -> None:
    both = {**OPENINFERENCE_CHAT, "gen_ai.operation.name": "chat", "gen_ai.system": "openai"}
    translator = SpanNormalizers()

    translator.translate(external(both))
    translator.translate(external({**both, **GENAI_CHAT}))

    assert translator.counted() == {"openinference": NormalizerCounts(1, 0), "genai": NormalizerCounts(1, 0)}


def test_steps_which_have_no_text_of_their_own_are_not_counted() -> None:
    translator = SpanNormalizers()

    translator.translate(external({"traceloop.span.kind": "task", "traceloop.workflow.name": "capital"}, LANGCHAIN))
    translator.translate(external({"traceloop.span.kind": "workflow"}, LANGCHAIN))

    assert translator.counted()["openllmetry"][:2] == (1, 1)
    assert "TRACELOOP_TRACE_CONTENT" in translator.counted()["openllmetry"].hint


def test_where_none_finds_content_the_one_that_knows_the_writer_best_says_so() -> None:
    silent = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}

    made = samples_of(external(silent, "opentelemetry.instrumentation.openai.v1"))

    assert (made.outcome, made.reason) == (Outcome.NO_SAMPLE, "content is not on the spans (openllmetry)")


def test_scopes_are_known_before_anything_else_is() -> None:
    known = ["openinference.instrumentation.langchain", LANGCHAIN, "opentelemetry.instrumentation.openai.v1"]
    translator = SpanNormalizers()

    assert [translator.names_scope(scope) for scope in known] == [True, True, True]
    assert [translator.names_scope(scope) for scope in ("", "my.app", "opentelemetry.instrumentation.requests")] == [
        False
    ] * 3


def test_each_is_called_by_its_name() -> None:
    assert [TRANSLATIONS.make(name, {}).name for name in TRANSLATIONS.built_in] == [*TRANSLATIONS.built_in]


def test_ones_own_is_asked_first_and_its_scopes_are_known() -> None:
    class Shop(OpenInference):
        name = "shop"
        scopes = ("shop",)

    translator = SpanNormalizers([Shop()])

    translator.translate(external(OPENINFERENCE_CHAT, "shop"))

    assert translator.names_scope("shop.checkout")
    assert translator.counted() == {"shop": NormalizerCounts(1, 0)}


def test_what_is_no_translation_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="translation"):
        SpanNormalizers(["openinferense"])


def test_spans_of_several_dialects_in_one_trace_are_one_unit() -> None:
    root = external(OPENLLMETRY_WORKFLOW, LANGCHAIN, span_id=1, trace_id=1)
    below = external(OPENINFERENCE_CHAT, span_id=2, trace_id=1, parent_id=1)

    (unit,) = units_of([below, root])

    assert [span.operation for span in unit.spans] == ["invoke_workflow", "chat"]
    assert GenAIExtractor().extract(unit).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


def test_a_root_without_content_lets_its_only_child_of_the_same_kind_speak() -> None:
    graph = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "LangGraph"}
    root = external(graph, LANGCHAIN, span_id=1, trace_id=1)
    workflow = external(OPENLLMETRY_WORKFLOW, LANGCHAIN, span_id=2, trace_id=1, parent_id=1)

    (unit,) = units_of([workflow, root])

    assert GenAIExtractor().extract(unit).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
    assert (unit.facts().operation, unit.facts().name) == ("invoke_workflow", "LangGraph")
    assert unit.facts().metadata == {"thread_id": "t-1"}


def test_a_root_without_content_lets_none_of_two_children_speak() -> None:
    root = external({"gen_ai.operation.name": "invoke_agent"}, LANGCHAIN, span_id=1, trace_id=1)
    children = [external(OPENLLMETRY_WORKFLOW, LANGCHAIN, span_id=n, trace_id=1, parent_id=1) for n in (2, 3)]

    assert samples_of(root, *children).outcome == Outcome.NO_SAMPLE


def test_content_is_rendered_when_it_is_first_read() -> None:
    translated = SpanNormalizers().translate(external({**OPENINFERENCE_CHAT, "openinference.span.kind": "CHAIN"}))

    assert translated is not None
    assert translated.without_content().attributes[semconv.CONVERSATION_ID] == "t-1"
    assert callable(translated.attributes.content_owner)  # type: ignore[attr-defined]


def test_raw_content_weighs_until_it_is_rendered() -> None:
    from spanscore.pipeline.sizes import size_bytes_of

    (unit,) = units_of([external({**OPENINFERENCE_CHAT, "llm.output_messages.0.message.content": "x" * 100_000})])

    assert size_bytes_of(unit) > 100_000


@pytest.mark.parametrize("parent", [1, 2])
def test_spans_in_a_circle_of_parents_are_read(parent: int) -> None:
    first = external(OPENINFERENCE_CHAT, span_id=1, trace_id=1, parent_id=parent)
    second = external(OPENINFERENCE_CHAT, span_id=2, trace_id=1, parent_id=1)

    for unit in units_of([first, second]):
        assert is_sound(GenAIExtractor().extract(unit))


WORKFLOW = {name: value for name, value in OPENLLMETRY_WORKFLOW.items() if name != "gen_ai.task.input"}
CUT = '[{"role": "user", "parts": [{"type": "te'


@pytest.mark.parametrize(
    ("attributes", "scope"),
    [
        ({**GENAI_CHAT, "gen_ai.input.messages": CUT}, "x"),
        ({**GENAI_CHAT, "gen_ai.output.messages": CUT}, "x"),
        ({"openinference.span.kind": "CHAIN", "input.value": '{"question": "What is', "output.value": ANSWER}, "x"),
        ({"openinference.span.kind": "CHAIN", "input.value": '{"a": {"b": 1}', "output.value": ANSWER}, "x"),
        ({"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": '{"answer": "Par'}, "x"),
        ({"openinference.span.kind": "LLM", "input.value": '{"messages": [["', "output.value": ANSWER}, "x"),
        ({**WORKFLOW, "traceloop.entity.input": '{"inputs": {"question": "Wh'}, LANGCHAIN),
        ({**VERCEL_RUN, "ai.prompt": '{"prompt": "What is'}, "ai"),
        ({**LANGFUSE_RUN, "langfuse.observation.output": '{"answer": "Par'}, "langfuse-sdk"),
        ({**MLFLOW_RUN, "mlflow.spanInputs": '{"question": "What is'}, "mlflow.tracing.provider"),
    ],
)
def test_content_that_a_limit_cut_is_no_question_and_no_answer(attributes: dict[str, Any], scope: str) -> None:
    made = samples_of(external(attributes, scope))

    assert (made.outcome, made.reason) == (Outcome.NO_SAMPLE, "cut at the attribute limit")


def test_a_question_that_was_cut_is_read_where_it_stands_whole() -> None:
    cut = {"openinference.span.kind": "CHAIN", "input.value": '{"question": "What is', "output.value": ANSWER}
    root = external(cut, trace_id=1, span_id=1)
    below = external(GENAI_CHAT, trace_id=1, span_id=2, parent_id=1)

    assert samples_of(root, below).single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)


def test_documents_that_a_limit_cut_are_a_missing_field_with_its_reason() -> None:
    kind = "openinference.span.kind"
    root = external({kind: "CHAIN", "input.value": QUESTION, "output.value": ANSWER}, trace_id=1, span_id=1)
    whole = {kind: "RETRIEVER", "input.value": "q", "retrieval.documents.0.document.content": "One."}
    cut = {kind: "RETRIEVER", "input.value": "q", "output.value": '{"documents": [{"page_content": "On'}

    made = samples_of(root, *(external(held, trace_id=1, span_id=n, parent_id=1) for n, held in ((2, whole), (3, cut))))

    assert made.single_turn == SingleTurnSample(user_input=QUESTION, response=ANSWER)
    assert "cut at the attribute limit" in dict(made.searched)["retrieved_contexts"]


def test_it_says_how_often_content_was_cut_and_which_limit_to_raise() -> None:
    translator = SpanNormalizers()

    for held in (GENAI_CHAT, {**GENAI_CHAT, "gen_ai.input.messages": CUT}):
        translator.translate(external(held))

    (note,) = translator.notes()
    assert note.startswith("content of 1 of 2 spans of genai was cut at the attribute limit: ")
    assert "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in note


def test_the_translation_that_is_named_is_the_one_that_reads_the_span() -> None:
    both = external({**OPENINFERENCE_CHAT, "gen_ai.operation.name": "chat", "gen_ai.system": "openai"})

    assert SpanNormalizers().normalizer_of(both) == "openinference"
    assert SpanNormalizers().normalizer_of(external({"http.route": "/"})) is None


def test_the_newest_form_is_read_where_there_are_several() -> None:
    assert content_of(external(GENAI_CHAT)).keys() == {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES}

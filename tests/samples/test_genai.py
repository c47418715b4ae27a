"""GenAIDialect: which spans it claims, foreign writers of the same conventions, and that no payload makes it raise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.codecs.payloads import MESSAGES, SCALARS, payloads

from spanscore import semconv
from spanscore.config import Extract
from spanscore.core import sample as ours
from spanscore.core.codecs.sdk import WireAttributes, encode_attributes
from spanscore.core.codecs.text import from_wire
from spanscore.core.score import Outcome
from spanscore.core.span import NoContent, SpanData, Unit, UnitKey
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.genai import GenAINormalizer
from spanscore.testing import make_span, make_unit

OPERATIONS = ("chat", "retrieval", "execute_tool", "invoke_agent", "invoke_workflow", "text_completion", "embeddings")


def span(number: int, operation: Any, *, parent: int | None = None, **given: Any) -> SpanData:
    attributes = {semconv.OPERATION_NAME: operation} if operation else {}
    return SpanData(
        trace_id=1,
        span_id=number,
        parent_id=parent,
        name="x",
        start_ns=number,
        end_ns=100 - number,
        attributes=attributes | given.pop("attributes", {}),
        **given,
    )


def samples(*spans: SpanData, dialect: GenAIExtractor | None = None) -> ours.Samples:
    return (dialect or GenAIExtractor()).extract(Unit(UnitKey(1, spans[0].span_id), spans))


@pytest.mark.parametrize(
    ("scope", "operation", "claimed"),
    [
        (semconv.CAPTURE_SCOPE, "invoke_workflow", True),
        (semconv.CAPTURE_SCOPE, None, True),
        (semconv.SCOPE, "evaluation", False),
        (semconv.SCOPE, "chat", False),
        (semconv.JUDGE_SCOPE, "chat", False),
        ("other", "chat", True),
        ("other", "invoke_agent", True),
        ("other", "create_agent", False),
        ("other", "evaluation", False),
        ("other", None, False),
        ("other", ["chat"], False),
        (semconv.CAPTURE_SCOPE, ["chat"], True),
    ],
)
def test_it_claims_spans_of_the_conventions_and_never_evaluations(scope: str, operation: Any, claimed: bool) -> None:
    assert GenAIExtractor().accepts(span(1, operation, scope=scope)) is claimed


def test_a_external_agent_is_read() -> None:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"}]
    found = [{"id": "1", "score": 0.5, "content": "c"}]

    made = samples(
        span(1, "invoke_agent", scope="x", attributes={semconv.INPUT_MESSAGES: asked, semconv.OUTPUT_MESSAGES: said}),
        span(2, "retrieval", scope="x", parent=1, attributes={semconv.RETRIEVAL_DOCUMENTS: found}),
    )

    assert made.single_turn == ours.SingleTurnSample(
        user_input="q", response="a", retrieved_contexts=["c"], retrieved_context_ids=["1"]
    )


def test_result_is_read_as_response_and_arguments_as_json_text() -> None:
    talk = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": '{"a": 1}'}]},
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "1", "result": {"b": 2}}]},
        {"role": "model", "content": "a"},
    ]

    made = samples(span(1, "invoke_agent", attributes={semconv.OUTPUT_MESSAGES: talk}))

    assert made.multi_turn is not None
    assert made.multi_turn.user_input == [
        ours.HumanMessage(content="q"),
        ours.AIMessage(tool_calls=[ours.ToolCall(name="f", args={"a": 1}, id="1")]),
        ours.ToolMessage(content='{"b":2}', tool_call_id="1"),
        ours.AIMessage(content="a"),
    ]
    assert made.single_turn is not None
    assert (made.single_turn.user_input, made.single_turn.response) == ("q", "a")


def test_messages_that_were_cut_on_their_way_hold_none() -> None:
    attributes = {semconv.INPUT_MESSAGES: '[{"role": "user", "par', semconv.OUTPUT_MESSAGES: '[{"role'}

    made = samples(span(1, "chat", attributes=attributes))

    assert made.outcome is Outcome.NO_SAMPLE


def test_a_loop_of_parents_ends() -> None:
    found = {semconv.RETRIEVAL_DOCUMENTS: [{"content": "c"}]}

    made = samples(
        span(1, "invoke_workflow", attributes={semconv.INPUT_VALUE: "q", semconv.OUTPUT_VALUE: "a"}),
        span(2, "retrieval", parent=3, attributes=found),
        span(3, "execute_tool", parent=2),
    )

    assert made.single_turn is not None
    assert made.single_turn.retrieved_contexts == ["c"]


CONTENT = st.dictionaries(
    st.sampled_from([*sorted(semconv.CONTENT_ATTRIBUTES), semconv.RUN_END, semconv.TOOL_NAME, semconv.TOOL_CALL_ID]),
    payloads() | st.lists(MESSAGES, max_size=4) | st.fixed_dictionaries({"messages": st.lists(MESSAGES, max_size=3)}),
    max_size=6,
)
SPANS = st.tuples(st.sampled_from(OPERATIONS) | SCALARS, st.integers(0, 4), st.sampled_from(["ok", "error"]), CONTENT)
DIALECTS = st.sampled_from(
    [
        GenAIExtractor(),
        GenAIExtractor(Extract(retrieval_tools=("a", "name")), score_abandoned=True),
        GenAIExtractor(
            Extract(user_input="input.messages.0", response="output.answer", retrieved_contexts="output.docs.content")
        ),
    ]
)


@settings(max_examples=400)
@given(st.lists(SPANS, min_size=1, max_size=5), DIALECTS)
def test_no_payload_makes_it_raise(runs: list[Any], dialect: GenAIExtractor) -> None:
    spans = [
        span(n, None, parent=parent or None, status=status, attributes={semconv.OPERATION_NAME: operation, **content})
        for n, (operation, parent, status, content) in enumerate(runs, 1)
    ]

    dialect.accepts(spans[0])
    made = samples(*spans, dialect=dialect)

    assert (made.single_turn is None) == (made.outcome is Outcome.NO_SAMPLE)
    assert made.outcome is None or made.reason
    for sample in (made.single_turn, made.multi_turn):
        assert sample is None or sample.model_dump_json().encode()


@settings(max_examples=100)
@given(CONTENT)
def test_the_wire_changes_nothing(content: dict[str, Any]) -> None:
    clean = {
        name: from_wire(value) if isinstance(value, str) else value
        for name, value in encode_attributes(content).items()
    }
    again = {
        name: from_wire(value) if isinstance(value, str) else value for name, value in encode_attributes(clean).items()
    }

    assert samples(span(1, "invoke_agent", attributes=clean)) == samples(span(1, "invoke_agent", attributes=again))


@settings(max_examples=200)
@given(st.lists(SPANS, min_size=1, max_size=5), st.sampled_from(["tool_call", "\\u0074ool_call"]), DIALECTS)
def test_messages_that_nobody_has_read_yet_make_the_same_samples(
    runs: list[Any], written: str, dialect: GenAIExtractor
) -> None:
    def translated(n: int, run: Any) -> SpanData:
        operation, parent, status, content = run
        spans = encode_attributes({semconv.OPERATION_NAME: str(operation), **content})
        wire = {name: one.replace("tool_call", written) if isinstance(one, str) else one for name, one in spans.items()}
        came = span(n, None, parent=parent or None, scope="x", status=status)
        return GenAINormalizer().normalize(replace(came, attributes=WireAttributes(wire)))

    unread, other = ([translated(n, run) for n, run in enumerate(runs, 1)] for _ in range(2))
    read = [replace(one, attributes=dict(one.attributes)) for one in other]

    assert samples(*unread, dialect=dialect) == samples(*read, dialect=dialect)


def test_a_call_that_only_a_prompt_holds_is_found_however_its_json_is_written() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "a"}}
    asked = json.dumps([{"role": "user", "parts": []}, {"role": "assistant", "parts": [call]}])
    said = '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'
    tool = {semconv.OPERATION_NAME: "execute_tool", semconv.TOOL_NAME: "search", semconv.TOOL_CALL_ID: "c1"}
    for text in (asked, asked.replace("tool_call", "tool\\u005fcall")):
        talk = {semconv.OPERATION_NAME: "chat", semconv.INPUT_MESSAGES: text, semconv.OUTPUT_MESSAGES: said}
        held = ({semconv.OPERATION_NAME: "invoke_agent", semconv.OUTPUT_MESSAGES: said}, talk, tool)
        came = [span(n, None, parent=n > 1 or None, scope="x") for n in (1, 2, 3)]
        spans = [replace(one, attributes=WireAttributes(wire)) for one, wire in zip(came, held, strict=True)]
        made = samples(*map(GenAINormalizer().normalize, spans))

        assert made.multi_turn is not None
        calls = [
            one.tool_calls for one in made.multi_turn.user_input if isinstance(one, ours.AIMessage) and one.tool_calls
        ]
        assert calls == [[ours.ToolCall(name="search", args={"q": "a"}, id="c1")]]


def test_documents_in_instructions_that_stand_apart_are_in_the_prompt() -> None:
    found = [{"content": "Notes of the first page."}, {"content": "Notes of the second page."}]
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Q? Notes of the second page."}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "A."}]}]
    instructions = [{"type": "text", "content": "Answer from: Notes of the first page."}]
    prompt = {semconv.SYSTEM_INSTRUCTIONS: instructions, semconv.INPUT_MESSAGES: asked, semconv.OUTPUT_MESSAGES: said}

    made = samples(
        span(1, "invoke_workflow", attributes={semconv.INPUT_VALUE: "Q?", semconv.OUTPUT_VALUE: "A."}),
        span(2, "retrieval", parent=1, attributes={semconv.RETRIEVAL_DOCUMENTS: found}),
        span(3, "chat", parent=1, attributes=prompt),
    )

    assert made.single_turn is not None
    assert made.single_turn.retrieved_contexts == ["Notes of the first page.", "Notes of the second page."]


def test_what_a_model_gave_is_its_own_also_where_its_role_is_none() -> None:
    gave = [{"role": "unknown", "parts": [{"type": "text", "content": '{"setup": "Why?", "punchline": "So."}'}]}]
    sides = {semconv.INPUT_VALUE: {"query": "Tell me."}, semconv.OUTPUT_VALUE: {"setup": "Why?", "punchline": "So."}}

    made = samples(
        span(1, "invoke_workflow", attributes=sides),
        span(2, "chat", parent=1, attributes={semconv.OUTPUT_MESSAGES: gave}),
    )

    assert made.single_turn is not None
    assert made.single_turn.response == '{"setup":"Why?","punchline":"So."}'


def test_the_parts_of_a_streamed_answer_are_one_answer() -> None:
    def part(text: str, finish_reason: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "parts": [{"type": "text", "content": text}],
            "finish_reason": finish_reason,
        }

    outputs = [part("It is ", ""), part("sunny.", "stop"), part("It rains.", "stop")]
    attributes = {
        semconv.OPERATION_NAME: "generate_content",
        semconv.INPUT_MESSAGES: [{"role": "user", "parts": [{"type": "text", "content": "The weather?"}]}],
        semconv.OUTPUT_MESSAGES: outputs[:2],
    }

    sample = GenAIExtractor().extract(make_unit(make_span(attributes=attributes))).single_turn

    assert sample is not None
    assert sample.response == "It is sunny."


def test_a_run_that_began_as_a_stream_is_asked_the_variables_of_its_prompt() -> None:
    empty = {semconv.OPERATION_NAME: "invoke_workflow", semconv.INPUT_VALUE: {"input": ""}}
    prompt = {"role": "user", "parts": [{"type": "text", "content": "Answer with FREE.: Who is free?"}]}
    model = {
        semconv.OPERATION_NAME: "chat",
        semconv.INPUT_VALUE: {"question": "Who is free?"},
        semconv.INPUT_MESSAGES: [prompt],
        semconv.OUTPUT_MESSAGES: [{"role": "assistant", "parts": [{"type": "text", "content": "Children."}]}],
    }
    root = make_span(attributes=empty, scope="opentelemetry.instrumentation.genai.langchain", span_id=1, trace_id=1)

    sample = GenAIExtractor().extract(make_unit(root, make_span(attributes=model, span_id=2, parent_id=1))).single_turn

    assert sample is not None
    assert sample.user_input == "Who is free?"


def test_a_failed_run_without_content_has_failed() -> None:
    without = NoContent("content is not on the spans (shop)", "set SHOP_CONTENT=1")

    reasons = [samples(span(1, "chat", status=status, no_content=without)).reason for status in ("ok", "error")]

    assert reasons == [without.reason, "the run failed before it answered"]

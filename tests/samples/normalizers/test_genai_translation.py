"""The GenAI conventions, as they are and as they were → samples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.codecs.payloads import MESSAGES, SCALARS, payloads
from tests.samples.normalizers.spans import ANSWER, QUESTION, content_of, external, is_sound, samples_of, units_of

from spanscore import semconv
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.samples.genai import GenAIExtractor
from spanscore.samples.normalizers.registry import SpanNormalizers

ASKED = {"role": "user", "content": QUESTION}
SAID = {"role": "assistant", "content": ANSWER}
BOTH = SingleTurnSample(user_input=QUESTION, response=ANSWER)
OPERATION = {"gen_ai.operation.name": "chat"}
SYSTEM = {"gen_ai.system": "openai"}

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "JSON with content": {"gen_ai.input.messages": json.dumps([ASKED]), "gen_ai.output.messages": json.dumps([SAID])},
    "structured": {"gen_ai.input.messages": [ASKED], "gen_ai.output.messages": (SAID,)},
    "with a version": {
        "gen_ai.input.messages": json.dumps({"version": "0.1.0", "messages": [ASKED]}),
        "gen_ai.output.messages": json.dumps({"version": "0.1.0", "messages": [SAID]}),
    },
    "flat (OpenLLMetry, before 0.50)": {
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.10.role": "user",
        "gen_ai.prompt.10.content": QUESTION,
        "gen_ai.completion.0.content": ANSWER,
        "gen_ai.completion.0.finish_reason": "stop",
    },
    "flat, with content blocks": {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": json.dumps([{"type": "text", "text": QUESTION}]),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    },
    "one text each": {"gen_ai.prompt": QUESTION, "gen_ai.completion": ANSWER},
    "one list each (Spring AI)": {"gen_ai.prompt": [QUESTION], "gen_ai.completion": (ANSWER,)},
    "one JSON each (LangSmith)": {
        "gen_ai.prompt": json.dumps(
            {"messages": [[{"lc": 1, "id": ["HumanMessage"], "kwargs": {"content": QUESTION}}]]}
        ),
        "gen_ai.completion": json.dumps(
            {"generations": [[{"text": ANSWER, "message": {"role": "ai", "content": ANSWER}}]]}
        ),
        "langsmith.span.kind": "llm",
    },
    "one request and one response": {
        "gen_ai.prompt": json.dumps({"model": "m", "messages": [ASKED]}),
        "gen_ai.completion": json.dumps({"choices": [{"index": 0, "message": SAID}]}),
    },
}
EVENTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "prompt and completion (OpenLIT, Mirascope)": [
        ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps([ASKED])}),
        ("gen_ai.content.completion", {"gen_ai.completion": json.dumps(SAID)}),
    ],
    "prompt and completion as text": [
        ("gen_ai.content.prompt", {"gen_ai.prompt": QUESTION}),
        ("gen_ai.content.completion", {"gen_ai.completion": ANSWER}),
    ],
    "messages and a choice (Semantic Kernel, Azure)": [
        ("gen_ai.system.message", {"gen_ai.event.content": json.dumps({"role": "system", "content": "Be brief."})}),
        ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"content": QUESTION})}),
        ("gen_ai.choice", {"gen_ai.event.content": json.dumps({"index": 0, "message": SAID, "finish_reason": "stop"})}),
    ],
    "messages and a choice as attributes": [
        ("gen_ai.user.message", {"content": QUESTION}),
        ("gen_ai.choice", {"message": ANSWER, "index": 0}),
    ],
    "details (Strands, experimental)": [
        (semconv.DETAILS_EVENT, {"gen_ai.input.messages": json.dumps([ASKED])}),
        (semconv.DETAILS_EVENT, {"gen_ai.output.messages": json.dumps([SAID])}),
    ],
    "content blocks (Strands)": [
        ("gen_ai.user.message", {"content": json.dumps([{"text": QUESTION}])}),
        ("gen_ai.choice", {"message": json.dumps([{"text": ANSWER}]), "finish_reason": "end_turn"}),
    ],
}


@pytest.mark.parametrize("form", ATTRIBUTES)
@pytest.mark.parametrize("known_by", [OPERATION, SYSTEM], ids=["operation", "system"])
def test_content_in_attributes_is_read_in_every_form_there_was(form: str, known_by: dict[str, str]) -> None:
    made = samples_of(external({**known_by, **ATTRIBUTES[form]}))

    assert made.single_turn == BOTH
    assert made.multi_turn is None


@pytest.mark.parametrize("form", EVENTS)
def test_content_on_span_events_is_read_in_every_form_there_was(form: str) -> None:
    made = samples_of(external(OPERATION, events=EVENTS[form]))

    assert made.single_turn == BOTH
    assert made.multi_turn is None


def test_an_agents_tool_calls_are_read_of_flat_attributes() -> None:
    flat = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "What is 2 plus 3?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.id": "call-1",
        "gen_ai.prompt.1.tool_calls.0.name": "add",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"a": 2}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.tool_call_id": "call-1",
        "gen_ai.prompt.2.content": "5",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "5.",
    }

    made = samples_of(external({**SYSTEM, **flat}))

    assert made.multi_turn is not None
    assert [(type(said).__name__, said.content) for said in made.multi_turn.user_input] == [
        ("HumanMessage", "What is 2 plus 3?"),
        ("AIMessage", ""),
        ("ToolMessage", "5"),
        ("AIMessage", "5."),
    ]


def test_tool_calls_without_text_are_read_of_message_events() -> None:
    function = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    calling = {"role": "assistant", "tool_calls": [{"id": "call-1", "type": "function", "function": function}]}
    events = [
        ("gen_ai.user.message", {"gen_ai.event.content": {"content": "What is 2 plus 3?"}}),
        ("gen_ai.assistant.message", {"gen_ai.event.content": calling}),
        ("gen_ai.tool.message", {"gen_ai.event.content": {"content": "5", "id": "call-1"}}),
        ("gen_ai.choice", {"gen_ai.event.content": {"index": 0, "message": calling}}),
    ]
    messages = content_of(external({semconv.OPERATION_NAME: "chat"}, events=events))

    call = {"type": "tool_call", "id": "call-1", "name": "add", "arguments": function["arguments"]}
    result = {"type": "tool_call_response", "id": "call-1", "response": "5"}
    assert [message["parts"] for message in messages[semconv.INPUT_MESSAGES]][1:] == [[call], [result]]
    assert [message["parts"] for message in messages[semconv.OUTPUT_MESSAGES]] == [[call]]


def test_a_strands_agents_tools_are_read_of_its_events() -> None:
    use = {"toolUse": {"toolUseId": "t-1", "name": "add", "input": {"a": 2}}}
    result = {"toolResult": {"toolUseId": "t-1", "status": "success", "content": [{"text": "5"}]}}
    events = [
        ("gen_ai.user.message", {"content": json.dumps([{"text": "What is 2 plus 3?"}])}),
        ("gen_ai.assistant.message", {"content": json.dumps([use])}),
        ("gen_ai.tool.message", {"content": json.dumps([result])}),
        ("gen_ai.choice", {"message": json.dumps([{"text": "5."}])}),
    ]

    made = samples_of(external(OPERATION, events=events))

    assert made.multi_turn is not None
    assert [said.content for said in made.multi_turn.user_input] == ["What is 2 plus 3?", "", "5", "5."]


@pytest.mark.parametrize(
    "events",
    [
        [
            ("gen_ai.tool.message", {"role": "tool", "content": '{"a": 2}', "id": "t-1"}),
            ("gen_ai.choice", {"message": '[{"text": "5"}]', "id": "t-1"}),
        ],
        [
            (
                semconv.DETAILS_EVENT,
                {"gen_ai.input.messages": json.dumps([{"role": "tool", "parts": [{"arguments": {"a": 2}}]}])},
            ),
            (
                semconv.DETAILS_EVENT,
                {"gen_ai.output.messages": json.dumps([{"role": "tool", "parts": [{"response": "5"}]}])},
            ),
        ],
    ],
)
def test_a_strands_tool_is_read_of_its_events(events: list[tuple[str, dict[str, Any]]]) -> None:
    tool = external({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}, events=events)

    found = content_of(tool)

    assert (found[semconv.TOOL_CALL_ARGUMENTS], found[semconv.TOOL_CALL_RESULT]) == ({"a": 2}, "5")


def test_langsmiths_retriever_is_one_though_it_says_embeddings() -> None:
    document = {"page_content": "One.", "metadata": {}, "type": "Document", "id": "d-1"}
    retrieves = {"gen_ai.operation.name": "embeddings", "langsmith.span.kind": "retriever"}
    sides = {"gen_ai.prompt": '{"query": "q"}', "gen_ai.completion": json.dumps({"documents": [document]})}

    found = content_of(external({**retrieves, **sides}))

    assert found == {semconv.RETRIEVAL_QUERY: "q", semconv.RETRIEVAL_DOCUMENTS: [{"content": "One.", "id": "d-1"}]}


def test_older_names_of_plain_attributes_are_read() -> None:
    older = {
        **SYSTEM,
        "llm.request.type": "completion",
        "gen_ai.usage.prompt_tokens": 3,
        "gen_ai.usage.completion_tokens": 4,
        "session.id": "s-1",
    }

    translated = SpanNormalizers().translate(external(older))

    assert translated is not None
    assert dict(translated.attributes) == {
        semconv.OPERATION_NAME: "text_completion",
        semconv.PROVIDER_NAME: "openai",
        semconv.USAGE_INPUT_TOKENS: 3,
        semconv.USAGE_OUTPUT_TOKENS: 4,
        semconv.CONVERSATION_ID: "s-1",
    }


@pytest.mark.parametrize(
    ("switch", "reason"),
    [
        ("NO_CONTENT", "content is not on the spans (genai)"),
        ("EVENT_ONLY", "content is in log records, not on the spans (genai)"),
    ],
)
def test_a_unit_without_content_says_why(monkeypatch: pytest.MonkeyPatch, switch: str, reason: str) -> None:
    monkeypatch.setenv(semconv.CAPTURE_CONTENT_ENV, switch)

    made = samples_of(external({**OPERATION, "gen_ai.tool.definitions": "[]"}))

    assert (made.outcome, made.reason) == (Outcome.NO_SAMPLE, reason)


def test_the_switch_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        samples_of(external(OPERATION))

    (line,) = [message for message in caplog.messages if "content is not on the spans" in message]
    assert semconv.CAPTURE_CONTENT_ENV in line


NAMES = st.sampled_from(
    [
        *(
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.system_instructions",
            "gen_ai.retrieval.documents",
        ),
        *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.prompt", "gen_ai.completion", "session.id"),
        *(f"gen_ai.prompt.{n}.{rest}" for n in (0, 3, 10**9) for rest in ("role", "content", "tool_calls.0.arguments")),
        *("gen_ai.completion.0.content", "gen_ai.completion.x", "llm.request.type", "langsmith.span.kind"),
    ]
)
JSON = (payloads(6) | st.lists(MESSAGES, max_size=3)).map(lambda value: json.dumps(value, default=str))
VALUES = SCALARS | JSON | st.lists(JSON, max_size=2)
OPERATIONS = st.sampled_from(["chat", "invoke_agent", "execute_tool", "retrieval", "chat.completions", "odd"])
EVENT_NAMES = st.sampled_from(
    [semconv.DETAILS_EVENT, "gen_ai.content.prompt", "gen_ai.user.message", "gen_ai.tool.message", "gen_ai.choice"]
)
EVENT_KEYS = st.sampled_from(
    ["gen_ai.input.messages", "gen_ai.event.content", "gen_ai.prompt", "content", "message", "id"]
)
SPANS = st.tuples(
    OPERATIONS,
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.lists(st.tuples(EVENT_NAMES, st.dictionaries(EVENT_KEYS, VALUES, max_size=2)), max_size=3),
    st.integers(1, 4),
)


@given(st.lists(SPANS, min_size=1, max_size=4))
def test_no_span_makes_it_raise(spans: list[tuple[str, dict[str, Any], Any, int]]) -> None:
    made = [
        external({"gen_ai.operation.name": kind, **held}, span_id=n, trace_id=1, parent_id=parent, events=events)
        for n, (kind, held, events, parent) in enumerate(spans, start=1)
    ]

    for unit in units_of(made):
        assert is_sound(GenAIExtractor().extract(unit))


@pytest.mark.parametrize(
    "operation", ["completion", "acompletion", "responses", "aresponses", "converse", "chat.completions"]
)
def test_a_span_with_a_model_and_messages_is_a_model_s_call_whatever_it_is_called(operation: str) -> None:
    call = {"gen_ai.operation.name": operation, "gen_ai.request.model": "m", **ATTRIBUTES["JSON with content"]}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide"}
    below = external(call, trace_id=1, span_id=2, parent_id=1)

    assert samples_of(external(call)).single_turn == BOTH
    assert samples_of(external(agent, trace_id=1, span_id=1), below).single_turn == BOTH


def test_an_agent_that_names_its_model_stays_an_agent() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m", **ATTRIBUTES["JSON with content"]}
    (unit,) = units_of([external(agent)])

    assert unit.facts().operation == "invoke_agent"


def test_a_system_alone_is_a_model_s_call_where_it_was_asked_something() -> None:
    assert samples_of(external({**SYSTEM, **ATTRIBUTES["JSON with content"]})).single_turn == BOTH
    assert samples_of(external({**SYSTEM, "llm.request.type": "chat"})).reason == "content is not on the spans (genai)"


def _run(asked: Any) -> Any:
    messages = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": asked}]}])}
    return external(
        {"gen_ai.operation.name": "invoke_workflow", **messages, "gen_ai.output.messages": json.dumps([SAID])}
    )


def test_the_only_message_of_a_run_that_is_an_object_is_its_input_object() -> None:
    assert samples_of(_run(json.dumps({"question": QUESTION, "language": "en"}))).single_turn == BOTH
    assert samples_of(_run(json.dumps({"topic": QUESTION}))).single_turn == BOTH


@pytest.mark.parametrize("text", ["5", "true", '["a", "b"]', '"so"', "{name} is"])
def test_a_message_of_a_run_that_happens_to_be_json_stays_text(text: str) -> None:
    assert samples_of(_run(text)).single_turn == SingleTurnSample(user_input=text, response=ANSWER)


def test_what_a_prompt_was_filled_with_is_asked_where_the_root_holds_nothing() -> None:
    root = external({"gen_ai.operation.name": "invoke_workflow"}, trace_id=1, span_id=1)
    prompt = [{"role": "user", "content": f"Answer from One.\n\n{QUESTION}"}]
    variables = {"gen_ai.prompt.variable.question": QUESTION, "gen_ai.prompt.variable.context": "One."}
    held = {**OPERATION, **variables, "gen_ai.input.messages": json.dumps(prompt), "gen_ai.output.messages": [SAID]}

    assert samples_of(root, external(held, trace_id=1, span_id=2, parent_id=1)).single_turn == SingleTurnSample(
        user_input=QUESTION, response=ANSWER, retrieved_contexts=["One."]
    )


def _event(kind: str, body: str) -> tuple[str, dict[str, str]]:
    return f"gen_ai.content.{kind}", {f"gen_ai.{kind}": body}


@pytest.mark.parametrize(
    "prompt",
    [
        f"user: {QUESTION}",
        f"system: Be brief.\nWith care.\nuser: {QUESTION}",
        f"user: Hi\nassistant: Hello\nuser: text: {QUESTION}",
        f"messages=[SystemMessage(content='Be \\'brief\\'.'), HumanMessage(content='{QUESTION}', additional_kwargs={{}})]",
        f'[HumanMessage(content="{QUESTION}")]',
    ],
)
def test_a_prompt_in_one_text_that_tells_its_speakers_apart_is_read_as_messages(prompt: str) -> None:
    events = [_event("prompt", prompt), _event("completion", ANSWER)]
    generation = {"langfuse.observation.type": "generation", "langfuse.observation.output": ANSWER}

    assert samples_of(external({**OPERATION, **SYSTEM}, "openlit.otel.tracing", events=events)).single_turn == BOTH
    assert (
        samples_of(external({**generation, "langfuse.observation.input": prompt}, "langfuse-sdk")).single_turn == BOTH
    )


def test_a_shown_prompt_that_was_cut_gives_way_to_the_prompt_of_the_model_below() -> None:
    events = [_event("prompt", "messages=[HumanMessage(content='What is"), _event("completion", ANSWER)]
    root = external({**OPERATION, **SYSTEM}, "openlit.otel.tracing", events=events, trace_id=1, span_id=1)
    below = external({**OPERATION, **ATTRIBUTES["JSON with content"]}, trace_id=1, span_id=2, parent_id=1)

    assert samples_of(root, below).single_turn == BOTH


@pytest.mark.parametrize("text", [{"value": ANSWER, "annotations": []}, ANSWER])
def test_azure_s_agents_answer_in_a_block_and_in_the_messages(text: Any) -> None:
    question = json.dumps({"role": "user", "content": QUESTION})
    answer = json.dumps({"role": "assistant", "content": {"text": text}})
    events = [("gen_ai.user.message", {"gen_ai.event.content": question})]
    events += [("gen_ai.assistant.message", {"gen_ai.event.content": answer})]

    run = external({"gen_ai.operation.name": "process_thread_run", "gen_ai.system": "az.ai.agents"}, events=events)

    assert samples_of(run).single_turn == BOTH


def test_content_under_names_that_nobody_reads_is_not_said_to_be_off() -> None:
    held = {**OPERATION, "my.request_data": '{"messages": []}', "gen_ai.output.type": "text"}

    made = samples_of(external(held, "my.writer"))

    assert made.reason == "the writer of the span is unknown: its content has other names (genai)"
    assert made.outcome == Outcome.NO_SAMPLE


def test_a_file_behind_the_question_is_added_to_the_question() -> None:
    asked = [ASKED, {"role": "user", "content": [{"type": "file", "file": {"filename": "report.pdf"}}]}]
    held = {**OPERATION, "gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": [SAID]}

    made = samples_of(external(held)).single_turn

    assert made == SingleTurnSample(user_input=f"{QUESTION}\n[file report.pdf]", response=ANSWER)

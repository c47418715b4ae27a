"""Logfire's spans of model clients, of OpenAI's agents and of Gemini, as its source and its recordings have them → samples."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.samples.normalizers.spans import ANSWER, LOGFIRE_CHAT, QUESTION, content_of, external, samples_of, units_of

from spanscore import semconv
from spanscore.core.codecs.tool_definitions import tool_definitions
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData
from spanscore.samples.genai import GenAIExtractor

BOTH = SingleTurnSample(user_input=QUESTION, response=ANSWER)
AGENTS = "logfire.openai_agents"
ASKED = {"role": "user", "content": QUESTION}
SAID = {"role": "assistant", "content": ANSWER}


def a_call(scope: str = "logfire.openai", **held: Any) -> SpanData:
    known = {name: value if isinstance(value, str) else json.dumps(value) for name, value in held.items()}
    plain = {name: value for name, value in LOGFIRE_CHAT.items() if not name.endswith("_data")}
    return external({**plain, **known}, scope)


@pytest.mark.parametrize(
    "held",
    [
        {"request_data": {"messages": [ASKED]}, "response_data": {"message": SAID, "usage": None}},
        {"request_data": {"prompt": QUESTION}, "response_data": {"finish_reason": "stop", "text": ANSWER}},
        {"request_data": {"messages": [ASKED]}, "response_data": {"combined_chunk_content": ANSWER, "chunk_count": 2}},
        {
            "events": [
                {"event.name": "gen_ai.user.message", **ASKED},
                {"event.name": "gen_ai.assistant.message", **SAID},
            ]
        },
        {"events": [ASKED, {"index": 0, "finish_reason": "STOP", "message": {**SAID, "content": [ANSWER]}}]},
    ],
    ids=["chat", "completion", "stream", "Responses API", "Gemini"],
)
def test_a_model_s_call_is_read_in_each_of_its_forms(held: dict[str, Any]) -> None:
    assert samples_of(a_call(**held)).single_turn == BOTH


def test_instructions_of_a_request_are_asked_too() -> None:
    request = {"system": "Be brief.", "messages": [ASKED]}

    content = content_of(a_call("logfire.anthropic", request_data=request, response_data={"message": SAID}))

    assert [message["role"] for message in content[semconv.INPUT_MESSAGES]] == ["system", "user"]


def test_the_tools_of_a_request_are_read() -> None:
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    request = {"messages": [ASKED], "tools": [tool]}

    content = content_of(a_call(request_data=request, response_data={"message": SAID}))

    assert [each.name for each in tool_definitions(content[semconv.TOOL_DEFINITIONS])] == ["search"]


def test_the_conventions_names_are_read_where_they_are_written() -> None:
    newest = {"gen_ai.input.messages": [ASKED], "gen_ai.output.messages": [SAID], "request_data": {"model": "m"}}

    assert samples_of(a_call(**newest)).single_turn == BOTH


@pytest.mark.parametrize("parent", [None, 1])
def test_a_streamed_call_is_one_unit_the_log_with_its_answer(parent: int | None) -> None:
    request = {"model": "m", "stream": True, "messages": [ASKED]}
    asked, both = a_call(request_data=request), a_call(request_data=request, response_data={"message": SAID})
    plain = {**both.attributes, "logfire.span_type": "log"}
    first = external(dict(asked.attributes), "logfire.openai", trace_id=1, span_id=2, parent_id=parent)
    log = external(plain, "logfire.openai", trace_id=1 if parent else 2, span_id=3, parent_id=parent)

    (unit,) = units_of([first, log])

    assert GenAIExtractor().extract(unit).single_turn == BOTH
    assert units_of([first]) == []


def test_a_request_that_failed_stays_a_unit() -> None:
    failed = external(dict(a_call(request_data={"messages": [ASKED]}).attributes), "logfire.openai", status="error")

    assert samples_of(failed).reason == "the run failed before it answered"


def test_the_agents_of_openai_are_read_from_their_models_calls() -> None:
    def step(span_id: int, named: str, **held: Any) -> SpanData:
        known = {name: value if isinstance(value, str) else json.dumps(value) for name, value in held.items()}
        common = {"logfire.span_type": "span", "gen_ai.system": "openai"}
        parent = span_id - 1 or None
        return external({**common, **known}, AGENTS, name=named, trace_id=1, span_id=span_id, parent_id=parent)

    spans = [
        step(1, "OpenAI Agents trace: {name}", name="Agent workflow", group_id="null"),
        step(2, "Agent run: {name!r}", name="guide"),
        step(3, "Turn {turn} for agent guide", name="turn"),
        step(4, "Chat completion with {gen_ai.request.model!r}", input=[ASKED], output=[SAID]),
        step(5, "Function: {name}", name="look_up", input='{"of": "France"}', output="Paris"),
    ]

    (unit,) = units_of(spans)

    assert [span.operation for span in unit.spans] == [
        "invoke_workflow",
        "invoke_agent",
        "execute_task",
        "chat",
        "execute_tool",
    ]
    assert GenAIExtractor().extract(unit).single_turn == BOTH
    assert unit.facts().conversation_id == ""


@pytest.mark.parametrize("name", ["Guardrail {name!r} {triggered=}", "Text → Speech", "Speech → Text with {model!r}"])
def test_speech_and_guardrails_are_no_part_of_a_unit(name: str) -> None:
    held = {"gen_ai.system": "openai", "input": "Hello", "output": "Hello"}

    assert units_of([external(held, AGENTS, name=name)]) == []


@pytest.mark.parametrize(
    ("name", "is_read"), [("Chat Completion with 'm'", True), ("Embedding Creation with 'm'", False)]
)
def test_a_call_without_an_operation_is_known_by_its_name(name: str, is_read: bool) -> None:
    held = {name: value for name, value in LOGFIRE_CHAT.items() if name != "gen_ai.operation.name"}

    assert bool(units_of([external(held, "logfire.openai", name=name)])) is is_read


def test_images_are_no_unit() -> None:
    request = a_call(**{"gen_ai.operation.name": "generate_content"}, request_data={"prompt": "A"})

    assert units_of([request]) == []


def test_an_agent_without_sensitive_data_has_an_outcome_that_says_so() -> None:
    silent = external({"gen_ai.system": "openai", "input": "null"}, AGENTS, name="Chat completion with 'm'")

    assert samples_of(silent).outcome == Outcome.NO_SAMPLE
    assert samples_of(silent).reason == "content is not on the spans (logfire)"

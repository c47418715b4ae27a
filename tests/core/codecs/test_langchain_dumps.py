"""LangChain values dumped by others are read like the values themselves by our own codec."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from langchain_core.documents import Document
from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)
from langchain_core.prompt_values import ChatPromptValue
from langgraph.types import Command
from tests.core.codecs.payloads import payloads

from spanscore import semconv
from spanscore.core.codecs.langchain import root_content, tool_content
from spanscore.core.codecs.snapshot import snapshot, snapshot_tool_output
from spanscore.core.codecs.stored_sample import call_id_in, content_of_side, messages_from, tool_answer, unfold_dump

CALL = {"name": "add", "args": {"a": 2}, "id": "call-1", "type": "tool_call"}
MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("What is 2 plus 3?", id="h-1", name="Ada"),
    HumanMessage([{"type": "text", "text": "And "}, {"type": "image_url", "image_url": {"url": "data:x"}}]),
    HumanMessage("A summary.", additional_kwargs={"lc_source": "summarization"}),
    AIMessage("", tool_calls=[CALL], id="a-1"),
    ToolMessage("5", tool_call_id="call-1", name="add", status="error"),
    ToolMessage("Never.", tool_call_id="call-1", additional_kwargs={"lc_source": "hitl_interrupt_decision"}),
    AIMessageChunk("It is 5."),
    ChatMessage("Hm.", role="critic"),
]
DOCUMENT = Document("It opened in 1931.", id="d-1", metadata={"page": 3})
VALUES: list[Any] = [
    MESSAGES,
    {"messages": MESSAGES, "context": [DOCUMENT]},
    {"messages": [("user", "Hi"), {"role": "assistant", "content": "Hello"}, "And?"]},
    {"question": "When?", "docs": [DOCUMENT]},
    AIMessage("Paris."),
    "5",
    5,
    None,
    [DOCUMENT],
]


def as_load(value: Any) -> Any:
    return json.loads(dumps(value))


def as_message_dicts(value: Any) -> Any:
    def default(one: Any) -> Any:
        return message_to_dict(one) if isinstance(one, BaseMessage) else one.model_dump()

    return json.loads(json.dumps(value, default=default))


def as_model_dumps(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda one: one.model_dump()))


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("dumped", [as_load, as_message_dicts])
def test_a_root_reads_as_its_own_values_do(value: Any, dumped: Callable[[Any], Any]) -> None:
    shown = content_of_side(dumped(value), semconv.INPUT_MESSAGES, semconv.INPUT_VALUE)

    assert shown == root_content(snapshot(value), None)


def test_a_prompt_reads_as_its_messages() -> None:
    prompt = as_load(ChatPromptValue(messages=MESSAGES[:2]))

    assert messages_from(unfold_dump(prompt)) == messages_from(unfold_dump(as_load(MESSAGES[:2])))


def test_messages_as_models_dump_them_read_as_well() -> None:
    assert messages_from(unfold_dump(as_model_dumps(MESSAGES))) == messages_from(unfold_dump(as_load(MESSAGES)))


def test_a_removal_is_no_message() -> None:
    removed = as_load([RemoveMessage(id="h-1")])

    assert unfold_dump(removed) == [None]


@pytest.mark.parametrize("dumped", [as_load, as_message_dicts])
def test_a_tool_gives_its_words_the_documents_of_its_artifact_and_the_id_of_the_call(dumped: Any) -> None:
    message = ToolMessage("Found one.", tool_call_id="call-1", artifact=[DOCUMENT])
    expected = tool_content(None, snapshot_tool_output(message))

    result, documents, identity = tool_answer(dumped(message))

    assert result == expected[semconv.TOOL_CALL_RESULT]
    assert documents == expected[semconv.RETRIEVAL_DOCUMENTS]
    assert identity == call_id_in(json.dumps(dumped(message))) == "call-1"


def test_a_tool_that_gives_a_command_answers_with_its_message() -> None:
    command = asdict(Command(update={"messages": [ToolMessage("Done.", tool_call_id="call-1")]}))

    assert tool_answer(as_load(command)) == ("Done.", [], "call-1")


def test_a_resumed_run_shows_the_command() -> None:
    given = as_load(asdict(Command(resume="yes")))

    assert content_of_side(given, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE) == root_content(
        snapshot(Command(resume="yes")), None
    )


def test_an_unknown_object_shows_its_class_and_a_deep_one_a_marker() -> None:
    deep: Any = "text"
    for _ in range(1_000):
        deep = [deep]

    assert unfold_dump({"lc": 1, "type": "not_implemented", "id": ["app", "Thing"], "repr": "Thing()"}) == {
        "type": "Thing"
    }
    assert "list" in str(unfold_dump(deep))


@given(payloads())
def test_no_json_makes_it_raise(value: Any) -> None:
    content_of_side(value, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE)
    tool_answer(value)
    content_of_side({"messages": value, "lc": 1, "id": [value], "kwargs": value}, "a", "b")
    tool_answer({"type": "tool", "data": {"content": value, "artifact": value, "tool_call_id": value}})

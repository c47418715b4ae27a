"""Snapshots → GenAI content: every form of message, value, document and tool result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.prompt_values import ChatPromptValue
from langgraph.types import Command
from pydantic import BaseModel
from tests.core.codecs.payloads import MESSAGES, payloads

from spanscore.core import sample as ours
from spanscore.core.codecs.langchain import (
    chat_content,
    completion_content,
    render_messages,
    render_value,
    retriever_content,
    root_content,
    sample_from_messages,
    tool_content,
)
from spanscore.core.codecs.snapshot import snapshot, snapshot_generation, snapshot_messages, snapshot_tool_output
from spanscore.core.sample import MultiTurnSample, SingleTurnSample
from spanscore.errors import SampleError

CALL = {"name": "find", "args": {"q": "x"}, "id": "c1", "type": "tool_call"}
CALL_PART = {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"q": "x"}}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def said(role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts), **more}


MESSAGE_FORMS: list[tuple[Any, dict[str, Any]]] = [
    (HumanMessage("q"), said("user", text("q"))),
    (HumanMessage("q", name="ann"), said("user", text("q"), name="ann")),
    (SystemMessage("be brief"), said("system", text("be brief"))),
    (AIMessage("a"), said("assistant", text("a"))),
    (AIMessage(""), said("assistant")),
    (AIMessage("", tool_calls=[CALL]), said("assistant", CALL_PART)),
    (AIMessage("wait", tool_calls=[CALL]), said("assistant", text("wait"), CALL_PART)),
    (
        ToolMessage("r", tool_call_id="c1", name="find"),
        said("tool", {"type": "tool_call_response", "id": "c1", "response": "r"}, name="find"),
    ),
    (
        ToolMessage("no", tool_call_id="c1", status="error"),
        said("tool", {"type": "tool_call_response", "id": "c1", "response": "no", "status": "error"}),
    ),
    (
        ToolMessage([{"type": "text", "text": "a"}, "b"], tool_call_id="c1"),
        said("tool", {"type": "tool_call_response", "id": "c1", "response": "ab"}),
    ),
    (
        FunctionMessage("r", name="f"),
        said("tool", {"type": "tool_call_response", "id": None, "response": "r"}, name="f"),
    ),
    (ChatMessage("x", role="user"), said("user", text("x"))),
    (ChatMessage("x", role="critic"), said("critic", text("x"))),
    (
        HumanMessage(["look", {"type": "text", "text": "here"}, {"type": "image_url", "image_url": {"url": "data:x"}}]),
        said("user", text("look"), text("here"), {"type": "blob", "modality": "image"}),
    ),
    (
        HumanMessage([{"type": "audio", "base64": "xx", "mime_type": "audio/wav"}]),
        said("user", {"type": "blob", "modality": "audio"}),
    ),
    (
        AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]),
        said("assistant", {"type": "reasoning", "content": "hm"}, text("a")),
    ),
    (
        AIMessage([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]),
        said("assistant", {"type": "reasoning", "content": "hm"}),
    ),
    (AIMessage([{"type": "refusal", "refusal": "I won't."}]), said("assistant", text("I won't."))),
    (
        AIMessage([{"type": "tool_use", "id": "c1", "name": "find", "input": {"q": "x"}}], tool_calls=[CALL]),
        said("assistant", CALL_PART),
    ),
    (
        HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "r"}]}]),
        said("user", {"type": "tool_call_response", "id": "c1", "response": "r"}),
    ),
    (AIMessage([{"type": "compaction", "output": 1}]), said("assistant", {"type": "compaction"})),
    (
        AIMessage([{"type": "server_tool_use", "id": "s1", "name": "find", "input": {"q": "x"}}]),
        said("assistant", {"type": "tool_call", "id": "s1", "name": "find", "arguments": {"q": "x"}}),
    ),
    (
        AIMessage([{"type": "web_search_tool_result", "tool_use_id": "s1", "content": "r"}]),
        said("assistant", {"type": "tool_call_response", "id": "s1", "response": "r"}),
    ),
    (
        HumanMessage(
            [{"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "r"}]}]
        ),
        said("user", {"type": "search_result", "source": "s", "title": "t", "content": "r"}),
    ),
    (("user", "q"), said("user", text("q"))),
    (("human", "q"), said("user", text("q"))),
    (("ai", "a"), said("assistant", text("a"))),
    ({"role": "user", "content": "q"}, said("user", text("q"))),
    ({"role": "developer", "content": "brief"}, said("system", text("brief"))),
    (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": '{"q":1}'}}],
        },
        said("assistant", {"type": "tool_call", "id": "c1", "name": "find", "arguments": '{"q":1}'}),
    ),
    (
        {"role": "tool", "content": "r", "tool_call_id": "c1"},
        said("tool", {"type": "tool_call_response", "id": "c1", "response": "r"}),
    ),
    (said("assistant", text("a")), said("assistant", text("a"))),
]


@pytest.mark.parametrize(("message", "form"), MESSAGE_FORMS, ids=range(len(MESSAGE_FORMS)))
def test_every_form_of_message_has_a_genai_form(message: Any, form: dict[str, Any]) -> None:
    assert render_messages(snapshot([message])) == [form]


def deep(levels: int) -> Any:
    return {"n": deep(levels - 1)} if levels else "end"


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[CALL, {**CALL, "id": None}]),
        AIMessage("I look.", tool_calls=[{**CALL, "args": {"q": deep(20), "m": [HumanMessage("é\ud800")]}}]),
        AIMessage("Four.", additional_kwargs={"refusal": None}),
        AIMessage("Four.", name="math", additional_kwargs={"lc_source": "summary"}),
        ToolMessage("é\ud800", tool_call_id="c\ud800", name="find", status="error"),
        ToolMessage("", tool_call_id="c1"),
        ToolMessage(["in ", {"type": "text", "text": "parts"}], tool_call_id="c1"),
    ],
)
def test_a_message_of_a_conversation_reads_as_the_same_in_a_value(message: Any) -> None:
    kept = snapshot(message)

    assert render_messages(kept) == [render_value(kept)]


def test_what_is_no_message_is_left_out() -> None:
    taken = snapshot([HumanMessage("q"), RemoveMessage(id="1"), object(), 1, AIMessage("a")])

    assert render_messages(taken) == [said("user", text("q")), said("assistant", text("a"))]


Q, A = said("user", text("q")), said("assistant", text("a"))


class Answer(BaseModel):
    capital: str


@dataclass(frozen=True)
class Ticket:
    question: str
    seen: tuple[str, ...] = ()


ROOTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "nothing": (None, {}),
    "a text": ("q", {"input.value": "q"}),
    "an empty text": ("", {"input.value": ""}),
    "a number": (3, {"input.value": 3}),
    "a message": (HumanMessage("q"), {"gen_ai.input.messages": [Q]}),
    "messages": ([HumanMessage("q"), AIMessage("a")], {"gen_ai.input.messages": [Q, A]}),
    "a prompt": (ChatPromptValue(messages=[HumanMessage("q")]), {"gen_ai.input.messages": [Q]}),
    "pairs": ([("user", "q"), ("ai", "a")], {"gen_ai.input.messages": [Q, A]}),
    "one pair": (("user", "q"), {"gen_ai.input.messages": [Q]}),
    "dicts": ([{"role": "user", "content": "q"}], {"gen_ai.input.messages": [Q]}),
    "one dict": ({"role": "user", "content": "q"}, {"gen_ai.input.messages": [Q]}),
    "messages of any form": ([HumanMessage("q"), ("ai", "a")], {"gen_ai.input.messages": [Q, A]}),
    "a state": ({"messages": [HumanMessage("q")]}, {"gen_ai.input.messages": [Q]}),
    "a state of one message": ({"messages": HumanMessage("q")}, {"gen_ai.input.messages": [Q]}),
    "a state of one text": ({"messages": "q"}, {"gen_ai.input.messages": [Q]}),
    "a state of texts": ({"messages": ["q"]}, {"gen_ai.input.messages": [Q]}),
    "a state of one pair": ({"messages": ("user", "q")}, {"gen_ai.input.messages": [Q]}),
    "a state with other keys": (
        {"messages": [("user", "q")], "docs": [Document("d")], "n": 1},
        {
            "gen_ai.input.messages": [Q],
            "input.value": {"docs": [{"page_content": "d", "id": None, "metadata": {}}], "n": 1},
        },
    ),
    "a state without messages yet": ({"messages": []}, {"input.value": {"messages": []}}),
    "a state whose messages are none": ({"messages": [1, 2]}, {"input.value": {"messages": [1, 2]}}),
    "texts": (["a", "b"], {"input.value": ["a", "b"]}),
    "two texts that are no pair": (("Paris", "Rome"), {"input.value": ["Paris", "Rome"]}),
    "a history beside a question": (
        {"input": "q", "history": [AIMessage("a")]},
        {"input.value": {"input": "q", "history": [A]}},
    ),
    "a command": (Command(resume="yes"), {"input.value": {"type": "Command", "resume": "yes"}}),
    "a command that goes on": (
        Command(resume={"ok": True}, update={"n": 1}, goto="next"),
        {"input.value": {"type": "Command", "resume": {"ok": True}, "update": {"n": 1}, "goto": "next"}},
    ),
    "a pydantic object": (Answer(capital="Paris"), {"input.value": {"capital": "Paris"}}),
    "a dataclass": (Ticket("q"), {"input.value": {"question": "q", "seen": []}}),
    "an unknown object": (object(), {"input.value": {"type": "object"}}),
    "documents": ([Document("d", id="1")], {"input.value": [{"page_content": "d", "id": "1", "metadata": {}}]}),
}


@pytest.mark.parametrize("shape", ROOTS)
def test_a_root_carries_a_conversation_as_messages_and_the_rest_as_value(shape: str) -> None:
    value, content = ROOTS[shape]

    assert root_content(snapshot(value), None) == content
    assert root_content(None, snapshot(value)) == {key.replace("input", "output"): v for key, v in content.items()}


def test_what_was_expected_rides_with_the_root() -> None:
    content = root_content(None, None, {"reference": "r", "reference_contexts": ("a",)})

    assert content == {"spanscore.references": {"reference": "r", "reference_contexts": ["a"]}}


def test_metadata_of_documents_is_limited_to_plain_values() -> None:
    document = Document(
        "d", id="1", metadata={"page": 1, "score": float("nan"), "parent": Document("p"), "tags": ["x"]}
    )

    assert render_value(snapshot(document)) == {"page_content": "d", "id": "1", "metadata": {"page": 1, "score": "NaN"}}


def test_messages_and_documents_deep_in_a_value_are_rendered() -> None:
    value = {"a": {"b": {"c": [HumanMessage("q"), Document("d")]}}}

    assert render_value(snapshot(value))["a"]["b"]["c"] == [Q, {"page_content": "d", "id": None, "metadata": {}}]


def test_a_chat_has_what_it_was_asked_and_said() -> None:
    answer = AIMessage("a", response_metadata={"finish_reason": "stop"})
    result = LLMResult(generations=[[ChatGeneration(message=answer)]])

    content = chat_content(snapshot_messages([[HumanMessage("q")]]), snapshot_generation(result))

    assert content == {"gen_ai.input.messages": [Q], "gen_ai.output.messages": [{**A, "finish_reason": "stop"}]}


def test_a_chat_that_failed_has_no_answer() -> None:
    assert chat_content(snapshot_messages([[HumanMessage("q")]]), None) == {"gen_ai.input.messages": [Q]}


def test_a_partial_text_is_an_answer() -> None:
    assert chat_content(None, "a") == {"gen_ai.output.messages": [A]}


def test_a_completion_is_one_user_message() -> None:
    assert completion_content(snapshot(["q"]), None) == {"gen_ai.input.messages": [Q]}


def test_a_retriever_has_its_query_and_its_documents() -> None:
    found = snapshot([Document("a", id="1", metadata={"score": 0.5, "x": 1}), Document("b")])

    assert retriever_content("q", found) == {
        "gen_ai.retrieval.query.text": "q",
        "gen_ai.retrieval.documents": [{"id": "1", "content": "a", "score": 0.5}, {"content": "b"}],
    }


def test_a_retriever_that_found_nothing_differs_from_one_that_failed() -> None:
    assert retriever_content("q", snapshot([]))["gen_ai.retrieval.documents"] == []
    assert "gen_ai.retrieval.documents" not in retriever_content("q", None)


def test_a_score_that_no_float_can_hold_is_left_out_and_takes_no_document_along() -> None:
    found = snapshot([Document("d", metadata={"score": 10**400})])

    assert retriever_content("q", found)["gen_ai.retrieval.documents"] == [{"content": "d"}]


DOCUMENT = Document("d", id="1")
TOOLS: dict[str, tuple[Any, Any, bool]] = {
    "a text": ("r", "r", False),
    "a dict": ({"a": [1]}, {"a": [1]}, False),
    "a message": (ToolMessage("r", tool_call_id="1"), "r", False),
    "a message of blocks": (ToolMessage([{"type": "text", "text": "r"}], tool_call_id="1"), "r", False),
    "a block of text without its text": (
        ToolMessage([{"type": "text", "x": 1}], tool_call_id="1"),
        [{"type": "text", "x": 1}],
        False,
    ),
    "documents in the artifact": (ToolMessage("r", tool_call_id="1", artifact=[DOCUMENT]), "r", True),
    "one document as artifact": (ToolMessage("r", tool_call_id="1", artifact=DOCUMENT), "r", True),
    "documents with scores": (ToolMessage("r", tool_call_id="1", artifact=[(DOCUMENT, 0.5)]), "r", True),
    "documents in a dict": (ToolMessage("r", tool_call_id="1", artifact={"docs": [DOCUMENT], "n": 1}), "r", True),
    "documents as JSON": (
        ToolMessage("r", tool_call_id="1", artifact=[{"page_content": "d", "id": "1", "metadata": None}]),
        "r",
        True,
    ),
    "an image beside its words": (
        ToolMessage([{"type": "text", "text": "r"}, {"type": "image", "base64": "AAAA"}], tool_call_id="1"),
        [{"type": "text", "text": "r"}, {"type": "blob", "modality": "image", "content": "AAAA"}],
        False,
    ),
    "documents of words, one of bytes": (
        ToolMessage(
            [
                {"type": "document", "source": {"type": "text", "data": "d"}},
                {"type": "document", "content": "d"},
                {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
            ],
            tool_call_id="1",
        ),
        [
            {"type": "document", "source": {"type": "text", "data": "d"}},
            {"type": "document", "content": "d"},
            {"type": "blob", "modality": "file"},
        ],
        False,
    ),
    "an artifact without documents": (ToolMessage("r", tool_call_id="1", artifact={"image": b"x"}), "r", False),
    "an empty artifact": (ToolMessage("r", tool_call_id="1", artifact=[]), "r", False),
    "documents as result": ([DOCUMENT], [{"page_content": "d", "id": "1", "metadata": {}}], True),
    "a command": (Command(update={"messages": [ToolMessage("r", tool_call_id="1")]}), "r", False),
    "a command with an artifact": (
        Command(update={"messages": [ToolMessage("r", tool_call_id="1", artifact=[DOCUMENT])], "n": 1}),
        "r",
        True,
    ),
    "a command without a message": (Command(goto="x"), {"type": "Command", "goto": "x"}, False),
}


@pytest.mark.parametrize("shape", TOOLS)
def test_a_tool_has_its_result_and_the_documents_of_its_artifact(shape: str) -> None:
    output, result, has_documents = TOOLS[shape]

    content = tool_content(snapshot({"q": 1}), snapshot_tool_output(output))

    documents = {"gen_ai.retrieval.documents": [{"id": "1", "content": "d"}]} if has_documents else {}
    assert content == {"gen_ai.tool.call.arguments": {"q": 1}, "gen_ai.tool.call.result": result, **documents}


@given(payloads() | MESSAGES)
def test_nothing_raises_for_what_a_payload_holds(value: object) -> None:
    taken = snapshot({"messages": value, "other": value})

    for content in (
        root_content(taken, snapshot(value), {"x": value}),
        chat_content(snapshot(value), snapshot(value)),
        completion_content(snapshot(value), None),
        retriever_content(snapshot(value), snapshot(value)),
        tool_content(snapshot(value), snapshot_tool_output(value)),
    ):
        assert all(isinstance(name, str) for name in content)
    assert isinstance(render_messages(snapshot(value)), list)


# --- samples ----------------------------------------------------------------------------------------------------


def test_messages_become_those_of_a_sample() -> None:
    talk = [
        SystemMessage("brief"),
        HumanMessage("q"),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("r", tool_call_id="c1"),
    ]

    assert sample_from_messages(talk).user_input == [
        ours.HumanMessage(content="q"),
        ours.AIMessage(tool_calls=[ours.ToolCall(name="find", args={"q": "x"}, id="c1")]),
        ours.ToolMessage(content="r", tool_call_id="c1"),
    ]


def test_one_question_and_its_answer_are_a_single_turn() -> None:
    talk = [SystemMessage("brief"), HumanMessage("q"), AIMessage("a")]

    assert sample_from_messages(talk) == SingleTurnSample(user_input="q", response="a")


def test_a_question_alone_is_a_single_turn_without_answer() -> None:
    assert sample_from_messages([HumanMessage("q")]) == SingleTurnSample(user_input="q")


@pytest.mark.parametrize(
    "talk",
    [
        [HumanMessage("q"), AIMessage("", tool_calls=[CALL]), ToolMessage("r", tool_call_id="c1"), AIMessage("a")],
        [("user", "q"), ("ai", "a"), ("user", "q2"), ("ai", "a2")],
    ],
)
def test_tool_calls_or_several_turns_are_a_multi_turn(talk: list[Any]) -> None:
    sample = sample_from_messages(talk)

    assert isinstance(sample, MultiTurnSample)
    assert len(sample.user_input) == len(talk)


def test_a_conversation_that_cannot_be_is_refused_with_the_message_and_why() -> None:
    with pytest.raises(SampleError, match="message 1 is a tool result"):
        sample_from_messages([HumanMessage("q"), ToolMessage("r", tool_call_id="c1"), AIMessage("a")])

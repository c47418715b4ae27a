"""Samples: ragas's field names, JSON there and back, conversations that cannot be, and how a conversation reads."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    MultiTurnSample,
    SingleTurnSample,
    ToolCall,
    ToolMessage,
    by_value,
    missing_fields,
)

CALL = ToolCall(name="lookup", args={"q": "Lake Imber", "k": 4}, id="c1")
ASK = AIMessage(content="Let me check.", tool_calls=[CALL])
TALK = [
    HumanMessage(content="Where is it?"),
    ASK,
    ToolMessage(content="North.", tool_call_id="c1"),
    AIMessage(content="In the north."),
]


def test_single_turn_fields_are_those_of_ragas() -> None:
    assert set(SingleTurnSample.model_fields) == {
        "user_input",
        "response",
        "retrieved_contexts",
        "retrieved_context_ids",
        "reference",
        "reference_contexts",
        "reference_context_ids",
        "rubrics",
    } | {"duration_s", "usage", "images"}  # our own


def test_multi_turn_fields_are_those_of_ragas() -> None:
    assert set(MultiTurnSample.model_fields) == {
        "user_input",
        "reference",
        "reference_tool_calls",
        "reference_topics",
        "rubrics",
    } | {"tools", "images"}  # our own


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="contexts"):
        SingleTurnSample.model_validate({"user_input": "q", "contexts": []})


@pytest.mark.parametrize(
    "sample",
    [
        SingleTurnSample(),
        SingleTurnSample(user_input="q", response="", retrieved_contexts=[], retrieved_context_ids=[1, "a"]),
        SingleTurnSample(reference="r", reference_contexts=["c"], reference_context_ids=["1"], rubrics={"1": "bad"}),
        MultiTurnSample(user_input=TALK, reference="r", reference_tool_calls=[CALL], reference_topics=["lakes"]),
    ],
)
def test_a_sample_survives_json(sample: SingleTurnSample | MultiTurnSample) -> None:
    assert type(sample).model_validate_json(sample.model_dump_json()) == sample


def test_messages_are_distinguished_by_their_type() -> None:
    given = [{"type": "human", "content": "a"}, {"type": "ai", "content": "b"}]

    assert MultiTurnSample.model_validate({"user_input": given}).user_input == [
        HumanMessage(content="a"),
        AIMessage(content="b"),
    ]


def test_a_conversation_renders_with_its_tools() -> None:
    assert MultiTurnSample(user_input=TALK).pretty() == (
        "Human: Where is it?\n"
        "AI: Let me check.\n"
        "Tools:\n"
        "  lookup: {'q': 'Lake Imber', 'k': 4}\n"
        "ToolOutput: North.\n"
        "AI: In the north."
    )


def test_an_assistant_that_only_calls_tools_has_no_line_of_its_own() -> None:
    conversation = MultiTurnSample(user_input=[AIMessage(tool_calls=[CALL])])

    assert conversation.pretty() == "Tools:\n  lookup: {'q': 'Lake Imber', 'k': 4}"


@pytest.mark.parametrize("message", [AIMessage(), AIMessage(tool_calls=[])])
def test_an_assistant_that_says_nothing_renders_as_nothing(message: AIMessage) -> None:
    assert MultiTurnSample(user_input=[message]).pretty() == ""


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([ToolMessage(content="x")], "message 0 is a tool result, but no assistant message precedes it"),
        ([HumanMessage(content="a"), ToolMessage(content="x")], "message 1 .* no assistant message precedes it"),
        ([AIMessage(content="a"), ToolMessage(content="x")], r"message 1 .* message 0 \(ai\) calls no tool"),
        ([ASK, HumanMessage(content="a"), ToolMessage(content="x")], r"message 2 .* message 1 \(human\) calls no tool"),
        (
            [ASK, ToolMessage(content="x", tool_call_id="c9")],
            "answers tool call 'c9', which no earlier message made",
        ),
    ],
)
def test_a_conversation_that_cannot_be_is_refused_with_the_message_and_why(messages: list, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        MultiTurnSample(user_input=messages)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HumanMessage(content="a")],
        [ASK],
        [ASK, ToolMessage(content="x"), ToolMessage(content="y", tool_call_id="c1")],
        [AIMessage(tool_calls=[ToolCall(name="n")]), ToolMessage(content="x", tool_call_id="any")],
    ],
)
def test_a_conversation_that_can_be_is_taken(messages: list) -> None:
    assert MultiTurnSample(user_input=messages).user_input == messages


def test_what_is_empty_is_not_missing() -> None:
    sample = SingleTurnSample(user_input="", retrieved_contexts=[])

    assert missing_fields(sample, ["user_input", "retrieved_contexts", "response"]) == ["response"]


def test_a_field_of_the_other_kind_of_sample_is_missing() -> None:
    assert missing_fields(SingleTurnSample(), ["reference_topics"]) == ["reference_topics"]


def test_samples_of_a_file_of_conversations_load_unchanged(tmp_path: Path) -> None:
    rows = [{"user_input": [m.model_dump(exclude_none=True) for m in TALK], "reference_topics": ["lakes"]}]
    (tmp_path / "talks.json").write_text(json.dumps(rows))

    (row,) = json.loads((tmp_path / "talks.json").read_text())

    assert MultiTurnSample.model_validate(row) == MultiTurnSample(user_input=TALK, reference_topics=["lakes"])


def test_a_sample_by_value_shares_no_list_or_dict_also_where_one_holds_itself():
    args = {"stops": ["Oslo"]}
    args["self"] = args
    call = ToolCall.model_construct(name="plan", args=args, id=None)
    sample = MultiTurnSample.model_construct(user_input=[AIMessage.model_construct(content="", tool_calls=[call])])

    taken = by_value(sample)
    args["stops"].append("Bergen")

    copied = taken.user_input[0].tool_calls[0].args
    assert copied["stops"] == ["Oslo"]
    assert copied["self"] is copied

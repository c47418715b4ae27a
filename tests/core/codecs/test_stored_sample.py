"""A record of ragas, old or new or from a CSV file, is a sample; an invalid one gives a message that does not quote it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from langchain_core import messages
from langchain_core.documents import Document

from spanscore.core.codecs.stored_sample import columns_of, sample_of
from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolMessage
from spanscore.errors import SampleError


class NotAvailable:
    """As ``pandas.NA``: it is not unequal to itself, and has no truth value."""

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


WHOLE = SingleTurnSample(user_input="Q", response="A", retrieved_contexts=["C1", "C2"], reference="R")
RECORDS: dict[str, dict[str, Any]] = {
    "today's names": {"user_input": "Q", "response": "A", "retrieved_contexts": ["C1", "C2"], "reference": "R"},
    "the former names": {"question": "Q", "answer": "A", "contexts": ["C1", "C2"], "ground_truth": "R"},
    "the names before those": {"question": "Q", "answer": "A", "contexts": ["C1", "C2"], "ground_truths": ["R", "S"]},
    "both names": {"user_input": "Q", "question": "no", "answer": "A", "contexts": ["C1", "C2"], "reference": "R"},
    "more than is known": {
        "id": 7,
        "user_input": "Q",
        "response": "A",
        "retrieved_contexts": ["C1", "C2"],
        "reference": "R",
    },
    "tuples": {"user_input": "Q", "response": "A", "retrieved_contexts": ("C1", "C2"), "reference": "R"},
    "a list as JSON text": {**WHOLE.model_dump(), "retrieved_contexts": '["C1", "C2"]'},
    "a list as Python text": {**WHOLE.model_dump(), "retrieved_contexts": "['C1', 'C2']"},
    "an array": {**WHOLE.model_dump(), "retrieved_contexts": np.array(["C1", "C2"], dtype=object)},
    "an array of the right answers": {**WHOLE.model_dump(), "reference": None, "ground_truths": np.array(["R", "S"])},
    "documents": {**WHOLE.model_dump(), "retrieved_contexts": [Document("C1"), {"page_content": "C2", "metadata": {}}]},
    "a message as answer": {**WHOLE.model_dump(), "response": messages.AIMessage("A")},
    "names with spaces and capitals": {
        "Question": "Q",
        " answer": "A",
        "CONTEXTS ": ["C1", "C2"],
        "\ufeffreference": "R",
    },
    "one name as it is, and a variant": {**WHOLE.model_dump(), " Response": "no"},
    "pandas.NA": {**WHOLE.model_dump(), "rubrics": NotAvailable(), "question": NotAvailable()},
    "rubrics of others, as Arrow stores them": {**WHOLE.model_dump(), "rubrics": None},
    "nan where nothing is": {**WHOLE.model_dump(), "rubrics": float("nan"), "reference_contexts": None},
}
EMPTY = {"user_input": "Q", "response": "A", "reference": "R", "rubrics": "", "reference_contexts": ""}
CELLS: dict[str, dict[str, str]] = {
    "JSON in a cell": {"question": "Q", "answer": "A", "contexts": '["C1", "C2"]', "ground_truth": "R"},
    "Python in a cell": {"question": "Q", "answer": "A", "contexts": "['C1', 'C2']", "ground_truths": "['R']"},
    "an empty cell": {**EMPTY, "retrieved_contexts": "['C1','C2']"},
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_a_sample(name: str) -> None:
    assert sample_of(RECORDS[name]) == WHOLE


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_a_sample(name: str) -> None:
    assert sample_of(CELLS[name], texts=True) == WHOLE


def test_messages_are_a_conversation() -> None:
    record = {
        "user_input": [
            {"content": "When?", "type": "human", "metadata": None},
            {"content": "", "type": "ai", "tool_calls": [{"name": "look", "args": {"q": 1}}]},
            {"content": "1931", "type": "tool"},
            {"content": "In 1931.", "type": "ai"},
        ],
        "reference_topics": ["bridges"],
    }

    assert sample_of(record) == MultiTurnSample(
        user_input=[
            HumanMessage(content="When?"),
            AIMessage(tool_calls=[ToolCall(name="look", args={"q": 1})]),
            ToolMessage(content="1931"),
            AIMessage(content="In 1931."),
        ],
        reference_topics=["bridges"],
    )


def test_messages_in_a_cell_are_a_conversation_and_a_question_in_brackets_is_not() -> None:
    cell = '[{"content": "When?", "type": "human"}]'

    assert sample_of({"user_input": cell}, texts=True) == MultiTurnSample(user_input=[HumanMessage(content="When?")])
    assert sample_of({"user_input": "[sic] When?"}, texts=True) == SingleTurnSample(user_input="[sic] When?")


OPENAI = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": '{"q": 1}'}}]},
    {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    {"role": "assistant", "content": "Sunny."},
]
OURS = [
    HumanMessage(content="Weather?"),
    AIMessage(tool_calls=[ToolCall(name="look", args={"q": 1}, id="1")]),
    ToolMessage(content="sunny", tool_call_id="1"),
    AIMessage(content="Sunny."),
]
LANGCHAIN = [
    messages.SystemMessage("Be kind."),
    messages.HumanMessage("Weather?"),
    messages.AIMessage("", tool_calls=[{"name": "look", "args": {"q": 1}, "id": "1"}]),
    messages.ToolMessage("sunny", tool_call_id="1"),
    messages.AIMessage("Sunny."),
]
RAGAS = [
    {"type": "human", "content": "Weather?"},
    {"type": "ai", "content": "", "tool_calls": [{"name": "look", "args": '{"q": 1}', "id": "1"}]},
    {"type": "tool", "content": "sunny", "tool_call_id": "1", "metadata": None},
    {"type": "ai", "content": "Sunny.", "tool_calls": None},
]
CONVERSATIONS: dict[str, Any] = {
    "OpenAI's dicts": OPENAI,
    "an array of dicts": np.array(OPENAI, dtype=object),
    "JSON text": json.dumps(OPENAI),
    "LangChain's objects": LANGCHAIN,
    "LangChain's dicts": [message.model_dump() for message in LANGCHAIN],
    "LangChain's stored messages": messages.messages_to_dict(LANGCHAIN),
    "ragas's dicts, arguments as text": RAGAS,
    "ours": OURS,
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_read_as_others_store_it(name: str) -> None:
    assert sample_of({"user_input": CONVERSATIONS[name]}) == MultiTurnSample(user_input=OURS)


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("text", ["[sic] A text.", "[1]", "[1] Smith", "[applause]", "[a] and [b]"])
def test_a_text_that_begins_with_a_bracket_is_no_list(text: str, texts: bool) -> None:
    assert sample_of({"contexts": text}, texts=texts) == SingleTurnSample(retrieved_contexts=[text])


@pytest.mark.parametrize("text", ['[{"a": 1}]', '[{"a": 1}] what is this?'])
def test_a_question_that_quotes_json_is_a_question(text: str) -> None:
    assert sample_of({"question": text}) == SingleTurnSample(user_input=text)


def test_columns_without_a_field_are_named() -> None:
    names = ("question", "anwser", " Contexts", "ID", 3, "Answer", "answer ")

    assert columns_of(names).read == {"question": "question", "contexts": " Contexts", "id": "ID"}
    assert columns_of(names).unread == ("anwser", 3, "Answer", "answer ")


def test_one_text_is_a_list_of_one() -> None:
    record = {"question": "Q", "contexts": "C"}

    assert (
        sample_of(record) == sample_of(record, texts=True) == SingleTurnSample(user_input="Q", retrieved_contexts=["C"])
    )


def test_an_object_with_to_dict_is_a_record() -> None:
    class Theirs:
        def to_dict(self) -> dict[str, Any]:
            return RECORDS["today's names"]

    assert sample_of(Theirs()) == WHOLE


def test_a_sample_of_ours_stays_as_it_is() -> None:
    assert sample_of(WHOLE) is WHOLE


WRONG: dict[str, tuple[Any, str]] = {
    "no object": (["SECRET"], "not a list"),
    "nothing known": ({"SECRET": 1}, "none of the fields"),
    "a number as answer": ({"answer": {"SECRET": 1}}, "response: Input should be a valid string"),
    "a number among texts": ({"contexts": ["SECRET", 7]}, "retrieved_contexts.1: .* not int"),
    "lists in a list": ({"contexts": [["SECRET"]]}, "retrieved_contexts.0: .* not list"),
    "half a list in a record": ({"contexts": "['SECRET"}, "neither JSON nor"),
    "a role that nobody has": ({"user_input": [{"role": "narrator", "content": "SECRET"}]}, "its role is 'narrator'"),
    "no role": ({"user_input": [{"content": "SECRET"}]}, "its role is none"),
    "texts as messages": ({"user_input": ["SECRET"]}, "user_input.0: .*; this is a str"),
    "a name near a field's": ({"anwser": "SECRET"}, r"did you mean 'answer'"),
    "an array's print": ({"contexts": "['SECRET one' 'two']"}, "commas separate"),
    "half a list": ({"contexts": "['SECRET"}, "neither JSON nor"),
    "a tool out of nowhere": ({"user_input": [{"type": "tool", "content": "SECRET"}]}, "no assistant message"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_sample_is_reported_and_not_quoted(name: str) -> None:
    record, words = WRONG[name]

    with pytest.raises(SampleError, match=words) as raised:
        sample_of(record, texts=isinstance(record, dict) and isinstance(record.get("contexts"), str))

    assert "SECRET" not in str(raised.value)

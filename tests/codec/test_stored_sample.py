"""A record of ragas's, old or new, or out of a CSV, is a sample; what cannot be one is told without quoting it."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.codec.stored_sample import sample_of
from spanscore.errors import SampleError
from spanscore.model.sample import AIMessage, HumanMessage, MultiTurnSample, SingleTurnSample, ToolCall, ToolMessage

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
    "a number among texts": ({"contexts": ["SECRET", 7]}, "retrieved_contexts.1: "),
    "an array's print": ({"contexts": "['SECRET one' 'two']"}, "commas separate"),
    "half a list": ({"contexts": "['SECRET"}, "neither JSON nor"),
    "a tool out of nowhere": ({"user_input": [{"type": "tool", "content": "SECRET"}]}, "no assistant message"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_sample_is_told_and_not_quoted(name: str) -> None:
    record, words = WRONG[name]

    with pytest.raises(SampleError, match=words) as raised:
        sample_of(record, texts=isinstance(record, dict) and isinstance(record.get("contexts"), str))

    assert "SECRET" not in str(raised.value)

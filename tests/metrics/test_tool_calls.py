"""ToolCallF1: calls made against calls expected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.sample import AIMessage, HumanMessage, MultiTurnSample, ToolCall
from spanscore.metrics import ToolCallAccuracy, ToolCallF1
from spanscore.metrics.tool_calls import are_equal

SEARCH = ToolCall(name="search", args={"q": "ferry"})
BOOK = ToolCall(name="book", args={"id": 7})

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def f1(made: list[ToolCall], expected: list[ToolCall]) -> float | None:
    messages = [HumanMessage(content="Please"), AIMessage(content="", tool_calls=made)]
    return ToolCallF1().score_sync(MultiTurnSample(user_input=messages, reference_tool_calls=expected)).value


@pytest.mark.parametrize(
    ("made", "expected", "value"),
    [
        ([SEARCH, BOOK], [BOOK, SEARCH], 1.0),
        ([SEARCH], [SEARCH, BOOK], 2 / 3),
        ([SEARCH, SEARCH], [SEARCH], 2 / 3),
        ([SEARCH], [BOOK], 0.0),
        ([], [], 1.0),
        ([], [BOOK], 0.0),
        ([BOOK], [], 0.0),
    ],
)
def test_each_expected_call_is_used_once(made: list[ToolCall], expected: list[ToolCall], value: float) -> None:
    assert f1(made, expected) == pytest.approx(value)


def test_an_assistant_that_never_spoke_called_nothing_right() -> None:
    sample = MultiTurnSample(user_input=[HumanMessage(content="hello")], reference_tool_calls=[])

    assert ToolCallF1().score_sync(sample).value == 0.0


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1, True, False),
        (0, False, False),
        ("7", 7, False),
        (None, "None", False),
        ({"a": 1, "b": [2, {"c": 3}]}, {"b": [2.0, {"c": 3}], "a": 1}, True),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        (10**400, 1.5, False),
        (float("inf"), float("inf"), True),
    ],
)
def test_arguments_are_compared_deeply_and_by_type(one: Any, other: Any, equal: bool) -> None:
    assert are_equal(one, other) is equal
    assert are_equal(other, one) is equal


@given(VALUES)
def test_every_value_is_alike_itself(value: Any) -> None:
    assert are_equal(value, value)


@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_the_score_is_the_same_with_sides_swapped(one: list[Any], other: list[Any]) -> None:
    made = [ToolCall(name="f", args={"x": value}) for value in one]
    expected = [ToolCall(name="f", args={"x": value}) for value in other]

    assert f1(made, expected) == pytest.approx(f1(expected, made))


@pytest.mark.parametrize("value", [1234567890123, 10**18, 2**63, -(10**13), 10**400])
def test_whole_numbers_are_equal_or_not(value: int) -> None:
    assert are_equal(value, value)
    assert not are_equal(value, value + 1)
    assert not are_equal({"ids": [value]}, {"ids": [value - 1]})


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (0.1 + 0.2, 0.3), (10**15, 1e15 + 0.125), (3, 2.9999999999999996)]
)
def test_a_float_has_a_tolerance(one: float, other: float) -> None:
    assert are_equal(one, other)
    assert not are_equal(one, other * 1.000001)


def test_a_call_with_the_neighbour_of_an_id_is_another_call() -> None:
    asked = ToolCall(name="order", args={"id": 1234567890123})
    made = AIMessage(tool_calls=[ToolCall(name="order", args={"id": 1234567890124})])
    sample = MultiTurnSample(user_input=[HumanMessage(content="Mine?"), made], reference_tool_calls=[asked])

    assert ToolCallF1().score_sync(sample).value == 0.0
    assert ToolCallAccuracy().score_sync(sample).value == 0.0

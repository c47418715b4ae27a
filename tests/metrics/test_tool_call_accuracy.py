"""Tool calls, paired: partial credit, order, and the best pairing."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.sample import AIMessage, MultiTurnSample, ToolCall
from spanscore.errors import ConfigurationError
from spanscore.metrics import ToolCallAccuracy
from spanscore.metrics.kit.averages import best_pairing

Calls = list[tuple[str, dict[str, Any]]]

VALUES = st.lists(st.integers(0, 6), min_size=1, max_size=4).flatmap(
    lambda first: st.lists(st.lists(st.integers(0, 6), min_size=len(first), max_size=len(first)), max_size=4).map(
        lambda rest: [first, *rest]
    )
)
ARGS = st.dictionaries(st.sampled_from("pqr"), st.one_of(st.integers(0, 2), st.sampled_from(["a", "1"])), max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from(["search", "book"]), ARGS), max_size=4)


@given(VALUES)
def test_no_other_pairing_has_a_higher_sum(values: list[list[int]]) -> None:
    found = best_pairing(values)

    rows, columns = len(values), len(values[0])
    assert len(found) == len({row for row, _ in found}) == len({column for _, column in found}) == min(rows, columns)
    assert sum(values[row][column] for row, column in found) == _highest(values)


def test_nothing_is_paired_with_nothing() -> None:
    assert best_pairing([]) == best_pairing([[]]) == []


@given(CALLS, st.booleans())
def test_the_calls_that_were_expected_score_one(calls: Calls, strict: bool) -> None:
    assert _score(calls, calls, strict_order=strict) == 1.0


@given(CALLS, CALLS)
def test_without_order_shuffling_changes_nothing_and_never_costs(made: Calls, expected: Calls) -> None:
    loose = _score(made, expected, strict_order=False)

    assert loose == pytest.approx(_score(made[::-1], expected, strict_order=False))
    assert loose >= _score(made, expected, strict_order=True) - 1e-9


@given(CALLS, CALLS, st.booleans())
def test_made_and_expected_can_be_exchanged(made: Calls, expected: Calls, strict: bool) -> None:
    assert _score(made, expected, strict_order=strict) == pytest.approx(_score(expected, made, strict_order=strict))


def test_a_missing_and_an_extra_call_are_partial_credit() -> None:
    calls: Calls = [("search", {"q": "ferry"}), ("book", {"id": 7}), ("pay", {})]

    assert _score(calls[:2], calls) == _score(calls, calls[:2]) == pytest.approx(2 / 3)


def test_in_order_a_call_too_many_does_not_excuse_a_swap() -> None:
    made: Calls = [("book", {}), ("search", {}), ("pay", {})]

    assert _score(made, [("search", {}), ("book", {})]) == pytest.approx(1 / 3)
    assert _score(made, [("search", {}), ("book", {})], strict_order=False) == pytest.approx(2 / 3)


def test_values_can_be_compared_by_a_function_or_by_a_metric() -> None:
    made: Calls = [("search", {"city": "PARIS", "days": 3})]
    expected: Calls = [("search", {"city": "Paris", "days": 3})]

    assert _score(made, expected) == 0.5
    assert _score(made, expected, arg_comparison=lambda one, other: str(one).lower() == str(other).lower()) == 1.0
    assert _score(made, expected, arg_comparison="chrf_score") < 1.0
    assert _score(expected, expected, arg_comparison="string_presence") == 1.0


@pytest.mark.parametrize("comparison", ["faithfulness", "no_such_metric", 3])
def test_what_compares_no_texts_is_refused(comparison: Any) -> None:
    with pytest.raises(ConfigurationError):
        ToolCallAccuracy(arg_comparison=comparison)


def _score(made: Calls, expected: Calls, **params: Any) -> float:
    sample = MultiTurnSample(
        user_input=[AIMessage(tool_calls=[ToolCall(name=name, args=args) for name, args in made])],
        reference_tool_calls=[ToolCall(name=name, args=args) for name, args in expected],
    )
    value = ToolCallAccuracy(**params).score_sync(sample).value
    assert value is not None
    return value


def _highest(values: list[list[int]]) -> int:
    if len(values) > len(values[0]):
        values = [list(column) for column in zip(*values, strict=True)]
    ways = permutations(range(len(values[0])), len(values))
    return max(sum(row[column] for row, column in zip(values, way, strict=True)) for way in ways)

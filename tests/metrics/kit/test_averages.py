"""The averages: their worked values, and their properties for every input."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.errors import ConfigurationError
from spanscore.metrics.kit.averages import average_precision, check_beta, f_beta, f_beta_of_counts

shares = st.floats(0, 1)
betas = st.floats(0.01, 100)
flags = st.lists(st.booleans(), min_size=1, max_size=30)


def test_average_precision_by_hand() -> None:
    assert average_precision([True, False, True]) == pytest.approx((1 + 2 / 3) / 2)


def test_nothing_relevant_is_zero_and_nothing_at_all_is_undefined() -> None:
    assert (average_precision([False, False]), average_precision([])) == (0.0, None)


@given(flags)
def test_average_precision_lies_between_zero_and_one(relevant: list[bool]) -> None:
    value = average_precision(relevant)

    assert value is not None
    assert 0 <= value <= 1


@given(flags)
def test_relevant_items_first_is_perfect_and_no_order_is_better(relevant: list[bool]) -> None:
    best, value = average_precision(sorted(relevant, reverse=True)), average_precision(relevant)

    assert best == (1.0 if any(relevant) else 0.0)
    assert value is not None
    assert value <= best


@given(flags)
def test_irrelevant_items_at_the_end_change_nothing(relevant: list[bool]) -> None:
    assert average_precision([*relevant, False]) == average_precision(relevant)


def test_f_beta_by_hand() -> None:
    assert f_beta(0.5, 1.0) == pytest.approx(2 / 3)
    assert f_beta(0.5, 1.0, beta=2.0) == pytest.approx(5 / 6)
    assert f_beta_of_counts(2, 2, 0) == pytest.approx(2 / 3)


def test_f_beta_of_nothing_is_zero() -> None:
    assert f_beta(0.0, 0.0) == f_beta_of_counts(0, 0, 0) == 0.0


@given(shares, shares, betas)
def test_f_beta_lies_between_precision_and_recall(precision: float, recall: float, beta: float) -> None:
    value = f_beta(precision, recall, beta=beta)

    assert min(precision, recall) - 1e-9 <= value <= max(precision, recall) + 1e-9


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_f1_of_counts_is_dice(right: int, wrong: int, missed: int) -> None:
    total = 2 * right + wrong + missed

    assert f_beta_of_counts(right, wrong, missed) == pytest.approx(2 * right / total if total else 0.0)


@pytest.mark.parametrize("beta", [0, -1.0, math.inf, math.nan, True, "1"])
def test_a_beta_is_a_number_above_zero(beta: object) -> None:
    with pytest.raises(ConfigurationError, match="beta is"):
        check_beta(beta)  # type: ignore[arg-type]


def test_a_whole_beta_is_a_beta() -> None:
    assert check_beta(2) == 2.0

"""majority_vote and ragas_score: rows and columns → one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.errors import SampleError
from spanscore.metrics import majority_vote, ragas_score

VOTES = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(VOTES)
def test_each_row_is_one_of_a_voter_that_cast_the_winning_vote(votes: list[list[int]]) -> None:
    voters = [[{"verdict": vote, "by": voter} for vote in cast] for voter, cast in enumerate(votes)]
    before = deepcopy(voters)

    rows = majority_vote(voters, attribute="verdict")

    assert voters == before
    for place, row in enumerate(rows):
        cast = [own[place]["verdict"] for own in voters]
        assert row in [own[place] for own in voters]
        assert cast.count(row["verdict"]) * 2 >= len(cast)


def test_rows_of_the_same_ids_in_another_order_belong_together() -> None:
    voters: list[list[dict[str, Any]]] = [
        [{"id": 1, "verdict": 1}, {"id": 2, "verdict": 0}],
        [{"id": 2, "verdict": 0}, {"id": 1, "verdict": 1}],
    ]

    assert majority_vote(voters, attribute="verdict") == voters[0]


def test_a_row_that_not_all_have_is_decided_by_those_that_have_it_and_said() -> None:
    voters = [[{"id": "a", "verdict": 1}], [{"id": "a", "verdict": 1}, {"id": "b", "verdict": 0}]]

    with pytest.warns(UserWarning, match="1 of 2 rows were not voted on by all voters"):
        rows = majority_vote(voters, attribute="verdict")

    assert rows == voters[1]


def test_a_tie_is_decided_among_the_most_frequent_values_only() -> None:
    voters = [[{"verdict": vote}] for vote in (0, 0, 5, 9, 9)]

    assert majority_vote(voters, attribute="verdict") == [{"verdict": 0}]


def test_values_without_an_order_go_to_the_first_voter_on_a_tie() -> None:
    voters: list[list[dict[str, Any]]] = [[{"verdict": "x"}], [{"verdict": None}]]

    assert majority_vote(voters, attribute="verdict") == voters[0]


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=1, max_size=4), min_size=2, max_size=5))
def test_the_ragas_score_lies_between_its_lowest_and_highest_mean(columns: list[list[float]]) -> None:
    means = [sum(column) / len(column) for column in columns]

    score = ragas_score({f"m{n}": column for n, column in enumerate(columns)})

    assert score is not None
    assert min(means) - 1e-9 <= score <= max(means) + 1e-9


def test_undefined_values_are_left_out_and_said() -> None:
    with pytest.warns(UserWarning, match="1 of 2 values of a are undefined"):
        score = ragas_score({"a": [0.5, None], "b": [0.5, 0.5]})

    assert score == 0.5


def test_fewer_than_two_metrics_have_no_ragas_score() -> None:
    with pytest.warns(UserWarning, match="undefined"):
        assert ragas_score({"a": [float("nan")], "b": [0.5]}) is None
    assert ragas_score({"a": [0.5], "b": [1.0]}, binary_columns=["b"]) is None


def test_a_value_outside_of_zero_to_one_is_refused() -> None:
    with pytest.raises(SampleError, match=r"a has the value -0\.4"):
        ragas_score({"a": [-0.4], "b": [0.9]})

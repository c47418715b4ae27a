"""Repeated or changed votes: the last vote by time counts, in any order of arrival."""

from __future__ import annotations

from itertools import permutations

import pytest

from spanscore.core.sample import Annotation
from spanscore.core.span import UnitKey
from spanscore.pipeline.annotations import LatestAnnotations


def holds(*votes: tuple[bool, int]) -> bool:
    """The votes in force among the exported ones: the last by time."""
    book, left = LatestAnnotations(), []
    for value, when_ns in votes:
        label = Annotation(name="user_feedback", value=value, when_ns=when_ns, unit=UnitKey(1, 1))
        left += [] if book.note(label) is None else [(when_ns, value)]
    return max(left)[1]


@pytest.mark.parametrize("votes", [*permutations([(True, 1), (True, 3), (False, 2)])])
def test_a_vote_that_was_taken_back_does_not_hold_because_it_came_late(votes: list[tuple[bool, int]]) -> None:
    assert holds(*votes) is True


@pytest.mark.parametrize("votes", [*permutations([(True, 3), (False, 2), (False, 5)])])
def test_a_change_is_none_that_was_said_before(votes: list[tuple[bool, int]]) -> None:
    assert holds(*votes) is False


def test_votes_without_a_time_are_in_the_order_in_which_they_come() -> None:
    times = iter([10, 30, 20, 40])
    book = LatestAnnotations(clock=lambda: next(times))
    said = [book.note(Annotation(name="user_feedback", value=value, key="a")) for value in (True, False, False, True)]

    assert [label and (label.value, label.revision) for label in said] == [(True, 0), (False, 1), None, (True, 2)]

"""Majority vote: merges the rows of several voters into one list, each with its most frequent verdict."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from spanscore.metrics.kit.step import majority

VoterRow: TypeAlias = Mapping[str, Any]

KEY = "id"
"""Name of the column that identifies a row, if rows have it."""


def majority_vote(rows_per_voter: Sequence[Sequence[VoterRow]], *, attribute: str) -> list[dict[str, Any]]:
    """Return one row per question: the row of the first voter that gave the most frequent value of ``attribute``.

    Rows are matched by ``id`` if every row has one, no voter has one twice, and the voters have the same ids or different
    numbers of them; else by position. If some voters lack a row or its attribute, the others decide, and a warning counts such
    rows. A tie gives the lower median (0 for 0 and 1) or, for values without an order, the first voter's value. The rows of a
    single voter are returned unchanged. Neither rows nor lists are changed.

    Args:
        rows_per_voter: one list of rows per voter, e.g. the ``statements`` of several verify answers.
        attribute: the voted column (``"verdict"``).

    Raises:
        IndexError: there is no voter.

    Source: ragas 0.4.3's ``Ensember``. Deviations: it keeps the first voter's rows when lengths differ or an attribute is
    missing, writes the winning value into the first voter's row (its reason may contradict the value), and gives ties to
    the first voter.
    """
    if not rows_per_voter:
        raise IndexError("majority_vote: there is no voter; give one list of rows for each")
    if len(rows_per_voter) == 1:
        return [dict(row) for row in rows_per_voter[0]]
    ballots = _together(rows_per_voter)
    votes = [[row for row in rows if attribute in row] for rows in ballots]
    if thin := sum(len(rows) < len(rows_per_voter) for rows in votes):
        warnings.warn(f"majority_vote: {thin} of {len(votes)} rows were not voted on by all voters", stacklevel=2)
    return [_winner(cast or rows, attribute) for cast, rows in zip(votes, ballots, strict=True)]


def _together(rows_per_voter: Sequence[Sequence[VoterRow]]) -> list[list[VoterRow]]:
    """Return the rows grouped by question, in the order in which the questions first occur."""
    questions: dict[Hashable, list[VoterRow]] = {}
    by_key = _have_keys(rows_per_voter)
    for rows in rows_per_voter:
        for position, row in enumerate(rows):
            questions.setdefault(row[KEY] if by_key else position, []).append(row)
    return list(questions.values())


def _have_keys(rows_per_voter: Sequence[Sequence[VoterRow]]) -> bool:
    if not all(isinstance(row.get(KEY), Hashable) and KEY in row for rows in rows_per_voter for row in rows):
        return False
    keys = [{row[KEY] for row in rows} for rows in rows_per_voter]
    if any(len(own) < len(rows) for own, rows in zip(keys, rows_per_voter, strict=True)):
        return False
    return len({len(own) for own in keys}) > 1 or all(own == keys[0] for own in keys)


def _winner(rows: Sequence[VoterRow], attribute: str) -> dict[str, Any]:
    """Return the first row with the winning value; the first row if no row has the attribute."""
    voted = [row[attribute] for row in rows if attribute in row]
    if not voted:
        return dict(rows[0])
    most = majority(voted, tie=_lower_median(voted))
    return dict(next(row for row in rows if row[attribute] == most))


def _lower_median(values: Sequence[Any]) -> Any:
    try:
        return sorted(values)[(len(values) - 1) // 2]
    except TypeError:  # no order among them
        return max(values, key=values.count)

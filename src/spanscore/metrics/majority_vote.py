"""Several voters' rows → one list of rows: per row the verdict most voters gave."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from spanscore.metrics.kit.step import majority

VoterRow: TypeAlias = Mapping[str, Any]

KEY = "id"
"""The column that names a row, where there is one."""


def majority_vote(rows_per_voter: Sequence[Sequence[VoterRow]], *, attribute: str) -> list[dict[str, Any]]:
    """Return one row per question: the row of the first voter that gave the most frequent value of ``attribute``.

    Rows belong together by their ``id`` where every row has one, no voter has one twice, and the voters speak about the same
    ids or differ in number; else by position. Rows that not every voter has, or that lack the attribute, are decided by those
    that are there; a warning says how many. A tie is the lower median: of 0 and 1 the 0; values that have no order go to the
    first voter. The rows of a single voter come back as they are. Neither rows nor lists are changed.

    Args:
        rows_per_voter: one list of rows per voter, e.g. the ``statements`` of several verify answers.
        attribute: the voted column (``"verdict"``).

    Raises:
        IndexError: there is no voter.

    Source: ragas 0.4.3's ``Ensember``. Deviations: it keeps the first voter's rows when lengths differ or an attribute is
    missing, writes the winning value into the first voter's row, whose reason may contradict it, and gives ties to
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
    """Return the rows about one question together, in the order in which the questions first come."""
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
    """Return the first row with the winning value; the first of all where no voter voted."""
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

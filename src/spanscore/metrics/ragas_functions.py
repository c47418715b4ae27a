"""majority_vote and ragas_score: functions of ragas that combine the rows of voters, or the values of metrics."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isnan
from statistics import median_low, multimode
from typing import Any, TypeAlias

from spanscore.errors import SampleError

VoterRow: TypeAlias = Mapping[str, Any]

KEY = "id"
"""Name of the column that identifies a row, if rows have it."""


def majority_vote(rows_per_voter: Sequence[Sequence[VoterRow]], *, attribute: str) -> list[dict[str, Any]]:
    """Return one row per question: the row of the first voter that gave the most frequent value of ``attribute``.

    Rows are matched by position unless ids are usable. Ids are usable if every row has an ``id``, no voter repeats an id, and
    the voters have either the same ids or different numbers of ids. For each row, voters without this row or the attribute
    are ignored. A warning gives the number of such rows. If several values are most frequent, their lower median wins (0 for
    0 and 1); for values without an order, the value that was voted first. With one voter, copies of its rows are returned.
    The arguments are not modified.

    Args:
        rows_per_voter: one list of rows per voter, e.g. the ``statements`` of the judge's answers to one verification prompt.
        attribute: the voted column (``"verdict"``).

    Raises:
        IndexError: there is no voter.

    Source: ragas 0.4.3's ``Ensember``. Deviations: when lengths differ or an attribute is missing, ragas keeps the first
    voter's rows. It writes the winning value into the first voter's row, whose reason may contradict the value. It gives ties
    to the first voter.
    """
    if not rows_per_voter:
        raise IndexError("majority_vote: there is no voter; give one list of rows for each")
    if len(rows_per_voter) == 1:
        return [dict(row) for row in rows_per_voter[0]]
    groups = _group(rows_per_voter)
    votes = [[row for row in rows if attribute in row] for rows in groups]
    if incomplete := sum(len(rows) < len(rows_per_voter) for rows in votes):
        warnings.warn(f"majority_vote: {incomplete} of {len(votes)} rows were not voted on by all voters", stacklevel=2)
    return [_winner(voted or rows, attribute) for voted, rows in zip(votes, groups, strict=True)]


def _group(rows_per_voter: Sequence[Sequence[VoterRow]]) -> list[list[VoterRow]]:
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
    values = [row[attribute] for row in rows if attribute in row]
    if not values:
        return dict(rows[0])
    most_frequent = multimode(values)
    try:
        winner = median_low(most_frequent)
    except TypeError:  # the values have no order
        winner = most_frequent[0]
    return dict(next(row for row in rows if row[attribute] == winner))


_FEWEST = 2
_SLACK = 1e-9


def ragas_score(values: Mapping[str, Sequence[float | None]], *, binary_columns: Iterable[str] = ()) -> float | None:
    """Return the harmonic mean of the metrics' means, 0…1; None for fewer than two metrics that have a value.

    One metric with mean 0 makes the result 0. None and nan are left out of their metric's mean, and a warning counts them. One
    number hides which metric fell: do not alert on it.

    Args:
        values: metric → one value per sample, 0…1, higher better.
        binary_columns: metrics to omit (pass/fail critics).

    Raises:
        SampleError: a value is outside of 0…1; a harmonic mean with it means nothing.

    Source: ragas 0.0.15's ``Result``. Deviations: undefined values are left out (there one makes the whole undefined), and
    values outside of 0…1 are refused (there they give nonsense).
    """
    left_out = set(binary_columns)
    means = [_mean(metric, column) for metric, column in values.items() if metric not in left_out]
    numbers = [mean for mean in means if mean is not None]
    if len(numbers) < _FEWEST:
        return None
    return len(numbers) / sum(1 / mean for mean in numbers) if all(numbers) else 0.0


def _mean(metric: str, column: Sequence[float | None]) -> float | None:
    numbers = [float(value) for value in column if value is not None and not isnan(value)]
    for value in numbers:
        if not -_SLACK <= value <= 1 + _SLACK:
            raise SampleError(f"ragas_score: {metric} has the value {value:g}; values lie between 0 and 1")
    if len(numbers) < len(column):
        lost = len(column) - len(numbers)
        warnings.warn(f"ragas_score: {lost} of {len(column)} values of {metric} are undefined, left out", stacklevel=3)
    return sum(numbers) / len(numbers) if numbers else None

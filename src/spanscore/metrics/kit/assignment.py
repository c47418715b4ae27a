"""Values of all pairs → the pairing with the highest sum, each row and each column used once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["best_pairing"]

_FAR = float("inf")


def best_pairing(values: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return (row, column) pairs with the highest sum of values, in the order of the rows; as many as the shorter side has.

    Time grows with the third power of the longer side.

    Source: Kuhn, "The Hungarian method for the assignment problem" (1955), as shortest augmenting paths with potentials.
    """
    if not values or not values[0]:
        return []
    if len(values) > len(values[0]):
        turned = best_pairing(list(zip(*values, strict=True)))
        return sorted((row, column) for column, row in turned)
    columns = len(values[0])
    # Rows and columns count from 1; column 0 is where the row that is being placed stands.
    row_of = [0] * (columns + 1)
    row_price, column_price = [0.0] * (len(values) + 1), [0.0] * (columns + 1)
    for row in range(1, len(values) + 1):
        row_of[0] = row
        _augment(values, row_of, row_price, column_price)
    return sorted((row - 1, column - 1) for column, row in enumerate(row_of) if row and column)


def _augment(
    values: Sequence[Sequence[float]], row_of: list[int], row_price: list[float], column_price: list[float]
) -> None:
    """Place the row in column 0, moving others where that is worth it."""
    slack, came_from = [_FAR] * len(row_of), [0] * len(row_of)
    seen = [False] * len(row_of)
    column = 0
    while row_of[column]:
        seen[column] = True
        row, nearest, step = row_of[column], 0, _FAR
        for other in range(1, len(row_of)):
            if seen[other]:
                continue
            cost = -values[row - 1][other - 1] - row_price[row] - column_price[other]
            if cost < slack[other]:
                slack[other], came_from[other] = cost, column
            if slack[other] < step:
                nearest, step = other, slack[other]
        for other in range(len(row_of)):
            if seen[other]:
                row_price[row_of[other]] += step
                column_price[other] -= step
            else:
                slack[other] -= step
        column = nearest
    while column:
        row_of[column], column = row_of[came_from[column]], came_from[column]

"""Arithmetic that metrics share: the best pairing, F-beta, average precision, and the cosine of embedded texts."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Any, Literal

from spanscore.core.score import Scale
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.judges.embeddings import LexicalEmbedder, embedder
from spanscore.judges.lexical.judge import is_offline
from spanscore.protocols import Embedder, Judge

_FAR = float("inf")


def best_pairing(values: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Return the (row, column) pairs with the highest sum of values, ordered by row.

    Each row and each column is in one pair at most; there are as many pairs as the shorter side is long. The time grows with
    the third power of the longer side.

    Source: Kuhn, "The Hungarian method for the assignment problem" (1955), as shortest augmenting paths with potentials.
    """
    if not values or not values[0]:
        return []
    if len(values) > len(values[0]):
        transposed = best_pairing(list(zip(*values, strict=True)))
        return sorted((row, column) for column, row in transposed)
    columns = len(values[0])
    # Rows and columns count from 1. ``row_of[column]`` is the row that a column is paired with; ``row_of[0]`` is the new row.
    row_of = [0] * (columns + 1)
    row_price, column_price = [0.0] * (len(values) + 1), [0.0] * (columns + 1)
    for row in range(1, len(values) + 1):
        row_of[0] = row
        _augment(values, row_of, row_price, column_price)
    return sorted((row - 1, column - 1) for column, row in enumerate(row_of) if row and column)


def _augment(
    values: Sequence[Sequence[float]], row_of: list[int], row_price: list[float], column_price: list[float]
) -> None:
    """Pair the row of column 0 with a column; paired rows move to other columns if that raises the sum.

    Dijkstra's search finds the cheapest path from column 0 to a free column. ``slack`` has the cost of the cheapest edge to
    each column that is not reached yet, and ``came_from`` the column before it.
    """
    slack, came_from = [_FAR] * len(row_of), [0] * len(row_of)
    reached = [False] * len(row_of)
    column = 0
    while row_of[column]:
        reached[column] = True
        row, nearest, distance = row_of[column], 0, _FAR
        for other in range(1, len(row_of)):
            if reached[other]:
                continue
            cost = -values[row - 1][other - 1] - row_price[row] - column_price[other]
            if cost < slack[other]:
                slack[other], came_from[other] = cost, column
            if slack[other] < distance:
                nearest, distance = other, slack[other]
        for other in range(len(row_of)):
            if reached[other]:
                row_price[row_of[other]] += distance
                column_price[other] -= distance
            else:
                slack[other] -= distance
        column = nearest
    while column:  # move each row of the path to the next column
        row_of[column], column = row_of[came_from[column]], came_from[column]


Mode = Literal["f1", "precision", "recall"]


def ratio(part: float, whole: float) -> float:
    """Return part / whole; 0 if the whole is 0."""
    return part / whole if whole else 0.0


def f_beta(precision: float, recall: float, *, beta: float = 1.0) -> float:
    """Return the weighted harmonic mean of precision and recall, 0…1; 0 when both are 0.

    Args:
        precision: 0…1.
        recall: 0…1.
        beta: weight of recall relative to precision, above 0. 1 = equal weights.

    Source: van Rijsbergen, "Information Retrieval" (1979), chapter 7.
    """
    return ratio((1 + beta**2) * precision * recall, beta**2 * precision + recall)


def f_beta_of_counts(right: int, wrong: int, missed: int, *, beta: float = 1.0) -> float:
    """Return ``f_beta``, 0…1, of true positives, false positives and false negatives; precision or recall of 0 / 0 is 0."""
    return f_beta(ratio(right, right + wrong), ratio(right, right + missed), beta=beta)


def check_beta(beta: float) -> float:
    """Return the user's parameter ``beta``, checked, as a float."""
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta < float("inf"):
        raise ConfigurationError(f"beta is {beta!r}; it is a number above 0: more than 1 favours recall")
    return float(beta)


def average_precision(relevant: Sequence[bool]) -> float | None:
    """Return the mean, over the relevant ranks, of the share of relevant items up to that rank; 0…1.

    Args:
        relevant: one flag per item, best rank first.

    Returns:
        0 when no item is relevant, None when there is no item.

    Source: Manning, Raghavan and Schütze, "Introduction to Information Retrieval" (2008), section 8.4, over the retrieved
    relevant items only, because relevant items that were not retrieved are unknown.
    """
    if not relevant:
        return None
    ranks = [rank for rank, flag in enumerate(relevant, 1) if flag]
    return ratio(sum(hits / rank for hits, rank in enumerate(ranks, 1)), len(ranks))


COSINE = Scale(range=(-1.0, 1.0), negatives_are_zero=True)
"""Scale of a cosine as a value. The quality of a negative cosine is 0."""
NO_WORDS = "the text has no words to compare"


def cosine(embeddings: Embedder, one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the cosine of two vectors, −1…1; None if a vector of the lexical embeddings is all zeros (a text without words).

    The code is plain Python, because NumPy takes 100 ms to load.

    Args:
        embeddings: embedder that made the vectors.

    Raises:
        JudgeUnparseable: a model's vector is not finite, all zeros or empty, or the vectors differ in size.
    """
    length = sqrt(sum(x * x for x in one)) * sqrt(sum(y * y for y in other)) if len(one) == len(other) else 0.0
    if length and isfinite(length):  # a nan would count as below any threshold
        return sum(x * y for x, y in zip(one, other, strict=True)) / length
    if isinstance(embeddings, LexicalEmbedder):
        return None
    sizes = f"{len(one)} and {len(other)} numbers"
    raise JudgeUnparseable(f"embed: two vectors that cannot be compared: not finite, all zeros, empty, or {sizes}")


def reaches(similarity: float, threshold: float) -> bool:
    """Whether a similarity is at least the threshold, or 1e-9 below it, so that rounding does not decide."""
    return similarity >= threshold - 1e-9


async def text_cosine(embeddings: Embedder, one: str, other: str) -> float | None:
    """Embed two texts in one request and return their cosine; None if the lexical embeddings find no word in a text.

    An empty text is sent as one space, because providers refuse empty texts.

    Raises:
        JudgeUnparseable: the vectors of a model cannot be compared.
    """
    first, second = await embeddings.embed([one or " ", other or " "])
    return cosine(embeddings, first, second)


def make_embedder(name: str, embeddings: Any, judge: Judge | None = None) -> Embedder:
    """Return the embedder of a metric; None with the offline judge = the offline embeddings.

    Raises:
        ConfigurationError: ``embeddings`` is unknown, or None without the offline judge.
    """
    if embeddings is None and is_offline(judge):
        embeddings = "lexical"
    if embeddings is None:
        raise ConfigurationError(f"{name} needs embeddings: LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'")
    return embedder(embeddings)

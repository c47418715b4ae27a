"""Shared arithmetic of metrics: best pairing, F-beta, average precision and cosine similarity, with checks of arguments."""

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
    """Return the (row, column) pairs with the highest sum of values, ordered by row; as many as the shorter side's
    length.

    Time grows with the third power of the longer side.

    Source: Kuhn, "The Hungarian method for the assignment problem" (1955), as shortest augmenting paths with potentials.
    """
    if not values or not values[0]:
        return []
    if len(values) > len(values[0]):
        turned = best_pairing(list(zip(*values, strict=True)))
        return sorted((row, column) for column, row in turned)
    columns = len(values[0])
    # Rows and columns count from 1; column 0 holds the row that is being placed.
    row_of = [0] * (columns + 1)
    row_price, column_price = [0.0] * (len(values) + 1), [0.0] * (columns + 1)
    for row in range(1, len(values) + 1):
        row_of[0] = row
        _augment(values, row_of, row_price, column_price)
    return sorted((row - 1, column - 1) for column, row in enumerate(row_of) if row and column)


def _augment(
    values: Sequence[Sequence[float]], row_of: list[int], row_price: list[float], column_price: list[float]
) -> None:
    """Assign the row of column 0 to a column. Other rows are reassigned if that raises the sum."""
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
    """Return ``f_beta``, 0…1, from true positives, false positives and false negatives; a ratio with divisor 0 is 0."""
    return f_beta(ratio(right, right + wrong), ratio(right, right + missed), beta=beta)


def beta_wanted(beta: float) -> float:
    """Return the user's parameter ``beta``, checked, as a float.

    Raises:
        ConfigurationError: beta is not a finite number above 0.
    """
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
NO_LENGTH = "the text has no words to compare"


def compared(embeddings: Embedder, one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the cosine of two vectors of these embeddings, −1…1; None if a lexical vector is all zeros (a text without words).

    The code is plain Python, because NumPy takes 100 ms to load.

    Raises:
        JudgeUnparseable: a model's vector is not finite, all zeros or empty, or the vectors differ in size.
    """
    length = sqrt(sum(x * x for x in one)) * sqrt(sum(y * y for y in other)) if len(one) == len(other) else 0.0
    if length and isfinite(length):  # a nan would pass as below any threshold
        return sum(x * y for x, y in zip(one, other, strict=True)) / length
    if isinstance(embeddings, LexicalEmbedder):
        return None
    sizes = f"{len(one)} and {len(other)} numbers"
    raise JudgeUnparseable(f"embed: two vectors that cannot be compared: not finite, all zeros, empty, or {sizes}")


async def similarity(embeddings: Embedder, one: str, other: str) -> float | None:
    """Return the cosine of two texts, with one request; None if a lexical vector is all zeros (a text without words).

    An empty text is sent as one space, because providers refuse empty texts.

    Raises:
        JudgeUnparseable: the vectors of a model cannot be compared.
    """
    first, second = await embeddings.embed([one or " ", other or " "])
    return compared(embeddings, first, second)


def wanted_embedder(name: str, embeddings: Any, judge: Judge | None = None) -> Embedder:
    """Return the embeddings of a metric; the offline embeddings if None is given with the offline judge.

    Raises:
        ConfigurationError: None is given with another judge, or the embeddings are unknown.
    """
    if embeddings is None and is_offline(judge):
        embeddings = "lexical"
    if embeddings is None:
        raise ConfigurationError(f"{name} needs embeddings: LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'")
    return embedder(embeddings)

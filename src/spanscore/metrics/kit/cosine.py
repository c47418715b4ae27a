"""Two embedded texts → the cosine of their vectors, and which embeddings a metric uses."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import Any

from spanscore.core.score import Scale
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.judges.embeddings import LexicalEmbedder, embedder
from spanscore.judges.lexical.judge import is_offline
from spanscore.protocols import Embedder, Judge

__all__ = ["COSINE", "NO_LENGTH", "compared", "cosine", "similarity", "wanted_embedder"]

COSINE = Scale(range=(-1.0, 1.0), negatives_are_zero=True)
NO_LENGTH = "the text has no words to compare"


def cosine(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the cosine of two vectors, None when one has no length, or one that is no number (a nan compares as "below" any
    threshold). In plain Python: NumPy costs 100 ms to load.
    """
    length = sqrt(sum(x * x for x in one)) * sqrt(sum(y * y for y in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / length if length and isfinite(length) else None


def compared(embeddings: Embedder, one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the cosine of two vectors of these embeddings; None for a text without a word that the lexical ones know.

    Raises:
        JudgeUnparseable: a vector of a model is not finite, all zeros or empty, or the two differ in size.
    """
    near = cosine(one, other) if len(one) == len(other) else None
    if near is None and not isinstance(embeddings, LexicalEmbedder):
        sizes = f"{len(one)} and {len(other)} numbers"
        raise JudgeUnparseable(f"embed: two vectors that cannot be compared: not finite, all zeros, empty, or {sizes}")
    return near


async def similarity(embeddings: Embedder, one: str, other: str) -> float | None:
    """Return the cosine of two texts, one request; None for a text without a word. An empty text is sent as one space:
    providers refuse empty ones.

    Raises:
        JudgeUnparseable: the vectors of a model cannot be compared.
    """
    first, second = await embeddings.embed([one or " ", other or " "])
    return compared(embeddings, first, second)


def wanted_embedder(name: str, embeddings: Any, judge: Judge | None = None) -> Embedder:
    """Return the embeddings of a metric; the offline ones where none are given beside the offline judge.

    Raises:
        ConfigurationError: there are none.
    """
    if embeddings is None and is_offline(judge):
        embeddings = "lexical"
    if embeddings is None:
        raise ConfigurationError(f"{name} needs embeddings: LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'")
    return embedder(embeddings)

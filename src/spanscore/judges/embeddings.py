"""Any LangChain embeddings → Embedder; and one offline, that counts words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Unpack

from spanscore.errors import ConfigurationError
from spanscore.judges.langchain.embeddings import EmbedderLimits, LangChainEmbedder
from spanscore.judges.langchain.named import named_embeddings
from spanscore.judges.lexical.words import words
from spanscore.protocols import Embedder

__all__ = ["LangChainEmbedder", "LexicalEmbedder", "embedder", "embedder_name"]


def embedder(
    embeddings: Any, *, prices: Mapping[str, Sequence[float]] | None = None, **limits: Unpack[EmbedderLimits]
) -> Embedder:
    """Return an Embedder.

    Args:
        embeddings: LangChain embeddings; the name of some as ``init_embeddings`` reads it
            (``"openai:text-embedding-3-small"``); ``"lexical"`` for the offline ones; or an Embedder, returned as it is.
        prices: as those of ``judge()``; of LangChain's.
        limits: likewise: ``max_attempts``, ``max_concurrency``, ``timeout`` and so on.

    Raises:
        ConfigurationError: it is none of these, or its library is missing.
    """
    if embeddings == "lexical":
        return LexicalEmbedder()
    if isinstance(embeddings, str):
        embeddings = named_embeddings(embeddings)
    if callable(getattr(embeddings, "embed", None)):
        made: Embedder = embeddings
        return made
    if callable(getattr(embeddings, "aembed_documents", None)):
        return LangChainEmbedder(embeddings, prices=prices, **limits)
    raise ConfigurationError(
        f"embeddings is a {type(embeddings).__name__}. Give LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'"
    )


def embedder_name(made: Embedder) -> str:
    """Return what tells embeddings apart in a metric's version: their model, else their class."""
    return str(getattr(made, "model", None) or type(made).__name__)


class LexicalEmbedder:
    """Counts of word stems, hashed into ``size`` places: texts are alike that share words. Deterministic, offline, English.

    Not a model of meaning: "cheap" and "inexpensive" are strangers to it. A text of function words alone is the zero vector.
    """

    model = "lexical-1"

    def __init__(self, size: int = 512) -> None:
        self._size = size

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector of counts per text."""
        return [self._counts(text) for text in texts]

    def _counts(self, text: str) -> list[float]:
        vector = [0.0] * self._size
        found = words(text)
        for stem in (*found.content, *sorted(found.numbers)):
            vector[int.from_bytes(blake2b(stem[:5].encode(), digest_size=4).digest()) % self._size] += 1.0
        return vector

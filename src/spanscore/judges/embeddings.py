"""Any LangChain embeddings → Embedder; and one offline, that counts words."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from spanscore.errors import ConfigurationError
from spanscore.judges.langchain.blocking import BlockingCalls
from spanscore.judges.langchain.named import named_embeddings
from spanscore.judges.langchain.provider_errors import judge_error
from spanscore.judges.lexical.words import words
from spanscore.judges.suppress import suppressed
from spanscore.protocols import Embedder

__all__ = ["LangChainEmbedder", "LexicalEmbedder", "embedder", "embedder_name"]


def embedder(embeddings: Any) -> Embedder:
    """Return an Embedder.

    Args:
        embeddings: LangChain embeddings; the name of some as ``init_embeddings`` reads it
            (``"openai:text-embedding-3-small"``); ``"lexical"`` for the offline ones; or an Embedder, returned as it is.

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
        return LangChainEmbedder(embeddings)
    raise ConfigurationError(
        f"embeddings is a {type(embeddings).__name__}. Give LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'"
    )


def embedder_name(made: Embedder) -> str:
    """Return what tells embeddings apart in a metric's version: their model, else their class."""
    return str(getattr(made, "model", None) or type(made).__name__)


class LangChainEmbedder:
    """Any LangChain ``Embeddings``, unseen by any instrumentation. Retries and time limits are the client's own."""

    def __init__(self, embeddings: Any) -> None:
        self._embeddings = embeddings
        self._calls = BlockingCalls()

    @property
    def model(self) -> str:
        """The model's configured name; the class where it has none."""
        name = getattr(self._embeddings, "model", None) or getattr(self._embeddings, "model_name", None)
        return str(name or type(self._embeddings).__name__)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in one request.

        Raises:
            JudgeError: as a judge's; its text quotes nothing.
        """
        try:
            with suppressed():
                asked, client = list(texts), self._embeddings
                vectors = await self._calls.run(
                    lambda: client.embed_documents(asked), lambda: client.aembed_documents(asked)
                )
        except Exception as error:
            raise judge_error(error, "embed") from error
        return [[float(number) for number in vector] for vector in vectors]


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

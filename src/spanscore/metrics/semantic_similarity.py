"""SemanticSimilarity: do the answer and the reference have the same meaning?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import BINARY
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.judges.embeddings import embedder_name
from spanscore.judges.langchain.client import BlockingCalls
from spanscore.metrics.kit.averages import COSINE, NO_WORDS, make_embedder, reaches, text_cosine
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric
from spanscore.metrics.kit.sentence_transformers_pairs import load_cross_encoder

CrossEncoder: TypeAlias = Callable[[Sequence[tuple[str, str]]], Sequence[float]]


class SemanticSimilarity(NamedMetric):
    """Does the answer mean what the reference means?

    Formula: the cosine of the two embedded texts; with a ``threshold``, 1 if the cosine reaches it, else 0. Range [-1, 1],
    higher is better, or {0, 1} with a threshold; the quality is max(0, value).

    Fields: ``response``, ``reference``. Judge calls: none. A score costs one request for embeddings, or one pair for a
    cross-encoder. If a model returns a vector that is empty, all zeros or not finite, the outcome is ``judge_error``, with and
    without a threshold. If the lexical embeddings find no word in a text, the metric has no value. An empty text is embedded
    as one space.

    Blind spot: embeddings represent the topic more than the claim. "opens at nine" and "never opens at nine" are similar, and
    so are two sentences that differ only in a number. Compare only values of one embedding model; the model is part of the
    evaluator version. Choose ``pass_at`` by looking at real scores.

    Source: Risch et al., "Semantic Answer Similarity for Evaluating Question Answering Models" (2021), as in ragas 0.4.3's
    ``SemanticSimilarity``. Deviations: a threshold of 0 counts (ragas ignores it). A similarity up to 1e-9 below the threshold
    still reaches it. A zero vector is an error (ragas: nan, or 0 with a threshold).

    Args:
        embeddings: LangChain embeddings, an Embedder, or ``"lexical"``. Not needed with a cross-encoder.
        name: name of the metric in its scores.
        cross_encoder: used instead of embeddings; it reads both texts together. Either the name of a sentence-transformers
            model (``"cross-encoder/stsb-…"``, extra ``hhem``), or a function from pairs (reference, response) to similarities
            0…1, called on a thread.
        threshold: lowest similarity that scores 1; from −1 to 1. None = the value is the similarity itself.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: embeddings and cross-encoder are both missing, or the threshold is outside −1…1.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}

    def __init__(
        self,
        embeddings: Any = None,
        *,
        name: str = "semantic_similarity",
        cross_encoder: str | CrossEncoder | None = None,
        threshold: float | None = None,
        pass_at: float | None = None,
    ) -> None:
        if threshold is not None and not -1.0 <= threshold <= 1.0:
            raise ConfigurationError(f"{name}: threshold is {threshold}; it is a cosine, between -1 and 1")
        self.scale = COSINE if threshold is None else BINARY
        super().__init__(name=name, pass_at=pass_at)
        self.threshold = threshold
        if cross_encoder is None:
            self._embedder = make_embedder(name, embeddings)
            self.embeddings = embedder_name(self._embedder)
        self.cross_encoder = cross_encoder
        self._encoder = load_cross_encoder(cross_encoder) if isinstance(cross_encoder, str) else cross_encoder
        self._calls = BlockingCalls(1)

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Embed both texts, or read them as a pair."""
        reference, response = sample.reference or "", sample.response or ""
        value = await self._similarity_of(reference, response)
        if value is None:
            return Finding(value=None, reason=NO_WORDS)
        if self.threshold is None:
            return Finding(value=value)
        explanation = f"The similarity is {value:.3f}; the threshold is {self.threshold:g}."
        return Finding(value=float(reaches(value, self.threshold)), explanation=explanation)

    async def _similarity_of(self, reference: str, response: str) -> float | None:
        encoder = self._encoder
        if encoder is None:
            return await text_cosine(self._embedder, reference, response)
        pairs = [(reference, response)]
        scores = await self._calls.on_a_thread(lambda: list(encoder(pairs)))
        if len(scores) != 1:
            raise JudgeUnparseable(f"the cross-encoder gave {len(scores)} similarities for one pair")
        return float(scores[0])

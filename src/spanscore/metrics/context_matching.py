"""Context precision and recall without a judge: by identifiers, or by string similarity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.metrics.context_precision import precision_finding
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.distances_rapidfuzz import DistanceMeasure, similarity
from spanscore.metrics.kit.judged import NamedMetric


class IDBasedContextPrecision(NamedMetric):
    """Which share of the retrieved documents is among those that should have been found?

    Formula: different ids that are in both lists / different retrieved ids. Ids are compared as text: 7 is ``"7"``, and not
    ``"07"``. Range [0, 1], higher is better.

    Fields: ``retrieved_context_ids``, ``reference_context_ids``. Judge calls: none. Undefined when nothing was retrieved; 0
    when nothing should have been.

    Blind spot: the order, repeated documents, and documents as good as those of the reference.

    Source: ragas 0.4.3's ``IDBasedContextPrecision``. Deviations: an undefined score has a reason.

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_context_ids", "reference_context_ids")}
    name = "id_based_context_precision"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the two sets of ids."""
        retrieved, reference = _ids(sample)
        if not retrieved:
            return Finding(value=None, reason="nothing was retrieved")
        right = len(retrieved & reference)
        explanation = f"{right} of {len(retrieved)} retrieved documents are among the expected."
        return Finding(value=right / len(retrieved), explanation=explanation)


class IDBasedContextRecall(NamedMetric):
    """Which share of the documents that should have been found was retrieved?

    Formula: different ids that are in both lists / different reference ids. Ids are compared as text: 7 is ``"7"``, and not
    ``"07"``. Range [0, 1], higher is better.

    Fields: ``retrieved_context_ids``, ``reference_context_ids``. Judge calls: none. Undefined when no document should have been
    found; 0 when nothing was.

    Blind spot: the order, and everything that was retrieved besides.

    Source: ragas 0.4.3's ``IDBasedContextRecall``. Deviations: an undefined score has a reason.

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_context_ids", "reference_context_ids")}
    name = "id_based_context_recall"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the two sets of ids."""
        retrieved, reference = _ids(sample)
        if not reference:
            return Finding(value=None, reason="the reference names no document")
        hits = len(retrieved & reference)
        explanation = f"{hits} of {len(reference)} expected documents were retrieved."
        return Finding(value=hits / len(reference), explanation=explanation)


def _ids(sample: SingleTurnSample) -> tuple[set[str], set[str]]:
    retrieved, reference = sample.retrieved_context_ids or (), sample.reference_context_ids or ()
    return set(map(str, retrieved)), set(map(str, reference))


_SLACK = 1e-9
"""Tolerance of the threshold: a similarity is a quotient, and rounding may put an equal one below the threshold."""


class _ContextStrings(NamedMetric):
    """Base class of the two metrics by string similarity: fields, threshold and distance."""

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_contexts", "reference_contexts")}
    cpu_bound = True

    def __init__(
        self,
        *,
        name: str | None = None,
        threshold: float = 0.5,
        distance_measure: DistanceMeasure = "levenshtein",
        pass_at: float | None = None,
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        if not 0.0 <= threshold <= 1.0:
            raise ConfigurationError(f"{self.name}: threshold is {threshold}; it is a similarity, between 0 and 1")
        self.threshold = threshold
        self.distance_measure = distance_measure
        self._similarity = similarity(distance_measure)

    def _found(self, text: str, others: Iterable[str]) -> bool:
        """Return whether the similarity of ``text`` to one of ``others`` reaches the threshold."""
        return any(self._similarity(other, text) >= self.threshold - _SLACK for other in others)


class NonLLMContextPrecisionWithReference(_ContextStrings):
    """Are the retrieved contexts that resemble a reference context ranked before the other contexts?

    Formula: a retrieved context is right when its similarity to some reference context is at least ``threshold``; of these,
    average precision: the mean, over the ranks i of right contexts, of (right contexts up to i) / i; 0 when none is right.
    Range [0, 1], higher is better.

    Fields: ``retrieved_contexts`` (best rank first), ``reference_contexts``. Judge calls: none. Undefined when nothing was
    retrieved; 0 when no context should have been.

    Blind spot: the letters are compared, not the meaning: a context that was cut elsewhere or paraphrased is wrong.
    Hamming and Jaro suit short texts only.

    Source: ragas 0.4.3's ``NonLLMContextPrecisionWithReference``. Deviations: undefined instead of 0 when nothing was
    retrieved, 0 instead of an exception when there is no reference context; no small term in the denominator, so a
    perfect order is 1.

    Args:
        name: name of the metric in its scores.
        threshold: least similarity that counts, 0…1.
        distance_measure: ``"levenshtein"``, ``"hamming"``, ``"jaro"`` or ``"jaro_winkler"``.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: ``threshold`` is outside 0…1, or ``distance_measure`` or another argument is invalid.
        MissingExtraError: rapidfuzz is not installed (extra ``text``).
    """

    name = "non_llm_context_precision"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare each retrieved context with the reference contexts."""
        reference = sample.reference_contexts or ()
        return precision_finding([self._found(context, reference) for context in sample.retrieved_contexts or ()])


class NonLLMContextRecall(_ContextStrings):
    """Which share of the reference contexts was retrieved, literally or with a similar text?

    Formula: reference contexts with a similarity of at least ``threshold`` to a retrieved context / all reference contexts.
    Range [0, 1], higher is better.

    Fields: ``retrieved_contexts``, ``reference_contexts``. Judge calls: none. Undefined when there is no reference context; 0
    when nothing was retrieved.

    Blind spot: the letters are compared, not the meaning: a context that was cut elsewhere or paraphrased counts as not
    found. Other retrieved contexts do not lower the value.

    Source: ragas 0.4.3's ``NonLLMContextRecall``. Deviations: a similarity equal to the threshold counts, as it does for the
    precision (ragas: only above it); 0 instead of an exception when nothing was retrieved; an undefined score has a reason.

    Args:
        name: name of the metric in its scores.
        threshold: least similarity that counts, 0…1.
        distance_measure: ``"levenshtein"``, ``"hamming"``, ``"jaro"`` or ``"jaro_winkler"``.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: ``threshold`` is outside 0…1, or ``distance_measure`` or another argument is invalid.
        MissingExtraError: rapidfuzz is not installed (extra ``text``).
    """

    name = "non_llm_context_recall"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Look for each reference context among the retrieved contexts."""
        reference = sample.reference_contexts or ()
        if not reference:
            return Finding(value=None, reason="there is no reference context to be found")
        hits = sum(self._found(context, sample.retrieved_contexts or ()) for context in reference)
        explanation = f"{hits} of {len(reference)} reference contexts were retrieved."
        return Finding(value=hits / len(reference), explanation=explanation)

"""ExactMatch, StringPresence, StringSimilarity: does the answer equal, contain or resemble the reference, as strings?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import BINARY
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.distances_rapidfuzz import DistanceMeasure, similarity
from spanscore.metrics.kit.judged import NamedMetric


class ExactMatch(NamedMetric):
    """Is the response equal to the reference?

    Formula: 1 when both strings are equal, else 0. Range {0, 1}, higher is better. Two empty strings are equal.

    Fields: ``response``, ``reference``. Judge calls: none.

    Blind spot: case, white space, punctuation and Unicode form all count; "42" and "42." differ.

    Source: ragas 0.4.3's ``ExactMatch``. Deviation: a missing field is an outcome (ragas compares None).

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes; None: 1.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
    name = "exact_match"
    scale = BINARY

    async def measure(self, sample: SingleTurnSample) -> float:
        """Compare both strings."""
        return float(sample.response == sample.reference)


class StringPresence(NamedMetric):
    """Does the response contain the reference?

    Formula: 1 when the response contains the reference, else 0. Range {0, 1}, higher is better. Undefined for an empty
    reference.

    Fields: ``response``, ``reference``. Judge calls: none.

    Blind spot: case, white space and Unicode form all count; "not 1931" contains "1931", and so does "19312".

    Source: ragas 0.4.3's ``StringPresence``. Deviations: an empty reference is undefined (ragas: 1); a missing field is an
    outcome.

    Args:
        name: name of the metric in its scores.
        pass_at: lowest quality that passes; None: 1.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
    name = "string_presence"
    scale = BINARY

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Search for the reference in the response."""
        if not sample.reference:
            return Finding(value=None, reason="the reference is empty: there is nothing to look for")
        return Finding(value=float(sample.reference in (sample.response or "")))


class StringSimilarity(NamedMetric):
    """How alike are the response and the reference, letter by letter?

    Formula: 1 − normalised distance of the two strings: the share of letters that must be changed (Levenshtein), that differ at
    their position (Hamming, the shorter string padded), or Jaro's or Jaro and Winkler's count of letters in common and in
    order. Range [0, 1], higher is better. Two empty strings are equal.

    Fields: ``response``, ``reference``. Judge calls: none.

    Blind spot: meaning: "not" is three letters, a paraphrase is far away. Case and white space count. Long texts are all
    somewhat alike: even unrelated texts seldom get below 0.2.

    Source: ragas 0.4.3's ``NonLLMStringSimilarity``, on the distances of rapidfuzz (Levenshtein 1966; Hamming 1950; Jaro 1989;
    Winkler 1990). Deviations: a missing field is an outcome.

    Args:
        name: name of the metric in its scores.
        distance_measure: ``"levenshtein"``, ``"hamming"``, ``"jaro"`` or ``"jaro_winkler"``.
        pass_at: lowest quality that passes.

    Raises:
        ConfigurationError: ``distance_measure`` or another argument is invalid.
        MissingExtraError: rapidfuzz is not installed (extra ``text``).
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
    cpu_bound = True

    def __init__(
        self,
        *,
        name: str = "non_llm_string_similarity",
        distance_measure: DistanceMeasure = "levenshtein",
        pass_at: float | None = None,
    ) -> None:
        super().__init__(name=name, pass_at=pass_at)
        self.distance_measure = distance_measure
        self._similarity = similarity(distance_measure)

    async def measure(self, sample: SingleTurnSample) -> float:
        """Return the similarity of both strings."""
        return self._similarity(sample.reference or "", sample.response or "")


NonLLMStringSimilarity = StringSimilarity
"""Ragas's name of ``StringSimilarity``."""

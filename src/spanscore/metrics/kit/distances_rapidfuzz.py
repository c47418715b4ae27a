"""Similarity of two strings, 0…1, by a distance of rapidfuzz (extra ``text``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, cast

from spanscore.errors import ConfigurationError, MissingExtraError

DistanceMeasure = Literal["levenshtein", "hamming", "jaro", "jaro_winkler"]
Similarity: TypeAlias = Callable[[str, str], float]
"""Two strings → similarity from 0 (entirely different) to 1 (equal)."""

DISTANCE_MEASURES: dict[str, str] = {
    "levenshtein": "Levenshtein",
    "hamming": "Hamming",
    "jaro": "Jaro",
    "jaro_winkler": "JaroWinkler",
}
"""Name → rapidfuzz's module. Hamming pads the shorter string."""


def similarity(measure: str) -> Similarity:
    """Return 1 − the normalised distance of this name; two empty strings are equal.

    Raises:
        ConfigurationError: the distance is unknown.
        MissingExtraError: rapidfuzz is not installed.
    """
    if measure not in DISTANCE_MEASURES:
        raise ConfigurationError(f"distance_measure is {measure!r}; it is one of {', '.join(DISTANCE_MEASURES)}")
    try:
        from rapidfuzz import distance
    except ImportError as error:
        raise MissingExtraError("rapidfuzz", "text") from error
    distance_of = cast("Callable[[str, str], float]", getattr(distance, DISTANCE_MEASURES[measure]).normalized_distance)
    # Versions disagree about the Jaro distance of two empty strings.
    return lambda one, other: 1.0 if one == other else 1.0 - distance_of(one, other)

"""ExactMatch: is the answer the reference, character by character?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import BINARY
from spanscore.metrics.kit.judged import NamedMetric

__all__ = ["ExactMatch"]


class ExactMatch(NamedMetric):
    """Is the response equal to the reference?

    Formula: 1 when both strings are equal, else 0. Range {0, 1}, higher is better. Two empty strings are equal.

    Fields: ``response``, ``reference``. Judge calls: none.

    Blind spot: case, white space, punctuation and Unicode form all count; "42" and "42." differ.

    Source: ragas 0.4.3's ``ExactMatch``. Deviation: a missing field is an outcome, where ragas compares None.

    Args:
        name: under which its scores appear.
        pass_at: lowest quality that passes; 1 when None.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
    name = "exact_match"
    scale = BINARY

    async def measure(self, sample: SingleTurnSample) -> float:
        """Compare."""
        return float(sample.response == sample.reference)

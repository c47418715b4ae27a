"""StringPresence: does the answer contain the reference, character by character?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import BINARY
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric

__all__ = ["StringPresence"]


class StringPresence(NamedMetric):
    """Does the response contain the reference?

    Formula: 1 when the reference stands somewhere in the response, else 0. Range {0, 1}, higher is better. An empty reference
    is nothing to look for: undefined.

    Fields: ``response``, ``reference``. Judge calls: none.

    Blind spot: case, white space and Unicode form all count; "not 1931" contains "1931", and so does "19312".

    Source: ragas 0.4.3's ``StringPresence``. Deviations: an empty reference is undefined (ragas: 1); a missing field is an
    outcome.

    Args:
        name: under which its scores appear.
        pass_at: lowest quality that passes; 1 when None.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("response", "reference")}
    name = "string_presence"
    scale = BINARY

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Look for it."""
        if not sample.reference:
            return Finding(value=None, reason="the reference is empty: there is nothing to look for")
        return Finding(value=float(sample.reference in (sample.response or "")))

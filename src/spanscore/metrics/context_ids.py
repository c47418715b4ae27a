"""Context precision and recall by identifiers: were the right documents found?"""

from __future__ import annotations

from collections.abc import Mapping

from spanscore.core.sample import SingleTurnSample
from spanscore.metrics.kit.base import Finding
from spanscore.metrics.kit.judged import NamedMetric

__all__ = ["IDBasedContextPrecision", "IDBasedContextRecall"]


class IDBasedContextPrecision(NamedMetric):
    """Which share of the retrieved documents is among those that should have been found?

    Formula: different ids that are in both lists / different retrieved ids. Ids are compared as text: 7 is ``"7"``, and not
    ``"07"``. Range [0, 1], higher is better.

    Fields: ``retrieved_context_ids``, ``reference_context_ids``. Judge calls: none. Undefined when nothing was retrieved; 0
    when nothing should have been.

    Blind spot: the order, repeated documents, and documents as good as those of the reference.

    Source: ragas 0.4.3's ``IDBasedContextPrecision``. Deviations: an undefined score has a reason.

    Args:
        name: under which its scores appear.
        pass_at: lowest quality that passes.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_context_ids", "reference_context_ids")}
    name = "id_based_context_precision"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the sets."""
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
        name: under which its scores appear.
        pass_at: lowest quality that passes.
    """

    requires: Mapping[str, tuple[str, ...]] = {"single_turn": ("retrieved_context_ids", "reference_context_ids")}
    name = "id_based_context_recall"

    async def measure(self, sample: SingleTurnSample) -> Finding:
        """Compare the sets."""
        retrieved, reference = _ids(sample)
        if not reference:
            return Finding(value=None, reason="the reference names no document")
        found = len(retrieved & reference)
        explanation = f"{found} of {len(reference)} expected documents were retrieved."
        return Finding(value=found / len(reference), explanation=explanation)


def _ids(sample: SingleTurnSample) -> tuple[set[str], set[str]]:
    retrieved, reference = sample.retrieved_context_ids or (), sample.reference_context_ids or ()
    return set(map(str, retrieved)), set(map(str, reference))

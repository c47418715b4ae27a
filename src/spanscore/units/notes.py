"""Notes: what ``status()`` tells of scores beside their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from spanscore import semconv
from spanscore.model.job import CONFIGURED, STATED, UNKNOWN, Decision
from spanscore.model.score import Outcome, Score
from spanscore.model.span import UnitKey

__all__ = ["Notes"]

_MOST_UNPRICED = 10
"""A line's worth, whatever names a judge may answer under."""


class Notes:
    """The latest of each kind. Written on the span thread, read on any.

    Attributes:
        reasons: (metric, outcome) → the latest reason, and whose it is.
        kinds: kinds of the units that were chosen → how many.
        heads: source of the share that a head sampler keeps (``Decision.upstream_by``) → chosen units.
        sources: how samples were found → how many.
        unpriced: models of judges whose price is not known; a few at most.
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, Outcome], tuple[str, UnitKey]] = {}
        self.kinds: Counter[str] = Counter()
        self.heads = dict.fromkeys((STATED, CONFIGURED, UNKNOWN), 0)
        self.sources: Counter[str] = Counter()
        self.unpriced: dict[str, None] = {}

    def chosen(self, kind: str, decisions: Mapping[str, Decision]) -> None:
        """Note a unit that some metric takes; ``decisions``: of these metrics, which share the unit's dice."""
        self.kinds[kind] += 1
        head = next(iter(decisions.values())).upstream_by
        if head in self.heads:
            self.heads[head] += 1

    def scored(self, key: UnitKey, scores: Sequence[Score]) -> None:
        """Note why scores of a unit have no value, and what their judges are not known to cost."""
        self.reasons |= {(score.metric, score.outcome): (score.reason, key) for score in scores if score.reason}
        self.costs(scores)

    def unscored(self, key: UnitKey, outcomes: Mapping[str, Outcome], reason: str | None) -> None:
        """Note why metrics of a unit gave no score."""
        if reason:
            self.reasons |= dict.fromkeys(outcomes.items(), (reason, key))

    def costs(self, scores: Sequence[Score]) -> None:
        """Note what the judges of scores are not known to cost."""
        if len(self.unpriced) < _MOST_UNPRICED:
            self.unpriced |= {model: None for score in scores for model in sorted(score.usage.unpriced)}

    def sampled(self, made: Mapping[str, Any]) -> None:
        """Note how a sample was made."""
        if source := made.get(semconv.SAMPLE_SOURCE):
            self.sources[source] += 1

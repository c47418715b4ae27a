"""ReplayTally: what a replay has read and scored so far; it is the sink that counts scores, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from spanscore.core.job import ReplayState
from spanscore.core.score import Outcome, Score
from spanscore.core.span import Unit
from spanscore.replay.planning import UnitPlan
from spanscore.replay.reading import StoredUnit
from spanscore.sources.stored import Unread

__all__ = ["ReplayTally"]

_NAMED = 20
"""Of what could not be read, that is named one by one."""


class ReplayTally:
    """Counts. What is read is counted on one thread, scores on the span thread; any may look.

    Args:
        looked_at: keys of metadata at which rules look.

    Attributes:
        lacking: of these keys, units whose root does not have it.
        traces: that were read.
        units: in them, within the time that was asked for; ``with_content``: of these, those whose spans hold some.
        outside: units before or after it.
        dialects: what reads a unit's root → units.
        taken: metric → units that it takes and has not scored.
        skipped: metric → units that it has scored already.
        told: decisions that a score in the store tells; ``anew`` = the others of those that take a unit.
        unread: what could not be read, the first of it; ``unread_total`` = how much that is.
        outcomes: metric → outcome → scores; what was no sample is not among them.
        failed: of them.
        tokens: of the judges.
        usd: likewise; None while no price is known.
    """

    def __init__(self, looked_at: Iterable[str] = ()) -> None:
        self._looked_at = frozenset(looked_at)
        self.lacking: Counter[str] = Counter()
        self.traces = self.units = self.with_content = self.outside = self.told = self.anew = self.unread_total = 0
        self.dialects: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.unread: list[Unread] = []
        self.outcomes: dict[str, Counter[str]] = {}
        self.scored = self.calls = self.tokens = 0
        self.usd: float | None = None

    def could_not_read(self, unread: Unread) -> None:
        """Name something, if it is among the first."""
        self.unread_total += 1
        if len(self.unread) < _NAMED:
            self.unread.append(unread)

    def read(self, stored: StoredUnit, plan: UnitPlan) -> None:
        """Count a unit and what becomes of it."""
        self.units += 1
        self.with_content += stored.has_content
        root = stored.unit.root
        self.lacking.update(self._looked_at.difference(() if root is None else root.metadata))
        self.dialects[stored.dialect or "no dialect"] += 1
        self.taken.update(plan.taken)
        self.skipped.update(plan.skipped)
        self.told += len(plan.told)
        self.anew += len(plan.taken | plan.skipped) - len(plan.told)

    def state(self) -> ReplayState:
        """Return how far it is."""
        return ReplayState(self.traces, self.units, sum([*self.skipped.values()]), self.scored, self.usd)

    def of(self, outcome: Outcome) -> int:
        """Return how many scores of all metrics ended so."""
        return sum(found[outcome.value] for found in self.outcomes.values())

    # --- Sink --------------------------------------------------------------------------------------------------

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Count scores."""
        for score in scores:
            self.outcomes.setdefault(score.metric, Counter())[score.outcome.value] += 1
            self.scored += score.value is not None
            self.calls += len(score.usage.calls) - score.usage.cached_calls
            self.tokens += score.usage.input_tokens + score.usage.output_tokens
            if score.usage.cost_usd is not None:
                self.usd = (self.usd or 0.0) + score.usage.cost_usd

    def shutdown(self) -> None:
        """Do nothing: it holds nothing back."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "traces": self.traces,
            "units": self.units,
            "with_content": self.with_content,
            "outside": self.outside,
            "dialects": dict(self.dialects),
            "taken": dict(self.taken),
            "skipped": dict(self.skipped),
            "decisions": {"told": self.told, "anew": self.anew},
            "lacking_metadata": dict(self.lacking),
            "unread": self.unread_total,
            "unread_first": [one._asdict() for one in self.unread],
            "outcomes": {metric: dict(found) for metric, found in self.outcomes.items()},
            "judge_calls": self.calls,
            "tokens": self.tokens,
            "usd": self.usd,
        }

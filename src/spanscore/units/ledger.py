"""Ledger: eligible in, exactly one outcome out, for every (unit × metric).

At any moment eligible = Σ outcomes + pending, per metric; after a drain, eligible = Σ outcomes. What the mean lacks is weighed
in the same step in which it is counted, so that no lost unit is left out and none counts twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from time import time

from spanscore.core.job import Counted, Decision, Weights
from spanscore.core.score import Outcome
from spanscore.core.span import Unit, UnitKey

__all__ = ["Ledger"]


class Ledger:
    """Counts how each eligible (unit × metric) ended; also the ``RejectionCounter`` and ``Counts`` of the library.

    Every method is O(1) in the units counted (``settle_all``: in the metrics) and safe from any thread.

    Args:
        metrics: the names every unit is eligible for, where nothing else is said of it.

    Attributes:
        since_s: when it began at zero, seconds since the epoch: what a life of the process before has counted is in no count.
    """

    def __init__(self, metrics: Iterable[str]) -> None:
        self._metrics = tuple(metrics)
        self._every = frozenset(self._metrics)
        self.reset()

    def reset(self) -> None:
        """Count from zero: in a forked child, else the parent's counts would go out twice."""
        self._lock = threading.RLock()  # a signal handler that asks for the status may interrupt its holder
        self.since_s = time()
        self._units = 0
        self._of_some: Counter[str] = Counter()
        self._open: dict[UnitKey, dict[str, float]] = {}  # metric → 1/π
        self._whole: Counter[Outcome] = Counter()
        self._rejected: Counter[Outcome] = Counter()
        self._single: Counter[tuple[str, Outcome]] = Counter()
        self._of_sources: Counter[tuple[str, Outcome, str | None]] = Counter()
        self._excluded: dict[tuple[str, Outcome, str | None], Weights] = {}

    def enter(self, key: UnitKey, metrics: Iterable[str] | None = None) -> bool:
        """Make a unit eligible for these metrics; None = for every one. False: it has entered already and is still open."""
        with self._lock:
            if key in self._open:
                return False
            if metrics is None:
                self._units += 1
            else:
                self._of_some.update(metrics := [*metrics])
            self._open[key] = dict.fromkeys(self._metrics if metrics is None else metrics, 1.0)
            return True

    def belongs(self, unit: Unit) -> None:
        """Note of an open unit what tells its losses apart; nothing does, but of a ledger that compares."""

    def choose(self, key: UnitKey, decisions: Mapping[str, Decision]) -> None:
        """Note with which probability metrics took an open unit: if it is lost, it stands for 1/π; before, for itself."""
        with self._lock:
            waiting = self._open.get(key, {})
            waiting |= {name: 1.0 / decision.probability for name, decision in decisions.items() if name in waiting}

    def record_rejected(self, outcome: Outcome, units: int = 1) -> None:
        """Count units as eligible and ended in one step, for every metric."""
        with self._lock:
            self._units += units
            self._whole[outcome] += units
            self._rejected[outcome] += units

    def settle(self, key: UnitKey, metric: str, outcome: Outcome, source: str | None = None) -> bool:
        """Give an open (unit × metric) its outcome. False: it had one already, nothing is counted.

        Args:
            source: of its score (``Score.source``).
        """
        with self._lock:
            waiting = self._open.get(key)
            if waiting is None or metric not in waiting:
                return False
            self._weigh(key, metric, outcome, source, waiting.pop(metric))
            self._single[metric, outcome] += 1
            if source is not None:
                self._of_sources[metric, outcome, source] += 1
            if not waiting:
                del self._open[key]
            return True

    def settle_all(self, key: UnitKey, outcome: Outcome) -> frozenset[str]:
        """Give every metric of a unit that is still open this outcome; return their names."""
        with self._lock:
            waiting = self._open.pop(key, None)
            if waiting is None:
                return frozenset()
            if waiting.keys() == self._every:
                self._whole[outcome] += 1
            else:
                self._single.update((metric, outcome) for metric in waiting)
            for metric, weight in waiting.items():
                self._weigh(key, metric, outcome, None, weight)
            return frozenset(waiting)

    @property
    def refused(self) -> int:
        """Units that were turned away as the event queue was full."""
        return self._whole[Outcome.EVENT_QUEUE_FULL]

    def is_open(self, key: UnitKey) -> bool:
        """Whether a unit has a metric still to end."""
        return key in self._open

    def open_units(self) -> list[UnitKey]:
        """Return the units with at least one metric still to end, in the order in which they entered."""
        with self._lock:
            return list(self._open)

    def eligible(self) -> Mapping[str, int]:
        """Metric → units that entered."""
        with self._lock:
            names = dict.fromkeys([*self._metrics, *self._of_some])  # some may be of another process
            return {name: self._units * (name in self._metrics) + self._of_some[name] for name in names}

    def outcomes(self) -> Mapping[tuple[str, Outcome], int]:
        """(metric, outcome) → units that ended so; outcomes that never happened are absent."""
        with self._lock:
            counts = Counter(self._single)
            for outcome, units in self._whole.items():
                counts.update({(metric, outcome): units for metric in self._metrics})
            return counts

    def outcomes_by_source(self) -> Mapping[tuple[str, Outcome, str | None], int]:
        """(metric, outcome, source) → units that ended so; None = the population. All of one moment."""
        with self._lock:
            counts = Counter(self._of_sources)
            for (metric, outcome), units in self.outcomes().items():
                counts[metric, outcome, None] = units
            for (metric, outcome, _), units in self._of_sources.items():
                counts[metric, outcome, None] -= units
            return counts

    def excluded(self) -> Mapping[tuple[str, Outcome, str | None], Weights]:
        """(metric, outcome, source) → the weights of the units that the mean of the population lacks.

        These are the lost ones, and those that another judge than the configured one scored.
        """
        with self._lock:
            weights = dict(self._excluded)
            for outcome, units in self._rejected.items():
                if outcome.missing:
                    weights |= {
                        (m, outcome, None): _plus(weights.get((m, outcome, None)), units) for m in self._metrics
                    }
            return weights

    def lost(self) -> Mapping[str, Weights]:
        """Metric → the sum of these, over outcomes and sources."""
        weights = dict.fromkeys(self._metrics, Weights())
        for (metric, _, _), (w, w2) in self.excluded().items():
            so_far = weights.get(metric, Weights())
            weights[metric] = Weights(so_far.w + w, so_far.w2 + w2)
        return weights

    def count_units(self) -> Counted:
        """Return how units stand, all of one moment: what is asked for in turn does not add up while units end."""
        with self._lock:
            return Counted(self.eligible(), self.outcomes_by_source(), self.pending(), self.excluded())

    def pending(self) -> Mapping[str, int]:
        """Metric → units between entry and outcome."""
        with self._lock:
            between = Counter(dict.fromkeys([*self._metrics, *self._of_some], 0))
            for waiting in self._open.values():
                between.update(waiting.keys())
            return between

    def _weigh(self, key: UnitKey, metric: str, outcome: Outcome, source: str | None, weight: float) -> bool:
        """Weigh what the mean lacks; False: it has it. ``key``: whose loss it is, for who tells them apart."""
        lost = outcome.missing or (outcome is Outcome.SCORED and source is not None)
        if lost:
            at = metric, outcome, source
            self._excluded[at] = _plus(self._excluded.get(at), 1, weight)
        return lost


def _plus(weights: Weights | None, units: int, weight: float = 1.0) -> Weights:
    w, w2 = weights or Weights()
    return Weights(w + units * weight, w2 + units * weight * weight)

"""ComparedLedger: a ledger that also weighs what the mean of each release lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from spanscore.core.job import Counted, Weights
from spanscore.core.score import Outcome
from spanscore.core.span import Unit, UnitKey
from spanscore.units.ledger import Ledger

__all__ = ["ComparedLedger"]


class ComparedLedger(Ledger):
    """Tells losses apart by the compared value of their unit (``outputs/aggregates.py``).

    Args:
        metrics: as of a ledger.
        of_unit: returns a unit's value; None = of one of this process that is turned away before anything is known of it.
        of_loss: metric and that value → under which the loss is counted.
    """

    def __init__(
        self, metrics: Iterable[str], of_unit: Callable[[Unit | None], str], of_loss: Callable[[str, str], str]
    ) -> None:
        self._of_unit = of_unit
        self._of_loss = of_loss
        super().__init__(metrics)

    def reset(self) -> None:
        """Count from zero: in a forked child."""
        super().reset()
        self._values: dict[UnitKey, str] = {}
        self._by_value: dict[tuple[str, str], Weights] = {}

    def belongs(self, unit: Unit) -> None:
        """Note the value of an open unit."""
        if self.is_open(unit.ledger_key):
            self._values[unit.ledger_key] = self._of_unit(unit)

    def record_rejected(self, outcome: Outcome, units: int = 1) -> None:
        """Count units as eligible and ended in one step, for every metric."""
        with self._lock:
            super().record_rejected(outcome, units)
            for metric in self._metrics * units if outcome.missing else ():
                self._lose(metric, None, 1.0)

    def settle(self, key: UnitKey, metric: str, outcome: Outcome, source: str | None = None) -> bool:
        """Give an open (unit × metric) its outcome. False: it had one already, nothing is counted."""
        with self._lock:
            settled = super().settle(key, metric, outcome, source)
            self._forget(key)
            return settled

    def settle_all(self, key: UnitKey, outcome: Outcome) -> frozenset[str]:
        """Give every metric of a unit that is still open this outcome; return their names."""
        with self._lock:
            settled = super().settle_all(key, outcome)
            self._forget(key)
            return settled

    def count_units(self) -> Counted:
        """Return how units stand, all of one moment."""
        with self._lock:
            return super().count_units()._replace(compared=self.compared())

    def compared(self) -> Mapping[tuple[str, str], Weights]:
        """(metric, compared value) → the weights of the units that the mean of the population lacks."""
        with self._lock:
            return dict(self._by_value)

    def _weigh(self, key: UnitKey, metric: str, outcome: Outcome, source: str | None, weight: float) -> bool:
        lost = super()._weigh(key, metric, outcome, source, weight)
        if lost:
            self._lose(metric, self._values.get(key), weight)
        return lost

    def _lose(self, metric: str, value: str | None, weight: float) -> None:
        at = metric, self._of_loss(metric, self._of_unit(None) if value is None else value)
        so_far = self._by_value.get(at, Weights())
        self._by_value[at] = Weights(so_far.w + weight, so_far.w2 + weight * weight)

    def _forget(self, key: UnitKey) -> None:
        if not self.is_open(key):
            self._values.pop(key, None)

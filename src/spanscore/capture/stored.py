"""StoredUnits: whole units that were read from a store → the line: the receiver of ``spanscore replay``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spanscore.capture.intake import Intake
from spanscore.capture.submitted import ImmediateReceiver
from spanscore.core.job import Decision, ReplayState
from spanscore.core.score import Outcome
from spanscore.core.span import Unit
from spanscore.protocols import Metric


class StoredUnits(ImmediateReceiver):
    """Hands units on that nothing more will come of; their spans have left long ago.

    Args:
        intake: the parts to begin with.
        metrics: that score units.
        open_units: how many are being scored.
        ready: called with each: the first chooses providers and starts the span thread.

    Attributes:
        metrics: as they were given.
        units: that came in, each revision.
        replayed: tells how far who hands them over is; None = nobody does.
    """

    def __init__(
        self,
        intake: Intake,
        *,
        metrics: Sequence[Metric],
        open_units: Callable[[], int],
        ready: Callable[[], None],
    ) -> None:
        self._open_units = open_units
        self._ready = ready
        self.metrics = metrics
        self.replayed: Callable[[], ReplayState] | None = None
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Work with these parts from now on, and count from zero."""
        self._event_queue, self._port, self._sampler = intake.event_queue, intake.port, intake.sampler
        self.units = self._read = 0

    @property
    def under_way(self) -> int:
        """Units that came in and are not settled: who hands them over waits where there are many."""
        return self.units - self._read + self._open_units()

    def decisions(self, unit: Unit) -> Mapping[str, Decision]:
        """Return what will be decided on a unit; a rule on a score that is not there yet counts as matching."""
        facts = unit.facts()
        return {metric.name: self._sampler.decide(facts, metric.name) for metric in self.metrics}

    def put(self, unit: Unit) -> None:
        """Take a unit in. Any thread; does not block, but for the first one."""
        if self._closed:
            return
        self._ready()
        self.units += 1
        self._event_queue.put(self, unit, must=True)
        self._event_queue.nudge()

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: Unit, now_ns: int) -> None:
        """Hand on one unit."""
        self._port.unit_complete(event, {}, now_ns, lost=Outcome.INCOMPLETE)
        self._read += 1

    def unread_count(self) -> int:
        """Return how many units were never read. Any thread."""
        return self.units - self._read

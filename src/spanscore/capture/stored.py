"""The receiver of ``spanscore replay``, which gets whole units that were read from a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass

from spanscore.capture.intake import Intake
from spanscore.capture.submitted import ImmediateReceiver
from spanscore.core.job import Decision, ReplayState
from spanscore.core.score import Outcome
from spanscore.core.span import Unit
from spanscore.protocols import Metric


@dataclass(eq=False, repr=False)
class StoredUnits(ImmediateReceiver):
    """Hands on complete units that were read from a store. Their spans were exported long ago.

    Attributes:
        intake: the first parts.
        metrics: metrics that score units.
        open_units: function that returns the number of units in scoring.
        ready: called with each unit; the first call chooses providers and starts the span thread.
        replayed: function that returns the progress of the replay; None without a replay.
        units: number of accepted units; each revision counts.
    """

    intake: InitVar[Intake]
    _: KW_ONLY
    metrics: Sequence[Metric]
    open_units: Callable[[], int]
    ready: Callable[[], None]
    replayed: Callable[[], ReplayState] | None = None

    def __post_init__(self, intake: Intake) -> None:
        self.connect(intake)

    def connect(self, intake: Intake) -> None:
        """Use these parts from now on, and count from zero."""
        self._event_queue, self._port, self._sampler = intake.event_queue, intake.port, intake.sampler
        self.units = self._read = 0

    @property
    def under_way(self) -> int:
        """Number of accepted units that are not settled. The replay waits while there are many."""
        return self.units - self._read + self.open_units()

    def decisions(self, unit: Unit) -> Mapping[str, Decision]:
        """Return the sampling decision of each metric on a unit. A rule on a missing score counts as matching."""
        facts = unit.facts()
        return {metric.name: self._sampler.decide(facts, metric.name) for metric in self.metrics}

    def put(self, unit: Unit) -> None:
        """Accept a unit. Thread-safe; only the first call may block."""
        if self._closed:
            return
        self.ready()
        self.units += 1
        self._event_queue.put(self, unit, never_drop=True)
        self._event_queue.nudge()

    # --- Receiver ----------------------------------------------------------------------------------------------

    def handle(self, event: Unit, now_ns: int) -> None:
        """Hand on one unit."""
        self._port.unit_complete(event, {}, now_ns, lost=Outcome.INCOMPLETE)
        self._read += 1

    def unread_count(self) -> int:
        """Return the number of units that were never read. Thread-safe."""
        return self.units - self._read

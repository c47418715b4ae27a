"""StoredUnits: whole units that were read from a store → the line: the receiver of ``spanscore replay``."""

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
    """Hands on units that are whole; their spans have left long ago.

    Attributes:
        intake: the parts to begin with.
        metrics: metrics that score units.
        open_units: returns how many units are being scored.
        ready: called with each unit: the first chooses providers and starts the span thread.
        replayed: returns how far the replay is; None without a replay.
        units: units that came in, each revision.
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
        """Work with these parts from now on, and count from zero."""
        self._event_queue, self._port, self._sampler = intake.event_queue, intake.port, intake.sampler
        self.units = self._read = 0

    @property
    def under_way(self) -> int:
        """Units that came in and are not settled: who hands them over waits where there are many."""
        return self.units - self._read + self.open_units()

    def decisions(self, unit: Unit) -> Mapping[str, Decision]:
        """Return what will be decided on a unit; a rule on a score that is not there yet counts as matching."""
        facts = unit.facts()
        return {metric.name: self._sampler.decide(facts, metric.name) for metric in self.metrics}

    def put(self, unit: Unit) -> None:
        """Take a unit in. Any thread; does not block, but for the first one."""
        if self._closed:
            return
        self.ready()
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

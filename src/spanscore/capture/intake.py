"""Intake: the parts of one pipeline that its receivers use."""

from __future__ import annotations

from dataclasses import dataclass

from spanscore.core.event_queue import EventQueue
from spanscore.core.score import Outcome
from spanscore.pipeline.in_force import SamplerInForce
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.sessions import SessionIds
from spanscore.protocols import Receiver, UnitListener


@dataclass(frozen=True, slots=True)
class Intake:
    """The parts of one pipeline that its receivers use. A forked child process creates its own parts.

    Attributes:
        event_queue: brings events to the span thread.
        port: takes the units that receivers hand on.
        sampler: returns, when a root begins, whether its unit may be scored.
        admission: counts units that a receiver rejects.
        turns: notes the conversation of each root; None = no metric scores conversations.
    """

    event_queue: EventQueue[Receiver]
    port: UnitListener
    sampler: RateSampler | SamplerInForce
    admission: Ledger
    turns: SessionIds | None = None

    def reject(self, outcome: Outcome, conversation: str | None) -> None:
        """Count a unit that a receiver rejects, and a missing turn of its conversation. Thread-safe."""
        self.admission.record_rejected(outcome)
        if conversation and self.turns is not None:
            self.turns.record_rejection(conversation, outcome)

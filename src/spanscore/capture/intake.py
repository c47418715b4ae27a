"""``Intake`` gives the receivers of a pipeline its event queue, listener, sampler, ledger and session ids."""

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
        event_queue: queue of events for the span thread.
        listener: gets the spans and units of receivers.
        sampler: decides when a root begins whether its unit may be scored.
        ledger: counts units that a receiver rejects.
        session_ids: records the conversation of each root; None = no metric scores conversations.
    """

    event_queue: EventQueue[Receiver]
    listener: UnitListener
    sampler: RateSampler | SamplerInForce
    ledger: Ledger
    session_ids: SessionIds | None = None

    def reject(self, outcome: Outcome, conversation: str | None) -> None:
        """Count a unit that a receiver rejects, and a missing turn of its conversation. Thread-safe."""
        self.ledger.record_rejected(outcome)
        if conversation and self.session_ids is not None:
            self.session_ids.record_rejection(conversation, outcome)

"""Intake: the parts of one pipeline that its receivers work with."""

from __future__ import annotations

from dataclasses import dataclass

from spanscore.core.event_queue import EventQueue
from spanscore.pipeline.ledger import Ledger
from spanscore.pipeline.sampling import RateSampler
from spanscore.pipeline.sessions import SessionIds
from spanscore.protocols import Receiver, UnitListener


@dataclass(frozen=True, slots=True)
class Intake:
    """The parts of one pipeline that its receivers work with; a forked child has others.

    Attributes:
        event_queue: brings events to the span thread.
        port: takes the units that receivers hand on.
        sampler: returns, when a root begins, whether its unit may be scored at all.
        admission: counts units that a receiver turns away.
        turns: notes the conversation of each root; None = no metric scores conversations.
    """

    event_queue: EventQueue[Receiver]
    port: UnitListener
    sampler: RateSampler
    admission: Ledger
    turns: SessionIds | None = None

"""Ticket: leave to send one question, and what was so when it left."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Ticket"]


@dataclass(slots=True, eq=False)
class Ticket:
    """A question that is out.

    Attributes:
        serial: they are numbered as they leave.
        sent_s: when it left.
        out: how many were out then, itself included.
        probe: it is the breaker's: whether the judge is back hangs on it.
        left: nobody waits for it any more; its request has not ended yet.
        held: of those that were answered, how many were taken to be counted by the provider still.
        doubtful: how many more it may have counted.
    """

    serial: int
    sent_s: float
    out: int
    probe: bool = False
    left: bool = False
    held: int = 0
    doubtful: int = 0

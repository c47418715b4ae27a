"""Goodput: what a provider that limits the rate lets in."""

from __future__ import annotations

from math import inf

from spanscore.judges.effects.ticket import Ticket

__all__ = ["Goodput"]


class Goodput:
    """How many a second were let in while others were refused: the provider's rate. Of a time in which there was trouble."""

    _FEWEST = 3
    _TURNED_AWAY = 0.3
    """Refused for each that was let in, below which the rate was asked for too little to be seen."""

    def __init__(self) -> None:
        self.begin(-inf)

    def begin(self, now_s: float) -> None:
        """Count from now on."""
        self._since_s = now_s
        self.offered = self.not_attempted = 0

    def per_s(self, refused: Ticket, later: int) -> float | None:
        """Return the rate up to a question that was refused; None where too little is known.

        Args:
            later: questions that were sent after it, of which nothing is known yet.
        """
        admitted = self.offered - self.not_attempted - later
        if admitted < self._FEWEST or self.not_attempted < self._TURNED_AWAY * admitted:
            return None
        return admitted / (refused.sent_s - self._since_s)

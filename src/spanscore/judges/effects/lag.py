"""Lag: how long a provider counts a question as out that has been answered."""

from __future__ import annotations

from collections import deque
from math import inf

from spanscore.judges.effects.ticket import Ticket

__all__ = ["Lag"]


class Lag:
    """A gateway frees a place a moment after the answer has left: for so long it is not taken again.

    It is learned as any other limit: doubled by a refusal that it may explain, and a thousandth less with each answer.
    """

    _FIRST_S = 0.005
    _LONGEST = 0.1
    """Of a round trip: an answer that is older frees its place."""
    _EASED = 0.999

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Have none."""
        self._lag_s = self._longest_s = 0.0
        self._answered_s: deque[float] = deque()

    def answered(self, now_s: float, round_trip_s: float) -> None:
        """Tell that one was answered."""
        self._lag_s *= self._EASED
        self._longest_s = self._LONGEST * round_trip_s
        self._answered_s.append(now_s)

    def sent(self, ticket: Ticket) -> None:
        """Note on a question that is sent how many were answered so lately that they may still count."""
        while self._answered_s and self._answered_s[0] + self._longest_s <= ticket.sent_s:
            self._answered_s.popleft()
        ticket.held = len(self._held(ticket.sent_s))
        ticket.doubtful = len(self._answered_s) - ticket.held

    def wait_s(self, free: int, now_s: float) -> float:
        """Return in how many seconds one of the places that seem free may be taken; infinite where none does."""
        held = self._held(now_s)
        if free <= 0:
            return inf
        return held[-free] + self._lag_s - now_s if len(held) >= free else 0.0

    def explains(self, refused: Ticket, level: float) -> bool:
        """Whether a question was refused because others, just answered, were still counted; it is then taken to be longer."""
        if not refused.doubtful or refused.out + refused.doubtful < int(level):
            return False
        self._lag_s = min(max(self._FIRST_S, 2 * self._lag_s), self._longest_s)
        return True

    def _held(self, now_s: float) -> list[float]:
        return [answered_s for answered_s in self._answered_s if answered_s + self._lag_s > now_s]

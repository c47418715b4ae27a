"""Places: how many questions may be out at once with one account, learned from its refusals."""

from __future__ import annotations

from math import floor, inf

from spanscore.judges.effects.ticket import Ticket

__all__ = ["Places"]

_START = 4.0
_BACK = 0.9
_LEAST = 0.01
_PROBE_S, _RAREST_PROBE_S = 1.0, 8.0
_SMOOTHING = 0.2


class Places:
    """Starts at 4, doubles per round trip until the first refusal, then stays below the level at which it was refused.

    A refusal takes a tenth away; calls that were sent before that and come back refused are of the same episode and take away
    nothing. Past the level it is tried with one more, after 1 s, and twice as rarely with each that fails, up to every 8 s.
    Below 1 it is a pace: one call per (round trip ÷ level). Only a refusal lowers it, and only use raises it.

    Args:
        ceiling: the most there may be.
    """

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.level = min(_START, float(ceiling))
        self._wall = inf
        self._cut_s = -inf
        self._probe_every_s = _PROBE_S
        self._probe_at_s = inf
        self._round_trip_s = 1.0
        self._last_sent_s = -inf
        self._paced_until_s = -inf

    def lower_ceiling(self, ceiling: int) -> None:
        """Have no more than so many."""
        self.ceiling = min(self.ceiling, ceiling)
        self.level = min(self.level, float(self.ceiling))

    def wait_s(self, out: int, now_s: float) -> float:
        """Return in how many seconds one more may be sent beside those that are out; infinite until one of them ends."""
        if out >= max(1, floor(self.level)) and not (now_s >= self._probe_at_s and out < self.ceiling):
            return inf
        if self.level >= 1 and now_s >= self._paced_until_s:
            return 0.0
        return max(0.0, self._last_sent_s + self._round_trip_s / self.level - now_s)

    def sent(self, out: int, now_s: float) -> None:
        """Tell that one is sent, and how many were out before it."""
        self._last_sent_s = now_s
        if out >= floor(self.level) and now_s >= self._probe_at_s:
            self._probe_at_s = inf

    def answered(self, ticket: Ticket, out: int, now_s: float) -> None:
        """Tell that a question was answered, and how many were out, itself included."""
        self._round_trip_s += _SMOOTHING * (now_s - ticket.sent_s - self._round_trip_s)
        if out < floor(self.level):  # not in use
            return
        if ticket.out > self.level or self.level + 1 < self._wall:
            self.level = min(self.level + 1, float(self.ceiling))
            self._probe_every_s = _PROBE_S
        if self.level >= self._wall:
            self._wall = self.level + 1
        if self._probe_at_s == inf and self._wall < inf:
            self._probe_at_s = now_s + self._probe_every_s

    def refused(self, ticket: Ticket, now_s: float) -> bool:
        """Tell that a question was refused for load; return whether that is a new episode."""
        if ticket.sent_s < self._cut_s:
            return False
        self._wall = min(ticket.out, self.level + 1) if self.level >= 1 else self.level
        self.level = max(_LEAST, self._wall * _BACK)
        self._cut_s = now_s
        self._probe_every_s = min(2 * self._probe_every_s, _RAREST_PROBE_S)
        self._probe_at_s = now_s + self._probe_every_s
        return True

    def halve(self) -> None:
        """Have half of them: the judge is back, and nobody knows how well."""
        self.level = max(min(self.level, 1.0), self.level / 2)

    def pace(self, now_s: float) -> None:
        """Have those that waited for the same moment leave one by one, over a round trip."""
        self._paced_until_s = now_s + self._round_trip_s
